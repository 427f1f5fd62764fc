"""The machine around a device: what is free, which core is idle, and what the system hides."""

import math
import os
from types import SimpleNamespace

import psutil
import pytest

from attnbench.devices import host


@pytest.mark.parametrize(("limit", "found"), [(None, 1000), (400, 400), (0, 0), (5000, 1000)])
def test_memory_is_what_is_free_within_the_limit_of_a_container(limit, found, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    monkeypatch.setattr(host, "free_bytes", lambda: limit)
    assert host.memory_bytes() == found


def test_where_the_system_hides_what_is_free_all_of_it_is(monkeypatch):
    def hidden():
        raise FileNotFoundError("/proc/meminfo")

    monkeypatch.setattr(psutil, "virtual_memory", hidden)
    monkeypatch.setattr(host, "free_bytes", lambda: None)
    assert host.memory_bytes() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def quietest(monkeypatch, idle, cores):
    """The quietest of the cores that this process may use, at these shares of idle time."""
    shares = [SimpleNamespace(idle=share) for share in idle]
    monkeypatch.setattr(psutil, "cpu_times_percent", lambda seconds, percpu: shares)
    monkeypatch.setattr(host.SYSTEM, "cores", lambda: cores)
    return host.quietest_core()


@pytest.mark.parametrize(
    ("idle", "cores", "found"),
    [
        ([10.0, 99.0, 50.0], {0, 1, 2}, 1),
        ([10.0, 99.0, 50.0], {0, 2}, 2),
        ([100.0, 98.0, 97.0], {0, 1, 2}, 2),  # alike, as the kernel counts in hundredths
        ([], {0, 1}, 1),
    ],
)
def test_the_quietest_core_is_one_that_this_process_may_use(idle, cores, found, monkeypatch):
    assert quietest(monkeypatch, idle, cores) == found


def test_where_nothing_is_known_of_cores_the_last_is_taken(monkeypatch):
    def hidden(seconds, percpu):
        raise PermissionError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times_percent", hidden)
    monkeypatch.setattr(host.SYSTEM, "cores", lambda: {3, 7})
    assert host.quietest_core() == 7


def test_names_are_those_of_the_scheduler_and_of_the_system(monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "node17")
    assert host.host() == "node17"
    monkeypatch.delenv("SLURMD_NODENAME")
    monkeypatch.setattr(host.platform, "node", lambda: "here")
    assert host.host() == "here"
    monkeypatch.setattr(host.SYSTEM, "processor", lambda: "")
    monkeypatch.setattr(host.platform, "processor", lambda: "")
    monkeypatch.setattr(host.platform, "machine", lambda: "riscv64")
    assert host.processor() == "riscv64"


def test_a_load_that_the_system_does_not_tell_is_none(monkeypatch):
    def unknown():
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unknown, raising=False)
    assert host.load() is None


def test_cpu_time_is_not_believed_where_it_is_not_that_of_this_process(monkeypatch):
    assert host.user_s(os.getpid()) >= 0
    monkeypatch.setattr(host.time, "process_time", lambda: 1e6)
    assert math.isnan(host.user_s(os.getpid()))
