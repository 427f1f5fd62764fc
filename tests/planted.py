"""How many bugs the tests find: each is planted alone, and a test that reaches it must fail.

    python -m tests.planted [PART …] [--everything]

`planted.toml` lists the bugs: a file, a text that stands in it once, what replaces that text, and
the tests that reach it, as arguments of pytest. They run in a copy of the working tree until one
fails, by default the usual tests, with `--everything` also long ones. That test then has to pass
without the bug. The exit code is 1 where fewer than 95 % of the bugs are found; those whose tests
are skipped here do not count.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).parents[1]
NOT_TRACKED = "attnbench/report/web/vega.js.gz"  # made when the package is built
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0", "--tb=no", "-rfEs")
LIMIT_S = 900  # of one run of pytest
LEAST = 0.95  # share of the bugs that must be found
SKIPPED = "skipped here"


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A row of `planted.toml`."""

    file: str
    kind: str
    old: str
    new: str
    tests: str

    def __str__(self):
        return f"{self.file}: {self.kind}"

    def problems(self):
        """Why the bug cannot be planted, or its tests cannot run."""
        text = (ROOT / self.file).read_text() if (ROOT / self.file).is_file() else ""
        if (times := text.count(self.old)) != 1:
            yield f"{self}: {self.old!r} stands there {times} times"
        elif meaning(self.file, text) == meaning(self.file, text.replace(self.old, self.new)):
            yield f"{self}: {self.new!r} changes nothing"
        for word in shlex.split(self.tests):
            if word.startswith("tests/") and not (ROOT / word.partition("::")[0]).exists():
                yield f"{self}: there is no {word}"

    def found(self, tree, marked):
        """The test that fails in the tree for this bug alone; else why none does."""
        path = tree / self.file
        text = path.read_text()
        path.write_text(text.replace(self.old, self.new))
        failed = first_failure(tree, *marked, *shlex.split(self.tests))
        path.write_text(text)
        if failed.startswith("tests/") and first_failure(tree, failed):
            return f"it fails without the bug too: {failed}"
        return failed


def found(parts, everything=False):
    """What finds each bug of which a part of the name is asked for; nothing where none does."""
    bugs = [bug for bug in stored() if any(part in str(bug) for part in parts)]
    marked = ("-m", "not faults") if everything else ()
    with tempfile.TemporaryDirectory() as folder:
        copy(Path(folder))
        for bug in bugs:
            yield bug, bug.found(Path(folder), marked)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", default=[""], help="Parts of files or kinds of bugs.")
    parser.add_argument("--everything", action="store_true", help="Run long tests too.")
    options = parser.parse_args()
    if problems := [problem for bug in stored() for problem in bug.problems()]:
        sys.exit("\n".join(problems))
    results = []
    for bug, result in found(options.parts, options.everything):
        results.append(result)
        print(f"{bug}: {result or '**MISSED**'}", flush=True)
    counted = [result for result in results if result != SKIPPED]
    number = sum(result.startswith("tests/") for result in counted)
    print(f"{number} of {len(counted)} bugs found")
    sys.exit(number < LEAST * len(counted))


def meaning(file, text):
    """What the text of a file means, to be compared: comments of Python mean nothing."""
    return instructions(compile(text, file, "exec")) if file.endswith(".py") else text


def instructions(code):
    """What code does, wherever its lines are."""
    inner = [instructions(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_flags, inner


def stored():
    """All bugs, in the order of the file."""
    text = Path(__file__).with_suffix(".toml").read_text()
    return [Bug(**row) for row in tomllib.loads(text)["bug"]]


def copy(tree):
    """Copy the working tree, without what git ignores."""
    command = ("git", "ls-files", "-z")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    for name in (*listed.stdout.split("\0"), NOT_TRACKED):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)


def first_failure(tree, *arguments):
    """The first of the tests that fails in a tree, or what else happened; nothing if all pass."""
    paths = (str(tree), os.environ.get("PYTHONPATH"))
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    command, env = [sys.executable, *PYTEST, *arguments], {**os.environ, **variables}
    how = {"cwd": tree, "env": env, "capture_output": True, "text": True, "timeout": LIMIT_S}
    try:
        done = subprocess.run(command, check=False, **how)
    except subprocess.TimeoutExpired:
        return f"not done after {LIMIT_S} s"
    if done.returncode == 0:
        return ""
    if done.returncode == 5 and re.search("^SKIPPED", done.stdout, re.MULTILINE):
        return SKIPPED
    failed = re.search(r"^FAILED (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return failed[1] if failed else f"exit {done.returncode}: {done.stdout[-200:]}"


if __name__ == "__main__":
    main()
