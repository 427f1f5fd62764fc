"""The parent of all that is measured: requests, plans, processes, races, the agenda and the loop.

It never loads torch, and no code of a mechanism runs in it.
"""
