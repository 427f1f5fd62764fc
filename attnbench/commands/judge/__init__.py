"""`attnbench judge`: are kernels right, steady and faster?"""
