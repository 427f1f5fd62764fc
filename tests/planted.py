"""How many bugs the tests find: each is planted alone, and a test that reaches it must fail.

    python -m tests.planted [PART …] [--everything] [-j 2] [--write FILE]

`planted.toml` lists the bugs: a file, a text that stands in it once, what replaces that text, and
the tests that reach it, as arguments of pytest. They run in a copy of the working tree until one
fails, by default the usual tests, with `--everything` also long ones. That test then has to pass
without the bug. The exit code is 1 where fewer than 95 % of the bugs are found; those whose tests
are skipped here do not count.
"""

import argparse
import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread

ROOT = Path(__file__).parents[1]
NOT_TRACKED = "attnbench/render/web/vega.js.gz"  # made when the package is built
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0", "--tb=no", "-rfEs")
LIMIT_S = 900  # of one run of pytest
LEAST = 0.95  # share of the bugs that must be found
MISSED = "**MISSED**"
# what a run of pytest gave other than the test that failed
PASSED, SKIPPED, ERROR = "", "skipped here", "ERROR:"


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
        elif ast.dump(ast.parse(text)) == ast.dump(ast.parse(text.replace(self.old, self.new))):
            yield f"{self}: {self.new!r} changes nothing"
        for word in shlex.split(self.tests):
            if word.startswith("tests/") and not (ROOT / word.partition("::")[0]).exists():
                yield f"{self}: there is no {word}"

    @contextmanager
    def planted(self, tree):
        """The bug stands in the tree until the end of the block."""
        path = tree / self.file
        text = path.read_text()
        path.write_text(text.replace(self.old, self.new))
        try:
            yield
        finally:
            path.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", default=[""], help="Parts of files or kinds of bugs.")
    parser.add_argument("--everything", action="store_true", help="Run long tests too.")
    parser.add_argument("-j", type=int, default=1, help="How many bugs stand at a time.")
    parser.add_argument("--write", type=Path, metavar="FILE", help="Write the table here too.")
    asked = parser.parse_args()
    bugs = stored()
    if problems := [problem for bug in bugs for problem in bug.problems()]:
        sys.exit("\n".join(problems))
    bugs = [bug for bug in bugs if any(part in str(bug) for part in asked.parts)]
    marked = ("-m", "not faults") if asked.everything else ()
    with tempfile.TemporaryDirectory() as folder:

        def tree():
            return Path(folder, current_thread().name)

        def found(bug):
            with bug.planted(tree()):
                result, took_s = run(tree(), *marked, *shlex.split(bug.tests))
            if result.startswith("tests/") and run(tree(), result)[0] != PASSED:
                result = f"{ERROR} fails without it: {result}"
            print(f"{bug}: {result or MISSED} ({took_s:.0f} s)", file=sys.stderr, flush=True)
            return result, took_s

        with ThreadPoolExecutor(asked.j, initializer=lambda: copy(tree())) as pool:
            page, share = table(bugs, list(pool.map(found, bugs)))
    print(page)
    if asked.write:
        asked.write.write_text(page)
    sys.exit(share < LEAST)


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


def run(tree, *arguments):
    """The first of the tests that fails in a tree, or what else happened; and seconds."""
    begun, paths = time.monotonic(), (str(tree), os.environ.get("PYTHONPATH"))
    variables = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *PYTEST, *arguments],
            cwd=tree,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return f"{ERROR} not done after {LIMIT_S} s", time.monotonic() - begun
    first = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode == 0:
        result = PASSED
    elif done.returncode == 1 and first:
        result = first[1]
    elif done.returncode == 5 and re.search("^SKIPPED", done.stdout, re.MULTILINE):
        result = SKIPPED
    else:
        said = (done.stdout + done.stderr).strip().splitlines()
        result = f"{ERROR} exit {done.returncode}: {first[1] if first else said[-1:]}"
    return result, time.monotonic() - begun


def table(bugs, results):
    """The results in Markdown, and the share of bugs that were found."""
    lines = ["| room | file | bug | found by | seconds |", "|---|---|---|---|---:|"]
    for bug, (result, took_s) in zip(bugs, results, strict=True):
        room = Path(bug.file).with_suffix("").parts[1]
        lines.append(f"| {room} | {bug.file} | {bug.kind} | {result or MISSED} | {took_s:.0f} |")
    counted = [result for result, _ in results if result != SKIPPED]
    found = sum(result.startswith("tests/") for result in counted)
    share, took_s = found / max(1, len(counted)), sum(took_s for _, took_s in results)
    lines += ["", f"{found} of {len(counted)} bugs found ({share:.1%}) in {took_s:.0f} s.", ""]
    return "\n".join(lines), share


if __name__ == "__main__":
    main()
