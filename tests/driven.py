"""The command line in a process of its own: of a copy of the package, or with an emulated GPU.

Its commands run there one after another, and their servers are forked from one; as a script, this
is that process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.commands.commands import here
from tests.forked import forked_servers

ROOT = Path(__file__).parents[1]


class Driven:
    """The process, in a folder and with these variables in its environment."""

    def __init__(self, folder, **variables):
        self.folder = folder
        paths = [str(path) for path in (variables.get("PYTHONPATH"), ROOT) if path]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.driven"],
            cwd=folder,
            env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments, **variables):
        """The completed command, with further variables in its environment."""
        question = [arguments, {name: str(value) for name, value in variables.items()}]
        print(json.dumps(question), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, f"the process of {' '.join(map(str, arguments))} has ended"
        code, out, err = json.loads(answer)
        return subprocess.CompletedProcess(arguments, code, out, err)

    def close(self):
        self.process.communicate()
        assert self.process.returncode == 0


def main():
    with forked_servers():
        for line in sys.stdin:
            arguments, variables = json.loads(line)
            done = here(*arguments, code=None, **variables)
            print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)


if __name__ == "__main__":
    main()
