"""The examples of `reports/examples` run as they stand, each with a small budget."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "reports" / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.sh"))
TIMEOUT_S = 500.0


def run(folder, *command, budget="25s"):
    """What an example prints. Fails with all of it where it does not end with 0."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "BUDGET": budget, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def examples(tmp_path):
    """The files of the examples, in a folder without anything else."""
    for path in EXAMPLES.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_each_example_is_listed_and_has_its_files():
    listed = (EXAMPLES / "README.md").read_text()
    assert all(
        f"]({path.name})" in listed for path in EXAMPLES.iterdir() if path.name != "README.md"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "budget", "words"),
    [
        ("own_module.sh", "25s", ("GatedMean", "What the sweep found", "report.html")),
        ("two_sweeps.sh", "25s", ("GatedMean",)),
        # what a verdict needs is tried in full, also on a busy machine
        ("kernel.sh", "3m", ("fused as transformer", "NOT right")),
        ("gate.sh", "3m", ("shop.code:index", "slower")),
    ],
)
def test_a_script_runs_as_it_stands(script, budget, words, examples):
    printed = run(examples, "sh", script, budget=budget)
    assert all(word in printed for word in words), printed


def test_every_script_is_tested():
    marks = test_a_script_runs_as_it_stands.pytestmark
    (cases,) = (mark.args[1] for mark in marks if mark.name == "parametrize")
    assert [script for script, *_ in sorted(cases)] == SCRIPTS


@pytest.mark.long
def test_the_cells_of_the_notebook_run(examples):
    cells = json.loads((examples / "notebook.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    # the last expression of each cell is shown, as in a notebook
    shown = f"""
import ast
for text in {code!r}:
    *lines, last = ast.parse(text).body
    exec(compile(ast.Module(lines, []), "cell", "exec"), globals())
    if isinstance(last, ast.Expr):
        print(eval(compile(ast.Expression(last.value), "cell", "eval"), globals()))
    else:
        exec(compile(ast.Module([last], []), "cell", "exec"), globals())
"""
    printed = run(examples, sys.executable, "-c", shown)
    assert "ratio" in printed
    assert (examples / "memory.pdf").read_bytes().startswith(b"%PDF")
