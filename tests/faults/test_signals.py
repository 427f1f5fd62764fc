"""Signals to a process group, as from a terminal: one line of correct advice, no process left."""

import fcntl
import os
import random
import re
import signal
import termios
import time
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from tests.faults.real import (
    BEGUN,
    RUNS,
    SIGNALS,
    SMALL,
    Started,
    command,
    environment,
    lines,
    listening,
    nothing_left,
    server,
    start,
    until,
    workers,
)

INT, TERM, HUP = SIGNALS
LONGEST_S = 6.0  # about as long as an undisturbed sweep takes


def listens(sweep, folder):
    """The program has a handler for TERM; before that, the interpreter is still starting."""
    return masks(sweep.pid, "SigCgt") >> (TERM - 1) & 1


def masks(pid, name):
    """A signal mask of a process, from /proc."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{name}:\s+(\w+)", status)[1], 16)


def serves(sweep, folder):
    """The process that forks workers exists, but is still importing."""
    return server(sweep) is not None


def works(sweep, folder):
    """A worker exists."""
    return len(workers(sweep)) > 0


def has_begun(sweep, folder):
    return lines(folder) >= BEGUN


def has_runs(sweep, folder):
    return lines(folder) > BEGUN + 1


def reports(sweep, folder):
    return lines(folder) > BEGUN + RUNS


MOMENTS = (listens, serves, works, has_begun, has_runs, reports)
MARKS = {(INT, listens): (), (HUP, listens): (), (TERM, has_runs): pytest.mark.long}
MARKS |= {(INT, reports): pytest.mark.long}  # faults has all others


def interrupted(sweep, number, folder):
    """Sends the signal and checks how the sweep ends, at whatever moment."""
    with suppress(ProcessLookupError):
        os.killpg(sweep.pid, number)
    _, err = sweep.communicate()
    ended(sweep.returncode, err, number, folder)
    nothing_left(sweep)


def ended(code, err, number, folder):
    assert "Traceback" not in err
    if code == 0:  # it finished before the signal
        assert lines(folder) > BEGUN + RUNS
        return
    assert code == 128 + number, err
    advice = [line for line in err.splitlines() if line.startswith("attnbench: ")]
    assert len(advice) == 1, err
    assert advice[0].startswith("attnbench: interrupted; ")
    assert ("--resume" in advice[0] or "attnbench report" in advice[0]) == (lines(folder) > 0)
    if "what was measured is kept" not in advice[0]:
        assert "nothing was measured" in advice[0]
        assert lines(folder) <= BEGUN + 1


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        pytest.param(*each, marks=MARKS.get(each, pytest.mark.faults))
        for each in product(SIGNALS, MOMENTS)
    ],
)
def test_a_signal_ends_a_sweep_with_a_line_and_true_advice(tmp_path, number, moment):
    folder = tmp_path / "sweep"
    with start("sweep", *SMALL, "--out", folder) as sweep:
        until(lambda: sweep.poll() is not None or moment(sweep, folder), moment.__name__)
        interrupted(sweep, number, folder)


RANDOM = random.Random(11)
DELAYS = [(RANDOM.choice(SIGNALS), RANDOM.uniform(0, LONGEST_S)) for _ in range(60)]


@pytest.mark.faults
@pytest.mark.parametrize(("number", "later_s"), DELAYS)
def test_a_signal_ends_a_sweep_at_any_moment(tmp_path, number, later_s):
    with start("sweep", *SMALL, "--out", tmp_path / "sweep") as sweep:
        until(lambda: sweep.poll() is not None or listens(sweep, None), "a handler")
        time.sleep(later_s)  # not for an event: the signal is to fall anywhere between two of them
        interrupted(sweep, number, tmp_path / "sweep")


def test_ctrl_c_and_again_on_a_terminal(tmp_path):
    """Ctrl-C typed twice into a real terminal while the fork server imports."""
    ours, theirs = os.openpty()

    def owning():
        listening()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    sweep = Started(
        command("sweep", *SMALL, "--out", tmp_path / "sweep"),
        env=environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=owning,
    )
    os.close(theirs)
    until(lambda: sweep.poll() is not None or serves(sweep, None), "a server")
    os.write(ours, b"\x03\x03")
    sent = b""
    with suppress(OSError):  # the other end is closed
        while more := os.read(ours, 65536):
            sent += more
    os.close(ours)
    text = sent.decode().replace("^C", "").replace("\r", "")
    ended(sweep.wait(), text, signal.SIGINT, tmp_path / "sweep")
    nothing_left(sweep)


@pytest.mark.long
def test_a_sweep_under_nohup_survives_the_hangup(tmp_path):
    """A sweep started to outlive its terminal does so."""
    with start("sweep", *SMALL, "--out", tmp_path, before=["nohup"]) as sweep:
        until(lambda: sweep.poll() is not None or listens(sweep, None), "a handler")
        os.killpg(sweep.pid, HUP)
        until(lambda: sweep.poll() is not None or has_runs(sweep, tmp_path), "a run")
        os.killpg(sweep.pid, HUP)
        _, err = sweep.communicate()
    assert sweep.returncode == 0, err
    assert "Traceback" not in err
    assert lines(tmp_path) > BEGUN + RUNS
