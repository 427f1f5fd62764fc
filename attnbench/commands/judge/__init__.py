"""`attnbench judge`: are kernels right, steady and faster?

    command     options, output and exit codes
    judging     the parent: it asks for attempts within the budget, and has the race run
    worker      the child, which runs the code of the user's function
    fitting     there, how that function is called, and what is to be tried of it
    page        the verdict in words, tables and data

What is tried stands in `attention/checks/plan.py` and what may err by how much in `panel.py` beside
it; `records/kernel.py` has what parent and child tell each other.
"""
