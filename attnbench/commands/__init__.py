"""The verbs of the command line, a folder each, and beside the folders what several of them share.

A folder has the verb with its options in `command.py`, what only it computes, and its pages. It
imports wings, what lies beside the folders, and `sweeping`, which carries out a sweep for each verb
that is one; never the folder of another verb.
"""
