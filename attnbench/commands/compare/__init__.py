"""`attnbench compare`: what changed between two stored sweeps?"""
