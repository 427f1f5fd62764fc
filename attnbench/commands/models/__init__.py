"""`attnbench models`: which mechanisms are there, what are they, and do they keep the contract?"""
