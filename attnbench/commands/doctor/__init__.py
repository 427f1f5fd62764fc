"""`attnbench doctor`: what does this machine offer, and what does not run here?"""
