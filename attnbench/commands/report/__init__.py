"""`attnbench report`: figures and tables of a stored sweep, again."""
