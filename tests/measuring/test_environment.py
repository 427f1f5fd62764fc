"""What is measured and stored of a machine."""

import itertools

import pytest
import torch

from attnbench.devices.finding import find
from attnbench.devices.system import LOST, Posix
from attnbench.devices.timing import HostStopwatch
from attnbench.measuring import environment
from attnbench.records import LOST as SYSTEM_NOTE
from attnbench.records import Clock


def test_what_is_lost_is_stored_with_the_machine(monkeypatch):
    for name in ("matmul_flops", "copy_bytes"):
        monkeypatch.setattr(environment, name, lambda *arguments: 1.0)
    assert SYSTEM_NOTE not in environment.environment("cpu", 1, ("float32",)).notes
    monkeypatch.setattr(environment, "SYSTEM", Posix())
    here = environment.environment("cpu", 1, ("float32",))
    assert here.notes[SYSTEM_NOTE] == "; ".join(LOST)


def test_rates_that_memory_does_not_suffice_for_are_missing(monkeypatch):
    """The others are kept, by number type."""

    def products(device, dtype, clock):
        if dtype == "float64":
            raise torch.OutOfMemoryError("none left")
        return {"float32": 3.0, "bfloat16": 5.0}[dtype]

    def copies(device, clock):
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(environment, "matmul_flops", products)
    monkeypatch.setattr(environment, "copy_bytes", copies)
    here = environment.environment("cpu", 2, ("float64", "float32", "bfloat16"))
    assert here.peaks == {"float32": 3.0, "bfloat16": 5.0}
    assert (here.matmul_flops, here.copy_bytes, here.threads) == (None, None, 2)
    assert environment.environment("cpu", 1, ("float32",)).matmul_flops == 3.0


def test_a_rate_is_that_of_the_fastest_run_of_calls(monkeypatch):
    """By the clock of samples, and in the time for it at least twice."""
    now, took = [0.0], itertools.chain([0.1, 0.05, 0.02, 0.04], itertools.repeat(0.1))
    cpu = find("cpu")
    monkeypatch.setattr(type(cpu), "peak_calls", 1)
    watch = HostStopwatch(lambda: now[0], lambda: now[0], Clock.CPU)
    monkeypatch.setattr(type(cpu), "stopwatch", lambda self, clock: watch)
    monkeypatch.setattr(environment.time, "perf_counter", lambda: now[0])

    def work():
        now[0] += next(took)

    assert environment.fastest_call_s(work, cpu, Clock.CPU) == pytest.approx(0.05)
    assert now[0] == pytest.approx(0.15)


def test_products_and_copies_are_counted_by_what_they_do(monkeypatch):
    cpu = find("cpu")
    monkeypatch.setattr(type(cpu), "matmul_size", 8)
    monkeypatch.setattr(type(cpu), "copy_elements", 100)
    monkeypatch.setattr(environment, "fastest_call_s", lambda work, device, clock: (work(), 2.0)[1])
    assert environment.matmul_flops(cpu, "bfloat16", Clock.CPU) == 2 * 8**3 / 2
    assert environment.copy_bytes(cpu, Clock.CPU) == 2 * 400 / 2
