"""Sentences on a machine: by what it times, and what makes its times noisy."""

from dataclasses import replace

import pytest

from attnbench.devices.finding import find
from attnbench.records import Clock
from attnbench.report.machine import clock_of, noise_warnings
from tests import sweeps

OTHERS = "other processes compute here; a process gets {} % of the time it needs; "


QUOTA = "a CPU quota of 0.5 cores (of this container or service) stops it"


EXPECT = "a process gets {} % of the time it needs; expect about {} % of what 300 s"


MACHINE = sweeps.environment(cores=2, threads=2, load=0.1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"share": 0.5}, [OTHERS.format(50) + "times will be noisy"]),
        ({"cores": 1, "load": 0.0}, ["2 threads share 1 core; try --threads 1"]),
        ({"share": 0.9, "threads": 1}, []),
        ({"share": 0.5, "threads": 1, "quota_cores": 0.5}, [QUOTA + "; " + EXPECT.format(50, 50)]),
        (
            {"share": 0.25, "threads": 1, "quota_cores": 0.5},
            [f"{QUOTA}, and other processes compute here; " + EXPECT.format(25, 20)],
        ),
        ({"share": 0.34, "threads": 1}, [OTHERS.format(34) + "expect about 30 % of what 300 s"]),
    ],
)
def test_what_makes_times_noisy_is_reported(changes, words):
    machine = replace(MACHINE, **changes)
    said = list(noise_warnings(machine, find("cpu").host_clock(machine.threads), 300.0))
    assert len(said) == len(words)
    assert all(text.startswith(word) for text, word in zip(said, words, strict=True))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threads": 1}, "CPU time on one core"),
        ({"threads": 3}, "wall time on 3 threads"),
        ({"threads": 1, "device_memory_bytes": 1 << 30}, "1 thread"),
    ],
)
def test_the_clock_is_said_before_anything_is_measured(changes, words):
    machine = replace(MACHINE, **changes)
    assert clock_of(machine, find("cpu").host_clock(machine.threads)) == words


def test_what_measuring_loses_on_this_system_is_said():
    machine = replace(MACHINE, threads=1, notes={"system": "no cgroups", "other processes": "2"})
    assert [*noise_warnings(machine, Clock.CPU)] == [
        "this system does not offer what measuring uses on Linux: no cgroups",
        "other processes use the GPU (2), and times will be noisy",
    ]


def test_by_cpu_time_and_without_a_budget_measuring_only_takes_longer():
    machine = replace(MACHINE, threads=1, share=0.5)
    (said,) = noise_warnings(machine, Clock.CPU)
    assert said.endswith("; measuring will take longer")
    (said,) = noise_warnings(machine, Clock.WALL, 300.0)
    assert said.endswith("; times will be noisy")
