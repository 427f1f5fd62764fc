"""What NVML says, from a library that answers by rule: complete, older, or hiding the process."""

import os
from types import ModuleType, SimpleNamespace

import pytest

from attnbench.measure import nvml


@pytest.fixture
def library(monkeypatch):
    """A pynvml whose calls a test adds."""
    module = ModuleType("pynvml")
    module.nvmlInit = lambda: None
    module.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    monkeypatch.setitem(__import__("sys").modules, "pynvml", module)
    return module


def test_a_reason_has_one_name_however_many_the_library_gives_it(library):
    library.nvmlClocksThrottleReasonReliability = 0x400
    library.nvmlClocksThrottleReasonUserDefinedClocks = 0x2
    library.nvmlClocksEventReasonApplicationsClocksSetting = 0x2
    library.nvmlClocksEventReasonSwPowerCap = 0x4
    library.nvmlClocksEventReasonGpuIdle = 0x1
    library.nvmlClocksEventReasonNone = 0
    library.nvmlClocksEventReasonAll = 0x407
    library.nvmlDeviceGetCurrentClocksEventReasons = lambda gpu: 0x403
    assert nvml.throttle("GPU-1") == "ApplicationsClocksSetting, Reliability"
    library.nvmlDeviceGetCurrentClocksEventReasons = lambda gpu: 0x1
    assert nvml.throttle("GPU-1") == ""


def missing(*_):
    """What an older driver raises, which is no NVMLError."""
    raise RuntimeError("NVML library mismatch")


def test_an_older_library_is_a_reason_and_no_error(library):
    library.nvmlDeviceGetComputeRunningProcesses = missing
    with pytest.raises(nvml.Unavailable, match="NVML library mismatch"):
        nvml.process_bytes("GPU-1")
    assert nvml.throttle("GPU-1") == ""
    assert nvml.readings("GPU-1") == {}
    assert nvml.near_usual_clock("GPU-1")
    assert nvml.driver() == ""
    assert "does not answer" in nvml.state()


def test_readings_leave_out_what_the_device_does_not_give(library):
    library.NVML_TEMPERATURE_GPU = 0
    library.nvmlDeviceGetTemperature = lambda gpu, sensor: 55
    library.nvmlDeviceGetPowerUsage = missing
    library.nvmlDeviceGetTotalEnergyConsumption = lambda gpu: 2500
    assert nvml.readings("GPU-1") == {"temperature_c": 55, "energy_j": 2.5}


def test_only_this_process_counts_and_it_may_be_hidden(library):
    def process(pid, used):
        return SimpleNamespace(pid=pid, usedGpuMemory=used)

    running = [process(os.getpid() + 1, 7), process(os.getpid(), 5)]
    library.nvmlDeviceGetComputeRunningProcesses = lambda gpu: running
    assert nvml.process_bytes("GPU-1") == 5
    running[1] = process(os.getpid(), None)
    with pytest.raises(nvml.Unavailable, match="does not show this process"):
        nvml.process_bytes("GPU-1")


@pytest.mark.parametrize(("now", "near"), [(1980, True), (1500, True), (345, False)])
def test_a_clock_far_below_the_default_is_not_near(library, monkeypatch, now, near):
    pauses = []
    monkeypatch.setattr(nvml.time, "sleep", pauses.append)
    library.NVML_CLOCK_SM = 1
    library.nvmlDeviceGetClockInfo = lambda gpu, kind: now
    library.nvmlDeviceGetDefaultApplicationsClock = lambda gpu, kind: 1980
    assert nvml.near_usual_clock("GPU-1") == near
    assert bool(pauses) != near
