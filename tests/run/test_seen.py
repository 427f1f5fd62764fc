"""What laps may claim, by the CPU time that the kernel counts."""

import math
import os
import time
from pathlib import Path

import pytest

from attnbench.devices import host
from attnbench.records import Sample
from attnbench.run.race import contradiction


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


def test_cpu_time_is_that_of_the_process_unless_the_kernel_hides_it(monkeypatch):
    begun = host.user_s(os.getpid())
    while time.process_time() < begun + 0.5:
        pass
    assert host.user_s(os.getpid()) - begun >= 0
    assert math.isnan(host.user_s(1 << 22))
    monkeypatch.setattr(host, "BELIEVED_S", 0.0)
    assert math.isnan(host.user_s(os.getpid())), "counts that cannot be true"


def test_no_duration_is_read_from_a_clock_that_can_be_set():
    texts = {path: path.read_text() for path in Path(host.__file__).parents[1].rglob("*.py")}
    wall = ("time.time(", "time_ns(", "from time import")
    assert not [path for path, text in texts.items() if any(word in text for word in wall)]
