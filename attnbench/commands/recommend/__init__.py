"""`attnbench recommend`: which mechanism for one length and memory?"""
