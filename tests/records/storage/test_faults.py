"""What stops a sweep, for real: a second writer, kill -9, a full disk, a folder that is closed."""

import errno
import os
import random
import subprocess
import sys

import pytest

from attnbench.errors import StoreError, SweepBusy
from attnbench.records import Outcome, Part, Run
from attnbench.records.storage.journal import FILE, TORN, load
from attnbench.records.storage.resuming import completed_runs
from attnbench.records.storage.schema import EndReason
from tests.records.storage.recorded import SMALL, SWEEP, entries, opened
from tests.records.storage.test_output import small_files

ROUNDS = 60
WRITES = """
import sys
from pathlib import Path
from tests.records.storage.test_faults import written
for number in written(Path(sys.argv[1])):
    print(number, flush=True)
"""


def written(folder):
    """The number of each run that the sweep lacked, once it is on the disk."""
    case = SWEEP.plan[0]
    with opened(folder) as journal:
        journal.append(case)
        for number in sorted(
            {*range(ROUNDS)} - {run.round for run in completed_runs(journal.sweep)}
        ):
            about = {"case": case.case.key, "part": Part.TIME, "outcome": Outcome.OK}
            # lines of many pages, so that a kill can fall into the middle of one
            journal.append(Run(**about, round=number, notes={"long": "x" * 30_000}, elapsed_s=1.0))
            yield number
        journal.end(EndReason.FINISHED)


def test_two_writers_never_write_one_folder(tmp_path):
    with opened(tmp_path):
        with pytest.raises(SweepBusy, match=f"is being written by process {os.getpid()};"):
            opened(tmp_path)
        assert load(tmp_path).name == tmp_path.name
    opened(tmp_path).close()


def test_a_killed_writer_loses_at_most_the_run_in_flight(tmp_path):
    rng, acknowledged = random.Random(5), set()
    command = [sys.executable, "-c", WRITES, str(tmp_path)]
    for _ in range(4):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            for _ in range(rng.randrange(1, 9)):
                acknowledged.add(int(writer.stdout.readline()))
            writer.kill()
            acknowledged |= {int(line) for line in writer.stdout if line.endswith("\n")}
        sweep = load(tmp_path)
        assert acknowledged <= {run.round for run in sweep.runs}
        assert sweep.warnings in ((), (TORN,))
    assert not acknowledged & {*written(tmp_path)}
    sweep = load(tmp_path)
    assert (sweep.finished, sweep.warnings) == (True, ())
    assert [run.round for run in sweep.runs] == list(range(ROUNDS))
    assert sum(entry.kind == "run" for entry in entries(tmp_path)) == ROUNDS


@pytest.mark.parametrize("limit", [200_000, 200_001, 263_017])
def test_a_full_disk_leaves_a_journal_that_can_be_resumed(tmp_path, limit):
    said, numbers = "file too large; raise the file size limit and --resume", list[int]()
    with pytest.raises(StoreError, match=said), small_files(limit):
        numbers.extend(written(tmp_path))
    kept = [run.round for run in load(tmp_path).runs]
    assert kept == numbers
    assert kept == list(range(len(kept)))
    assert load(tmp_path).warnings == ()
    assert (tmp_path / FILE).stat().st_size <= limit
    assert [*written(tmp_path)] == list(range(len(kept), ROUNDS))


def test_a_journal_is_a_regular_file(tmp_path):
    """To open a pipe waits for whoever writes it, and a link leads to another sweep's folder."""
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(StoreError, match="no sweep in"):
        load(tmp_path)
    with pytest.raises(StoreError, match=r"sweep.jsonl is not a regular file; move .* or"):
        opened(tmp_path)
    (tmp_path / FILE).rename(tmp_path / "pipe")
    (tmp_path / "other").write_bytes(SMALL)
    (tmp_path / FILE).symlink_to("other")
    assert load(tmp_path).warnings == ()
    with pytest.raises(StoreError, match=r"remove the symbolic link and --resume"):
        opened(tmp_path)
    assert (tmp_path / "other").read_bytes() == SMALL


def test_a_file_that_cannot_be_locked_is_refused(tmp_path, monkeypatch):
    """Else two sweeps might write it at once."""

    def flock(*how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", flock)
    said = "cannot write .*: no locks available; choose a file system that has locks, or choose"
    with pytest.raises(StoreError, match=said):
        opened(tmp_path)
