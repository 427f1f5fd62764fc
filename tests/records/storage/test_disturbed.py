"""A journal that others replace, delete or change while a sweep writes it loses no run."""

import os
import shlex
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.errors import StoreError
from attnbench.records import Outcome, Part, Run
from attnbench.records.storage import output
from attnbench.records.storage.journal import FILE, KEPT, load
from attnbench.records.storage.locked import JournalChange, LockedFile
from attnbench.records.storage.schema import EndReason
from tests.records.storage.recorded import DATA, SWEEP, opened
from tests.records.storage.test_output import small_files

CASE = SWEEP.plan[0].case.key


def run(number):
    """A run that only this test's sweep has, by its round."""
    about = {"case": CASE, "part": Part.TIME, "outcome": Outcome.OK}
    return Run(**about, round=1000 + number, elapsed_s=1.0)


def rounds(path):
    """The rounds of the runs that a journal holds; none where it cannot be read."""
    with suppress(StoreError):
        return {run.round for run in load(path).runs}
    return set()


def replaced(file):
    other = file.with_name("other")
    other.write_bytes(DATA)
    other.replace(file)


def replaced_by_a_copy(file):
    shutil.copy(file, file.with_name("copy")).replace(file)


def deleted(file):
    file.unlink(missing_ok=True)


def folder_deleted(file):
    shutil.rmtree(file.parent, ignore_errors=True)


def folder_moved(file):
    file.parent.rename(file.parent.with_name("moved"))


def shortened(file):
    os.truncate(file, file.stat().st_size // 2)


def emptied(file):
    os.truncate(file, 0)


def overwritten(file):
    file.write_bytes(DATA)


def changed_in_place(file):
    with file.open("r+b") as stream:
        stream.seek(-20, os.SEEK_END)
        stream.write(b"x")


def continued(file):
    with file.open("ab") as stream:
        stream.write(DATA)


def linked(file):
    file.rename(file.with_name("target"))
    file.symlink_to("target")


def touched(file):
    os.utime(file, (1, 1))


def protected(file):
    file.chmod(0o400)


def also_named(file):
    os.link(file, file.with_name(f"also-{len(os.listdir(file.parent))}"))


HARMLESS = (touched, protected, also_named)
HARMFUL = {
    replaced: JournalChange.REPLACED,
    replaced_by_a_copy: JournalChange.REPLACED,
    linked: JournalChange.REPLACED,
    deleted: JournalChange.GONE,
    folder_deleted: JournalChange.GONE,
    folder_moved: JournalChange.GONE,
    shortened: JournalChange.SHORTENED,
    emptied: JournalChange.SHORTENED,
    overwritten: JournalChange.CHANGED,
    changed_in_place: JournalChange.CHANGED,
    continued: JournalChange.CHANGED,
}


WHEN = {
    "before a run": lambda journal: journal.append(run(2)),
    "at the end": lambda journal: journal.end(EndReason.FINISHED),
    "as it is closed": lambda journal: journal.close(),
}


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("disturb", HARMFUL)
def test_whatever_others_do_is_said_and_all_runs_are_kept(tmp_path, disturb, when, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path("sweep")
    journal = opened(folder)
    journal.append(*SWEEP.plan, run(0), run(1))
    disturb(folder / FILE)
    left = (folder / FILE).read_bytes() if (folder / FILE).exists() else None
    with pytest.raises(StoreError) as error:
        WHEN[when](journal)
    text = str(error.value)
    assert text.startswith(f"'sweep/{FILE}' {HARMFUL[disturb]} while a sweep wrote it; what this")
    expected = {1000, 1001, 1002} if when == "before a run" else {1000, 1001}
    assert f"({len(expected)} runs) is kept in " in text
    kept = folder / KEPT if folder.exists() else Path(f"sweep-{KEPT}")
    assert f"{str(kept)!r}" in text
    assert rounds(kept) == expected
    if left is not None:
        assert (folder / FILE).read_bytes() == left, "what others put there is theirs"
    journal.close()  # says it once
    resumed_as_told(text)


def resumed_as_told(text):
    """Does what the message says, and goes on there."""
    words = shlex.split(text.partition("in another folder: ")[2])
    assert words[:3] == ["mkdir", "NEW", "&&"]
    assert words[-4:] == ["attnbench", "sweep", "--resume", "NEW"]
    Path("NEW").mkdir()
    os.rename(*words[4:6])
    with opened("NEW") as journal:
        held = {run.round for run in journal.sweep.runs}
        journal.append(run(9))
    assert rounds("NEW") == held | {1009}


@pytest.mark.parametrize("harmless", HARMLESS)
def test_new_times_permissions_and_names_are_no_alarm(tmp_path, harmless):
    with opened(tmp_path / "sweep") as journal:
        journal.append(*SWEEP.plan, run(0))
        harmless(tmp_path / "sweep" / FILE)
        journal.append(run(1))
        harmless(tmp_path / "sweep" / FILE)
    assert rounds(tmp_path / "sweep") == {1000, 1001}
    assert not list((tmp_path / "sweep").glob("*kept*"))


def test_a_change_that_keeps_size_and_times_is_found_at_the_end(tmp_path, monkeypatch):
    """As where a file system notes times too coarsely for two writes in a row."""
    journal = opened(tmp_path)
    journal.append(*SWEEP.plan, run(0))
    monkeypatch.setattr(LockedFile, "_state", lambda self: self._seen)
    changed_in_place(tmp_path / FILE)
    journal.append(run(1))
    with pytest.raises(StoreError, match=JournalChange.CHANGED):
        journal.close()
    assert rounds(tmp_path / KEPT) == {1000, 1001}


def test_what_is_kept_replaces_nothing(tmp_path):
    for number in range(3):
        journal = opened(tmp_path)
        journal.append(*SWEEP.plan, run(number))
        deleted(tmp_path / FILE)
        with pytest.raises(StoreError, match=str(number + 1) if number else KEPT):
            journal.close()
    names = ["sweep-kept-2.jsonl", "sweep-kept-3.jsonl", KEPT]
    assert sorted(os.listdir(tmp_path)) == names
    assert [rounds(tmp_path / name) for name in names] == [{1001}, {1002}, {1000}]


def test_a_sweep_without_a_run_has_nothing_to_keep(tmp_path):
    journal = opened(tmp_path)
    deleted(tmp_path / FILE)
    with pytest.raises(StoreError, match="nothing was measured until then; sweep again, or choose"):
        journal.append(*SWEEP.plan)
    assert os.listdir(tmp_path) == []


def test_where_nothing_can_be_written_it_is_said_and_no_part_is_left(tmp_path, monkeypatch):
    places = tmp_path / "temporary"
    places.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(places))
    journal = opened(tmp_path / "sweep")
    journal.append(*SWEEP.plan, run(0))
    deleted(tmp_path / "sweep" / FILE)
    with small_files(100), pytest.raises(StoreError) as error:
        journal.close()
    assert "(1 run) is lost, for nothing can be written: " in str(error.value)
    assert str(error.value).count("file too large") == 3
    assert not list(tmp_path.rglob("*kept*"))
    kept = output.keep(tmp_path / "a", b"one")
    assert output.keep(tmp_path / "a", b"two") != kept
    assert kept.read_bytes() == b"one"


def test_an_append_that_could_not_be_undone_is_no_disturbance(tmp_path, monkeypatch):
    journal = opened(tmp_path)
    journal.append(*SWEEP.plan, run(0))

    def refused(*of):
        raise OSError("input/output error")

    with monkeypatch.context() as system:
        system.setattr(os, "fsync", refused)
        system.setattr(os, "ftruncate", refused)
        with pytest.raises(StoreError, match="cannot write"):
            journal.append(run(1))
    journal.close()
    assert rounds(tmp_path) >= {1000}


def test_an_append_that_ctrl_c_ends_at_its_last_step_has_left_no_trace(tmp_path, monkeypatch):
    journal = opened(tmp_path)
    journal.append(*SWEEP.plan, run(0))
    state = LockedFile._state
    with monkeypatch.context() as system:
        # the second look at the file is that after it was written
        looks = iter([state, interrupted])
        system.setattr(LockedFile, "_state", lambda self: next(looks)(self))
        with pytest.raises(KeyboardInterrupt):
            journal.append(run(1))
    journal.append(run(2))
    journal.close()
    assert rounds(tmp_path) == {1000, 1002}


def test_a_file_that_is_cut_while_it_is_appended_to_is_noticed_at_the_next_append(
    tmp_path, monkeypatch
):
    journal = opened(tmp_path)
    journal.append(*SWEEP.plan, run(0))
    with monkeypatch.context() as system:
        system.setattr(os, "fsync", lambda fd: os.truncate(tmp_path / FILE, 100))
        journal.append(run(1))
    with pytest.raises(StoreError, match=r"was shortened .* \(3 runs\) is kept"):
        journal.append(run(2))
    assert rounds(tmp_path / KEPT) == {1000, 1001, 1002}


def test_an_append_that_fails_adds_nothing_to_a_file_that_was_cut_meanwhile(tmp_path, monkeypatch):
    journal = opened(tmp_path)
    journal.append(*SWEEP.plan, run(0))

    def cut_and_interrupted(descriptor):
        os.truncate(tmp_path / FILE, 100)
        raise KeyboardInterrupt

    with monkeypatch.context() as system:
        system.setattr(os, "fsync", cut_and_interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.append(run(1))
    assert (tmp_path / FILE).stat().st_size == 100
    with pytest.raises(StoreError, match=r"was shortened .* \(1 run\) is kept"):
        journal.end(EndReason.INTERRUPTED)
    assert rounds(tmp_path / KEPT) == {1000}


def interrupted(file):
    raise KeyboardInterrupt


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(["append", *HARMLESS, *HARMFUL]), max_size=12), st.booleans())
def test_no_run_is_lost_whatever_happens_in_whatever_order(events, resumes):
    """Each run is in the sweep's own journal, in one that was moved, or in one that was kept."""
    with TemporaryDirectory() as above:
        folder, stored = Path(above) / "sweep", set()
        if resumes:
            with opened(folder) as journal:
                journal.append(*SWEEP.plan, run(0))
                stored.add(1000)
        journal = opened(folder)
        journal.append(*SWEEP.plan)
        harmed = False
        with suppress(StoreError):
            for number, event in enumerate(events, start=1):
                if event == "append":
                    stored.add(1000 + number)
                    journal.append(run(number))
                    assert not harmed, "it must have been noticed"
                elif (folder / FILE).exists() and not (folder / FILE).is_symlink():
                    event(folder / FILE)
                    harmed = harmed or event in HARMFUL
            journal.close()
            assert not harmed, "it must have been noticed at the end"
        places = [folder] if not harmed else list(Path(above).rglob("*kept*.jsonl"))
        assert set().union(*map(rounds, places)) >= stored
        if not harmed:
            assert rounds(folder) == stored
