"""A stranger adds one thing in one place; each is added to a copy of the package, and works.

A further device is added in `test_device.py`.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "attnbench"
FIGURE = '''"""A figure for a test."""

from matplotlib.figure import Figure


def parameters_figure(cases):
    figure = Figure()
    figure.subplots().bar(cases["series"], cases["parameters"])
    return figure
'''
VERB = '''"""`attnbench hello`: greet."""


def hello() -> None:
    """Greet."""
    print("hello")
'''

OPTION = """    note: str = TIME(
        "", metavar="TEXT", read=option.verbatim, help="A remark to store with the sweep."
    )
"""

PACKAGE = '''"""numpy: nothing of its own."""

from types import MappingProxyType

from attnbench.mechanisms import local
from attnbench.peers import Peer


class Local(Peer, local.Local):
    package = "numpy"
    module = "numpy"


FORMS = MappingProxyType({"local": Local})
'''


class Copy:
    """The package in a folder, and its command line there."""

    def __init__(self, folder):
        self.folder = folder
        self.package = Path(shutil.copytree(ROOT, folder / "attnbench"))

    def insert(self, file, after, text):
        """Text behind other text that stands once in a file."""
        path = self.package / file
        source = path.read_text()
        assert source.count(after) == 1, f"{file} has {after!r} {source.count(after)} times"
        path.write_text(source.replace(after, after + text))

    def run(self, *arguments):
        command = [sys.executable, "-m", "attnbench", *arguments]
        env = {**os.environ, "PYTHONPATH": str(self.folder)}
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def sweep(self, models, *more):
        """The rows of `cases.csv` of a small sweep into the folder `s`."""
        sizes = ("--lengths", "16,32", "--tokens", "32", "--width", "16", "--heads", "2")
        mode = ("--level", "attention", "--mode", "inference", "--quick")
        self.run("sweep", "--models", models, *sizes, *mode, "--out", "s", *more)
        with open(self.folder / "s" / "cases.csv", newline="") as stream:
            return list(csv.DictReader(stream))


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def test_a_further_mechanism_is_one_file(copy):
    source = (copy.package / "mechanisms" / "local.py").read_text()
    new = source.replace('"local"', '"nearby"').replace("Local", "Nearby")
    (copy.package / "mechanisms" / "nearby.py").write_text(new)
    assert '"name": "nearby"' in copy.run("models", "--json")
    assert {row["mechanism"] for row in copy.sweep("nearby")} == {"nearby"}


def test_a_further_metric_is_one_row_and_the_line_that_measures_it(copy):
    row = '    _recorded("longest_s", "longest", Unit.SECONDS, "the longest iteration"),\n'
    copy.insert("metrics.py", "ROWS = (\n", row)
    copy.insert(
        "measure/worker.py", '"warmup_s": spent_s(warm), ', '"longest_s": spent_s(warm[:1]), '
    )
    assert all(float(row["longest_s"]) > 0 for row in copy.sweep("local"))


def test_a_further_figure_is_one_function_and_the_line_that_yields_it(copy):
    (copy.package / "render" / "parameters.py").write_text(FIGURE)
    copy.insert(
        "render/page.py",
        "    yield from _costs(cases, tokens, size, analysis.local_slopes if slopes else None)\n",
        '    yield "parameters", parameters_figure(cases)\n',
    )
    copy.insert(
        "render/page.py",
        "from attnbench.render.grid import Table\n",
        "from attnbench.render.parameters import parameters_figure\n",
    )
    copy.sweep("local")
    assert (copy.folder / "s" / "parameters.png").read_bytes().startswith(b"\x89PNG")
    assert "parameters" in (copy.folder / "s" / "report.html").read_text()


def test_a_further_verb_is_one_file_and_its_name_among_the_verbs(copy):
    (copy.package / "cli" / "hello.py").write_text(VERB)
    copy.insert("cli/verbs.py", "    doctor,\n", "    hello,\n")
    copy.insert("cli/verbs.py", "        doctor.doctor,\n", "        hello.hello,\n")
    assert copy.run("hello") == "hello\n"
    assert "hello" in copy.run("--help")


def test_a_further_option_is_one_field_and_the_field_that_it_fills(copy):
    copy.insert("workloads/asked.py", 'inputs and order.",\n    )\n', OPTION)
    copy.insert("records.py", "# None: max(1, tokens // N)", '\n    note: str = ""')
    copy.insert(
        "workloads/requests.py", "        causal=asked.causal,\n", "        note=asked.note,\n"
    )
    assert "--note" in copy.run("sweep", "--help")
    (copy.folder / "mine.toml").write_text('note = "before the repair"\n')
    copy.sweep("local", "--config", "mine.toml")
    head = (copy.folder / "s" / "sweep.jsonl").read_text().splitlines()[0]
    assert json.loads(head)["data"]["request"]["note"] == "before the repair"


def test_a_further_package_is_one_file(copy):
    (copy.package / "peers" / "numpy.py").write_text(PACKAGE)
    assert {row["form"] for row in copy.sweep("local:eager,local:numpy")} == {"eager", "numpy"}
    assert "numpy" in copy.run("models", "local")
