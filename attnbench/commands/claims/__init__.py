"""`attnbench claims`: was the paper right, by what a sweep measured?"""
