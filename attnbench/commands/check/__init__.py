"""`attnbench check` and `pytest --attnbench-base`: is anything slower or larger than it was?"""
