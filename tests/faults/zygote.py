"""Runs the command line many times with a single import: one fork for each line of input.

A line is JSON: the arguments and a file for the output. The answer is the exit code.
"""

import json
import os
import sys
import traceback


def main():
    # everything that the verbs import; none of it runs before the fork
    import matplotlib.pyplot  # noqa: F401
    import pandas  # noqa: F401
    import torch  # noqa: F401

    from attnbench.cli.main import run

    for line in sys.stdin:
        arguments, out = json.loads(line)
        child = os.fork()
        if child == 0:
            os._exit(ended(run, arguments, out))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def ended(verb, arguments, out):
    """The exit code of a verb in this process; 70 if it raised an exception."""
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.argv = ["attnbench", *arguments]
    try:
        code = verb()
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    main()
