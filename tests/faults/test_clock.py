"""Jumps of the wall clock during a sweep affect neither durations nor budgets."""

import os
from pathlib import Path

import pytest

from tests.faults.real import SMALL, complete, entries, lines, start, until

pytestmark = pytest.mark.faults

FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


def libfaketime():
    """The path of the library that fakes a program's clock; LIBFAKETIME overrides it."""
    named = os.environ.get("LIBFAKETIME")
    usual = [Path(folder, "faketime", "libfaketime.so.1") for folder in FOLDERS]
    for path in [Path(named)] if named else usual:
        if path.is_file():
            return str(path)
    pytest.skip("libfaketime is not installed; LIBFAKETIME may name it")


def test_a_clock_that_is_set_back_and_forth_changes_no_duration(tmp_path):
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    fake = {
        "LD_PRELOAD": libfaketime(),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    folder = tmp_path / "sweep"
    with start("sweep", *SMALL, "--budget", "10m", "--out", folder, env=fake) as process:
        for line, jump in ((8, "-400d"), (11, "+10y"), (14, "-1h")):
            until(lambda line=line: lines(folder) >= line, f"line {line}")
            clock.write_text(jump + "\n")
        _, err = process.communicate()
    assert process.returncode == 0, err
    assert "over budget" not in err
    found = complete(folder)
    assert all(0 < run["elapsed_s"] < 300 for run in found.values())
    walls = [sample[1] for run in found.values() for sample in run["samples"]]
    assert walls
    assert all(0 < wall < 60 for wall in walls)
    years = [entry.at[:4] for entry in entries(folder)]
    assert len(set(years)) == 3, "the jumps did not happen"
    assert years != sorted(years)
