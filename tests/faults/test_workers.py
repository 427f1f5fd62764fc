"""Workers that are killed, hang, print rubbish or die: each affects only its own case."""

import os
import re
import resource
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from attnbench.records.storage.journal import load
from tests.commands.commands import here
from tests.faults.real import (
    BEGUN,
    SIZES,
    SMALL,
    attnbench,
    complete,
    entries,
    lines,
    members,
    runs,
    said,
    server,
    start,
    until,
    workers,
)

HERE = Path(__file__).parent
ODD = HERE / "odd_mechanisms.py"
ONE = ("--lengths", "16", "--mode", "inference", "--rounds", "1", *SIZES)
MEMORY = Path("/sys/fs/cgroup/memory")
ADDRESSES = 12 << 30


def models(*names):
    return ",".join(f"{ODD}:{name}" for name in names)


def outcomes(folder):
    """Outcome and reason of each mechanism's timed case, by class name."""
    sweep = load(folder)
    assert sweep.finished
    assert sweep.warnings == ()
    names = {p.case.key: p.case.mechanism.rpartition(":")[2] for p in sweep.plan}
    return {names[r.case]: (r.outcome, r.reason) for r in sweep.runs if r.part == "time"}


@pytest.mark.long
def test_each_bad_end_is_the_outcome_of_its_case_alone(tmp_path):
    """Under an address-space limit (ulimit -v) for all processes."""
    names = ("Killed", "Segfaults", "Rubbish", "Dies", "Reserves", "Well", "Starts")
    done = attnbench(
        *("sweep", "--models", models(*names), *ONE),
        *("--out", tmp_path / "odd"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES)),
    )
    said(done, 0)
    found = outcomes(tmp_path / "odd")
    for name, number in (("Killed", 9), ("Segfaults", 11)):
        assert found[name] == ("crashed", f"the process was killed by signal {number}")
    assert found["Dies"] == ("crashed", "the process ended without an answer (exit 7): no way")
    assert found["Reserves"][0] == "oom"
    assert found["Rubbish"] == found["Well"] == ("ok", "")
    assert found["Starts"] == ("ok", "")
    # 40 for each of the model's two layers
    assert "started 80 processes that had to be ended" in " ".join(done.stderr.split())
    assert "\x1b" not in done.stdout + done.stderr
    assert "\0" not in (tmp_path / "odd" / "report.html").read_text()


@pytest.mark.long
def test_a_worker_that_hangs_times_out(tmp_path):
    limit = ("--case-timeout", "1s")
    done = here("sweep", "--models", models("Hangs"), *ONE, *limit, "--out", tmp_path)
    said(done, 0)
    outcome, reason = outcomes(tmp_path)["Hangs"]
    assert outcome == "timeout"
    assert re.fullmatch(r"no answer after \d+ s; killed", reason)


@pytest.mark.faults
def test_the_memory_limit_of_a_worker_stops_endless_allocation(tmp_path):
    said(attnbench("sweep", "--models", models("Reserves"), *ONE, "--out", tmp_path), 0)
    assert outcomes(tmp_path)["Reserves"][0] == "oom"


@pytest.mark.faults
def test_a_kill_by_the_kernel_for_memory_is_a_separate_outcome(tmp_path):
    try:
        group = Path(tempfile.mkdtemp(prefix="attnbench-test-", dir=MEMORY))
    except OSError as error:
        pytest.skip(f"no memory control group can be made here: {error}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(3 << 29))
        done = attnbench(
            *("sweep", "--models", models("Touches", "Well"), *ONE, "--out", tmp_path),
            preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
        )
        until(lambda: not (group / "cgroup.procs").read_text(), "an empty group")
    finally:
        group.rmdir()
    said(done, 0)
    assert outcomes(tmp_path) == {
        "Touches": ("oom", "the kernel killed the process, as memory ran out"),
        "Well": ("ok", ""),
    }


@pytest.mark.faults
def test_workers_killed_from_outside_cost_no_run(tmp_path):
    """Kills the workers that run after certain lines of the journal."""
    killed = []
    chosen = ("--models", models("Well"), "--lengths", "16,32,64,128", "--rounds", "1", *SIZES)
    with start("sweep", *chosen, "--out", tmp_path) as sweep:
        begun = BEGUN + 4  # there are 8 cases in place of 4
        for line in (begun, begun + 3, begun + 6):
            until(lambda line=line: lines(tmp_path) >= line, f"line {line}")
            for pid in until(lambda: workers(sweep), "a worker"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
        _, err = sweep.communicate()
    assert sweep.returncode == 0, err
    assert killed
    found = runs(tmp_path).values()
    assert {run["outcome"] for run in found} == {"ok"}, "each is tried once more"
    assert len({run["case"] for run in found}) == 4 * 2


@pytest.mark.faults
def test_what_was_killed_is_tried_again_by_resume(tmp_path):
    """And what crashed by itself is not."""
    chosen = ("--models", models("Killed", "Segfaults"), *ONE)
    said(attnbench("sweep", *chosen, "--out", tmp_path), 0)
    before = lines(tmp_path)
    said(attnbench("sweep", "--resume", tmp_path), 0)
    again = [entry for entry in entries(tmp_path)[before:] if entry.kind == "run"]
    assert [entry.data["cause"] for entry in again] == ["killed"]


@pytest.mark.faults
def test_a_sweep_outlives_the_server_that_forks_its_workers(tmp_path):
    with start("sweep", *SMALL, "--out", tmp_path) as sweep:
        until(lambda: lines(tmp_path) > BEGUN + 1, "a run")
        os.kill(server(sweep), signal.SIGKILL)
        _, err = sweep.communicate()
    assert sweep.returncode == 0, err
    until(lambda: not members(sweep), "the end of what it started")
    complete(tmp_path)
