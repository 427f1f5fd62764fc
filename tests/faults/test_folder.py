"""A folder that fills up, becomes read-only or is used by two sweeps at once."""

import json
import os
import signal
import subprocess
from contextlib import contextmanager

import pytest

from attnbench.records.storage.journal import load
from tests.faults.real import (
    BEGUN,
    RUNS,
    SMALL,
    attnbench,
    complete,
    entries,
    lines,
    nothing_left,
    runs,
    said,
    server,
    start,
    until,
)

pytestmark = pytest.mark.faults


def inside(before, *words):
    """The output of a command in a mount namespace."""
    return subprocess.run(
        [*before, *map(str, words)], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("pages", [1, 3, 4])  # the first is too small to begin
def test_a_disk_that_fills_up_stops_the_sweep_with_a_line(mounts, tmp_path, pages):
    disk = tmp_path / "disk"
    disk.mkdir()
    before = mounts(f"mount -t tmpfs -o size={pages * 4}k tmpfs '{disk}'")
    folder = disk / "sweep"
    done = attnbench("sweep", *SMALL, "--out", folder, before=before)
    said(done, 2, "cannot write", "no space left on device")
    kept = entries_of(before, folder, tmp_path)
    assert len(kept) < RUNS
    report = attnbench("report", folder, before=before)
    assert report.returncode == (2 if kept else report.returncode)
    assert "Traceback" not in report.stderr
    inside(before, "mount", "-o", "remount,size=16m", disk)
    empty = subprocess.run([*before, "test", "-s", folder / "sweep.jsonl"], check=False).returncode
    into = "--out" if empty else "--resume"
    said(attnbench("sweep", *SMALL, into, folder, before=before), 0)
    assert kept.items() <= entries_of(before, folder, tmp_path).items()
    complete(tmp_path / "copy")


def entries_of(before, folder, tmp_path):
    """The runs of a journal inside a mount namespace, read from a copy outside."""
    (tmp_path / "copy").mkdir(exist_ok=True)
    shown = [*before, "cat", str(folder / "sweep.jsonl")]
    text = subprocess.run(shown, capture_output=True, text=True, check=False).stdout
    (tmp_path / "copy" / "sweep.jsonl").write_text(text)
    return runs(tmp_path / "copy") if text else {}


@contextmanager
def closed(path, folder):
    """A sweep that ended after a file or folder was made immutable during its runs."""
    process = start("sweep", *SMALL, "--out", folder)
    try:
        until(lambda: lines(folder) > BEGUN + 2 or process.poll() is not None, "a run")
        done = subprocess.run(["chattr", "+i", path], capture_output=True, text=True, check=False)
        _, process.stderr = process.communicate()
        if done.returncode:
            pytest.skip(f"nothing can be made immutable here: {done.stderr.strip()}")
        yield process
    finally:
        process.kill()
        subprocess.run(["chattr", "-i", path], capture_output=True, check=False)


def test_a_journal_that_is_closed_in_the_middle_stops_the_sweep_with_a_line(tmp_path):
    """The file is made immutable during the sweep, as permission bits do not restrict root."""
    with closed(tmp_path / "sweep.jsonl", tmp_path) as process:
        said(process, 2, "cannot write", "operation not permitted")
        kept = runs(tmp_path)
        again = attnbench("sweep", *SMALL, "--resume", tmp_path)
        said(again, 2, "cannot write", "not permitted; change its permissions and --resume")
    assert load(tmp_path).warnings == ()
    said(attnbench("sweep", *SMALL, "--resume", tmp_path), 0)
    assert kept.items() <= complete(tmp_path).items()


def test_a_folder_that_is_closed_before_the_report_loses_nothing(tmp_path):
    """The folder accepts no further files once the journal is open in it."""
    with closed(tmp_path, tmp_path) as process:
        said(process, 2, "cannot write", "the journal is intact")
    complete(tmp_path)
    said(attnbench("report", tmp_path), 0)


def test_a_read_only_file_system_is_reported(mounts, swept):
    before = mounts(f"mount --bind '{swept}' '{swept}' && mount -o remount,bind,ro '{swept}'")
    for words in (
        ["report", swept],
        ["sweep", *SMALL, "--resume", swept],
        ["sweep", *SMALL, "--out", swept / "below"],
    ):
        said(attnbench(*words, before=before), 2, "read-only file system")
    complete(swept)


def test_of_two_sweeps_into_one_folder_one_goes_on(tmp_path):
    both = [start("sweep", *SMALL, "--out", tmp_path) for _ in range(2)]
    errors = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 2]
    lost = errors[[process.returncode for process in both].index(2)]
    assert "already holds a sweep" in lost or "is being written by" in lost
    assert "Traceback" not in "".join(errors)
    complete(tmp_path)


def test_nobody_resumes_a_sweep_that_runs(tmp_path):
    with start("sweep", *SMALL, "--out", tmp_path) as process:
        until(lambda: lines(tmp_path) > 7, "a run")
        process.send_signal(19)  # a stopped process still owns the folder
        done = attnbench("sweep", *SMALL, "--resume", tmp_path)
        process.send_signal(18)
        _, err = process.communicate()
    said(done, 2, f"is being written by process {process.pid};")
    assert process.returncode == 0, err
    complete(tmp_path)
    assert json.dumps([entry.kind for entry in entries(tmp_path)]).count("session") == 1


@pytest.mark.parametrize("how", ["replaced", "deleted", "shortened"])
@pytest.mark.parametrize("stops", [False, True])
def test_a_journal_that_others_take_away_in_mid_sweep_stops_it_and_keeps_its_runs(
    swept, tmp_path, how, stops
):
    """Whether the sweep goes on to its end or somebody presses Ctrl-C."""
    folder = tmp_path / "sweep"
    other = (swept / "sweep.jsonl").read_bytes()
    with start("sweep", *SMALL, "--out", folder) as process:
        until(lambda: lines(folder) > BEGUN + 1 or process.poll() is not None, "two runs")
        stored = runs(folder)
        until(lambda: len(runs(folder)) > len(stored) or process.poll() is not None, "one more")
        process.send_signal(signal.SIGSTOP)
        if how == "replaced":
            (tmp_path / "other").write_bytes(other)
            (tmp_path / "other").rename(folder / "sweep.jsonl")
        elif how == "deleted":
            (folder / "sweep.jsonl").unlink()
        else:
            os.truncate(folder / "sweep.jsonl", 100)
        if stops:
            process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate()
    process.stderr = err
    said(process, 2, how, "is kept in", "attnbench sweep --resume NEW")
    assert out == "", "it reports nothing"
    assert not (folder / "report.html").exists()
    if how == "replaced":
        assert (folder / "sweep.jsonl").read_bytes() == other
    new = tmp_path / "new"
    new.mkdir()
    (folder / "sweep-kept.jsonl").rename(new / "sweep.jsonl")
    assert stored.items() <= runs(new).items()
    said(attnbench("sweep", "--resume", new), 0)
    assert stored.items() <= complete(new).items()


def test_temporary_folders_of_a_killed_sweep_are_removed_by_the_next_command(tmp_path):
    """Also where the program that forks its processes is killed with it, and cannot clean up."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {"TMPDIR": str(temporary)}
    with start("sweep", *SMALL, "--out", tmp_path / "first", env=env) as sweep:
        until(lambda: lines(tmp_path / "first") > BEGUN, "a run")
        with start("sweep", *SMALL, "--out", tmp_path / "second", env=env) as beside:
            forks = server(sweep)
            os.kill(forks, signal.SIGSTOP)
            sweep.kill()
            left = list(temporary.iterdir())
            os.kill(forks, signal.SIGKILL)
            err = beside.communicate()[1]
        sweep.communicate()
    nothing_left(sweep)
    assert beside.returncode == 0, err
    assert left
    complete(tmp_path / "second")
    said(attnbench("sweep", *SMALL, "--resume", tmp_path / "first", env=env), 0)
    assert list(temporary.iterdir()) == []
