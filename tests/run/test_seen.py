"""What laps may claim, by the CPU time that the kernel counts."""

import math
import os
from pathlib import Path

import pytest

from attnbench.devices import host
from attnbench.records import Sample
from attnbench.run.race import contradiction

CPU_S = (14 + 15) / os.sysconf("SC_CLK_TCK")


def laps(cpu_s, count=4, device_s=None):
    return [Sample(1, cpu_s / count, cpu_s / count, device_s, 0.0, 0.0, 0.0)] * count


@pytest.mark.parametrize(
    ("laps", "used_s", "impossible"),
    [
        (laps(1.0), 1.1, False),
        (laps(0.01), 0.03, False),  # it waits for a core, or sleeps
        (laps(1.0), 3.9, False),  # all taken three times, under load
        (laps(1.0), math.nan, False),
        (laps(0.1), 5.0, True),
        (laps(0.1, device_s=0.1), 5.0, False),
    ],
)
def test_laps_that_cannot_be_are_told_from_those_that_can(laps, used_s, impossible):
    said = f"while the kernel counts {used_s:g} s" if impossible else ""
    assert contradiction(laps, used_s).endswith(said)
    assert bool(contradiction(laps, used_s)) == impossible


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
