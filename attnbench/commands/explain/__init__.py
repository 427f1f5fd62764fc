"""`attnbench explain`: why does one mechanism take longer than another?"""
