"""What laps may claim, by what their parent saw meanwhile."""

import math
import os
from pathlib import Path

import pytest

from attnbench.devices import host
from attnbench.records import Sample
from attnbench.run.seen import ObservedTimes, contradiction

CPU_S = (14 + 15) / os.sysconf("SC_CLK_TCK")


def laps(wall_s, cpu_s, count=4):
    return [Sample(1, wall_s / count, cpu_s / count, None, 0.0, 0.0, 0.0)] * count


@pytest.mark.parametrize(
    ("laps", "seen", "said"),
    [
        (laps(1.0, 1.0), ObservedTimes(waited_s=1.1, used_s=1.1), ""),
        # it waits for a core, or sleeps
        (laps(1.0, 0.01), ObservedTimes(waited_s=1.1, used_s=0.03), ""),
        # all taken three times, under load
        (laps(1.0, 1.0), ObservedTimes(waited_s=60.0, used_s=3.9, user_s=3.9), ""),
        # pages faulted
        (laps(1.0, 1.0), ObservedTimes(waited_s=60.0, used_s=40.0, user_s=1.1), ""),
        (laps(1.0, 1.0), ObservedTimes(waited_s=1.1, used_s=math.nan, user_s=math.nan), ""),
        (
            laps(1.0, 1.0),
            ObservedTimes(waited_s=0.9, used_s=1.0),
            "1 s, for which its parent waited 0.9 s",
        ),
        (
            laps(0.1, 0.1),
            ObservedTimes(waited_s=5.0, used_s=5.0, user_s=5.0),
            "of which the kernel counts 5 s",
        ),
        (
            laps(1.0, 1.0),
            ObservedTimes(waited_s=1.1, used_s=0.1),
            "of which the kernel counts 0.1 s",
        ),
        (
            laps(0.01, 99.0),
            ObservedTimes(waited_s=99.0, used_s=99.0, user_s=99.0),
            "more than all cores have",
        ),
    ],
)
def test_laps_that_cannot_be_are_told_from_those_that_can(laps, seen, said):
    assert said in contradiction(laps, seen)
    assert bool(said) == bool(contradiction(laps, seen))


def test_what_computes_without_a_question_is_noted():
    assert ObservedTimes(rested_s=9.0, idle_s=0.1).added_to({"odd": "b"}) == {"odd": "b"}
    busy = ObservedTimes(rested_s=9.0, idle_s=5.0)
    said = "computed for 5 s while others took their turns"
    assert busy.added_to({"a": "b"}) == {"a": "b", "odd": said}
    assert busy.added_to({"odd": "b"}) == {"odd": f"b; {said}"}


def test_where_the_kernel_does_not_say_the_laps_are_noted_as_unchecked():
    assert ObservedTimes(used_s=math.nan).added_to({"a": "b"}).keys() == {"a", "unchecked"}


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """The files of a process 77, whose name is unusual."""
    for pid, name in ((os.getpid(), "self"), (77, "77")):
        (tmp_path / name).mkdir()
        write(tmp_path / name, pid)
    monkeypatch.setattr(host.time, "process_time", lambda: CPU_S + 0.01)
    return tmp_path


def write(folder, pid, user=14, system=15):
    fields = " ".join(map(str, [*range(4, 14), user, system, *range(16, 53)]))
    (folder / "stat").write_text(f"{pid} (a) b) S {fields}\n")


def test_cpu_time_is_that_in_user_and_in_kernel_mode(proc):
    assert host.process_s(77, proc) == CPU_S
    assert math.isnan(host.process_s(78, proc))


def test_the_files_of_another_namespace_say_nothing(proc):
    write(proc / "self", os.getpid() + 1)
    assert math.isnan(host.process_s(77, proc))
    assert math.isnan(host.process_s(77, Path("/nowhere")))


def test_files_that_count_nothing_say_nothing(proc):
    write(proc / "self", os.getpid(), user=0, system=0)
    assert math.isnan(host.process_s(77, proc))
