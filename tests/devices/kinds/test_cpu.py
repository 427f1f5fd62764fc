"""The CPU as a device: its clock, its tokens, how fast it is expected to be, and its compiler."""

import pytest

from attnbench.devices.disturbances import CoreMeter
from attnbench.devices.finding import find
from attnbench.devices.kinds import cpu as kind
from attnbench.records import Clock


def test_more_threads_are_expected_to_compute_that_many_times_as_fast():
    assert find("cpu").flops_per_s(4) == 4 * find("cpu").flops_per_s(1)


def test_a_cpu_has_no_number():
    assert find("cpu").missing() == ""
    assert find("cpu:1").missing() == "a CPU has no number"
    assert find("cpu:1").torch_name == "cpu"


def test_one_thread_counts_by_its_own_time_and_several_by_the_wall():
    cpu = find("cpu")
    assert [cpu.host_clock(threads) for threads in (1, 2)] == [Clock.CPU, Clock.WALL]
    assert cpu.stopwatch(clock=Clock.CPU).counts is Clock.CPU
    assert isinstance(cpu.meter(), CoreMeter)


@pytest.mark.parametrize(
    ("width", "tokens"), [(64, 8192), (1024, 8192), (2048, 2048), (4096, 512), (1 << 20, 1)]
)
def test_wide_layers_have_as_few_tokens_as_cost_the_same(width, tokens):
    assert find("cpu").usual_tokens(width) == tokens


def test_quick_sweeps_have_the_shortest_samples_and_memory_is_that_of_the_machine():
    cpu = find("cpu")
    sampled = [cpu.sampling(*how) for how in ((True, True), (False, True), (False, False))]
    assert [settings["sample_s"] for settings in sampled] == [0.25, 0.5, 3.0]
    assert all(settings["memory_limit_bytes"] > 1 << 20 for settings in sampled)


def test_torch_compiles_only_with_the_compiler_that_is_named(monkeypatch):
    monkeypatch.setattr(kind, "which", lambda program: "/bin/g++" if program == "g++" else None)
    monkeypatch.setattr(kind.Cpu, "missing_headers_reason", staticmethod(lambda: "headers"))
    monkeypatch.delenv("CXX", raising=False)
    assert find("cpu").cannot_compile() == "headers"
    monkeypatch.setenv("CXX", "icpx")
    assert "install icpx, or name another one" in find("cpu").cannot_compile()
