"""SIGKILL to the sweep at any moment: no child survives, no run is lost or recorded twice."""

import os
import random
import signal
import time

import pytest

from tests.faults.real import (
    BEGUN,
    SMALL,
    attnbench,
    complete,
    lines,
    nothing_left,
    said,
    start,
    until,
)

WITHIN_S = 0.5  # about as long as a run of a small case takes


def points(count, seed):
    """Random moments anywhere in a sweep: a line of the journal, and a delay after it."""
    rng = random.Random(seed)
    return [(rng.choice((0, 1, *range(BEGUN, 20))), rng.uniform(0, WITHIN_S)) for _ in range(count)]


def killed(folder, line, later_s):
    """Kills a sweep at some point and waits until none of its processes is left."""
    temporary = folder.with_name("temporary")
    temporary.mkdir(exist_ok=True)
    process = start("sweep", *SMALL, *into(folder), env={"TMPDIR": str(temporary)})
    try:
        until(lambda: lines(folder) >= line or process.poll() is not None, f"line {line}")
        time.sleep(later_s)  # not for an event: the kill is to fall anywhere between two of them
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    nothing_left(process)
    assert line < BEGUN or not list(temporary.iterdir())
    _, err = process.communicate()
    assert "Traceback" not in err


def into(folder):
    """`--resume` or, where nothing began, `--out`."""
    file = folder / "sweep.jsonl"
    return "--resume" if file.exists() and file.stat().st_size > 0 else "--out", folder


@pytest.mark.long
def test_a_sweep_killed_twice_is_completed(tmp_path):
    folder = tmp_path / "killed"
    killed(folder, BEGUN + 2, 0.1)
    killed(folder, lines(folder) + 2, 0.2)
    said(attnbench("sweep", *SMALL, "--resume", folder), 0)
    complete(folder)


@pytest.mark.faults
@pytest.mark.parametrize(("line", "later_s"), points(50, seed=17))
def test_a_sweep_killed_anywhere_is_completed(tmp_path, line, later_s):
    folder = tmp_path / "killed"
    killed(folder, line, later_s)
    said(attnbench("sweep", *SMALL, *into(folder)), 0)
    complete(folder)


@pytest.mark.faults
def test_a_sweep_stopped_before_its_first_line_begins_again(tmp_path):
    (tmp_path / "sweep.jsonl").touch()
    done = attnbench("sweep", *SMALL, "--resume", tmp_path)
    said(done, 2, "is empty: its sweep never began; repeat it")
    said(attnbench("sweep", *SMALL, "--out", tmp_path), 0)
    complete(tmp_path)
