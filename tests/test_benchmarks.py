"""Every benchmark runs, in small, and makes its page; they are long, or faults.

What they find is stored under `reports/`.
"""

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.benchmarks import laps
from tests.commands.commands import python

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "tests" / "benchmarks"
SIMULATING = {
    "configurations": (),
    "coverage": ("--sweeps", "10"),
    "truth": ("--worlds", "3"),
}
MEASURING = {
    "speed": ("--models", "fastformer,star_transformer", "--lengths", "64", "--minutes", "0.3"),
    "stopwatch": ("--models", "fastformer", "--lengths", "128", "--rounds", "1"),
}
LONG = {
    "again": ("--ratios", "1", "--lengths", "128"),
    "layout": ("--sweeps", "2", "--processes", "2", "--rounds", "2"),
}


def page(benchmark, *options):
    """What a benchmark prints."""
    return python("-W", "ignore", "-m", f"tests.benchmarks.{benchmark}", *options, cwd=ROOT).stdout


def test_every_benchmark_loads():
    loaded = [
        import_module(f"tests.benchmarks.{path.stem}") for path in BENCHMARKS.glob("[a-z]*.py")
    ]
    assert len(loaded) > 5


@pytest.mark.parametrize(
    "benchmark",
    [
        *(pytest.param(name, marks=pytest.mark.long) for name in SIMULATING | MEASURING),
        *(pytest.param(name, marks=pytest.mark.faults) for name in LONG),
    ],
)
def test_a_benchmark_makes_its_page(benchmark):
    made = page(benchmark, *{**SIMULATING, **MEASURING, **LONG}[benchmark])
    assert made.startswith("# ")
    assert "Made by `python" in made
    assert re.search(r"\d of \d+ intervals contain|^\| .*\d.*\|$", made, re.MULTILINE)


def test_the_share_of_laps_of_a_stored_sweep_is_that_of_its_journal():
    whole_s, laps_s, timed_s, memory_s = laps.shares(ROOT / "reports" / "cpu-fig2")
    assert 0 < memory_s < laps_s < timed_s
    assert timed_s < whole_s


@pytest.mark.faults
def test_the_gates_benchmark_goes_on_where_it_was_stopped(tmp_path):
    options = ("--injected", "1", "--kinds", "+10 %", "--neighbours", "0", "--out", str(tmp_path))
    first = page("gate", "--trials", "1", *options)
    assert first.count("/2 ") == 2, "a verdict without extra work, and one with it"
    assert page("gate", "--trials", "1", *options) == ""
    assert "| nothing | 1 |" in (tmp_path / "README.md").read_text()


@pytest.mark.long
def test_the_map_is_a_page_of_two_stored_sweeps():
    reports = ROOT / "reports"
    made = page("map", str(reports / "cpu-exponents"), str(reports / "cpu-decode"))
    assert made.startswith("# The map of 42 mechanisms\n")
    (row,) = (line for line in made.splitlines() if line.startswith("| Gated DeltaNet → |"))
    assert row.split(" | ")[1:3] == ["all", "from 3,139 [2,048, 4,096]"]
    assert "16,384, 32,768 (of 42 measured)" in made
    assert "](map.png)" in made
