"""`doctor`: what this machine is, and why devices and forms do not work here."""

import json

import pytest

from attnbench.commands.doctor.command import examine, machine_facts, missing_devices
from attnbench.devices import find
from attnbench.devices.kinds import cuda
from attnbench.errors import CannotRun
from attnbench.mechanisms import catalogue
from attnbench.running import plan
from tests.commands.commands import here
from tests.sweeps import environment


@pytest.mark.long
def test_the_doctor_measures_peaks_and_lists_what_will_not_run():
    done = here("doctor", "--device", "cpu", "--json")
    found = json.loads(done.stdout)
    assert found["matmul_flops"] > 1e8
    assert found["copy_bytes"] > 1e7
    assert any("xformers" in form for form in found["forms_that_do_not_run"])
    shown = " ".join(here("doctor", "--device", "cpu").stdout.split())
    assert "arithmetic " in shown
    assert all(form in shown for form in found["forms_that_do_not_run"])
    assert all(name.replace("_", " ") in shown for name in found if name.startswith("no_"))


def test_the_doctor_says_why_a_machine_with_a_gpu_cannot_use_it(monkeypatch):
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    monkeypatch.setattr(cuda, "built_for", lambda platform: False)
    assert missing_devices() == {"no cuda": "the installed torch was built without CUDA"}


def facts(device="cpu", **changes):
    """The lines on a machine."""
    return machine_facts(find(device), environment(**changes))


def test_a_machine_is_described_with_its_rates_and_its_clock():
    found = facts(threads=1)
    assert found["processor"].endswith("2 cores available, 1 thread")
    assert found["timed by"] == "CPU time on one core"
    assert found["arithmetic"].startswith("95.0 GFLOP/s, float32 product of square matrices")
    assert found["bandwidth"].startswith("10.24 GiB/s")
    assert not {"GPU", "GPU memory", "warning"} & {*found}


def test_a_rate_that_was_not_measured_is_no_zero():
    found = facts(matmul_flops=None, copy_bytes=None)
    assert {found["arithmetic"], found["bandwidth"]} == {"not measured: too little memory was free"}


def test_a_gpu_has_its_memory_its_settings_and_its_own_clock():
    found = facts("cuda", device_memory_bytes=1 << 30, driver="580", cuda="13", tf32=True)
    assert found["GPU memory"] == "1.000 GiB free, driver 580"
    assert found["GPU"] == "TF32 on"
    assert found["timed by"] == find("cuda").clock


def test_what_makes_times_noisy_is_a_warning():
    assert facts(threads=4)["warning"] == "4 threads share 2 cores; try --threads 2"


def test_why_forms_do_not_run_is_said_and_what_cannot_be_read_too(monkeypatch):
    def describe(group, device, server):
        if "mine" in group:
            raise CannotRun("its file is broken")
        return [{"name": name, "refused": {"fused": f"no {device}"}} for name in group]

    monkeypatch.setattr(catalogue, "names", lambda: ("fnet", "mine"))
    monkeypatch.setattr(plan, "process_groups", lambda names: [(name,) for name in names])
    monkeypatch.setattr(plan, "describe", describe)
    assert examine("cpu", None) == {"fnet:fused": "no cpu", "mine": "its file is broken"}
