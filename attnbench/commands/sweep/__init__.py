"""`attnbench sweep` and `merge`: what does each mechanism cost, on one machine or on many?"""
