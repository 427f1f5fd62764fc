"""`attnbench model` and `bytes`: what do the layers of a model cost, and what do they keep?"""
