"""What NVML says, from a library that answers by rule: complete, older, or hiding the process."""

import os
from types import ModuleType, SimpleNamespace

import pytest

from attnbench.devices import nvml
from attnbench.records import Sample


@pytest.fixture
def library(monkeypatch):
    """A pynvml whose calls a test adds."""
    module = ModuleType("pynvml")
    module.nvmlInit = lambda: None
    module.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    monkeypatch.setitem(__import__("sys").modules, "pynvml", module)
    return module


def missing(*_):
    """What an older driver raises, which is no NVMLError."""
    raise RuntimeError("NVML library mismatch")


def test_an_older_library_is_a_reason_and_no_error(library):
    library.nvmlDeviceGetComputeRunningProcesses = missing
    with pytest.raises(nvml.Unavailable, match="NVML library mismatch"):
        nvml.process_bytes("GPU-1")
    with nvml.GpuMeter("GPU-1") as meter:
        pass
    assert not meter.is_slow
    assert meter.values() == {}
    assert not any(meter.notes().values())
    assert nvml.driver() == ""
    assert "does not answer" in nvml.state()


class Card:
    """Counters and a clock, which a test changes."""

    def __init__(self, library):
        self.nanoseconds = {}
        names = ("POWER", "THERMAL", "SYNC_BOOST", "BOARD_LIMIT", "RELIABILITY")
        self.names = dict(zip((74, 75, 76, 77, 79), names, strict=True))
        for number, name in self.names.items():
            setattr(library, f"NVML_FI_DEV_PERF_POLICY_{name}", number)
        library.NVML_SUCCESS, library.NVML_CLOCK_SM = 0, 1
        library.nvmlDeviceGetFieldValues = self.fields
        library.nvmlDeviceGetMaxClockInfo = lambda gpu, kind: 1980

    def fields(self, gpu, numbers):
        values = [self.nanoseconds.get(self.names[number]) for number in numbers]
        return [
            SimpleNamespace(
                fieldId=number, nvmlReturn=3 * (ns is None), value=SimpleNamespace(ullVal=ns or 0)
            )
            for number, ns in zip(numbers, values, strict=True)
        ]


@pytest.fixture
def card(library, monkeypatch):
    now = iter(range(1000))  # a second for each block
    monkeypatch.setattr(nvml, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    return Card(library)


def test_a_meter_adds_up_what_counters_grow_by_during_samples(card):
    card.nanoseconds = {"POWER": 0, "THERMAL": 7 * 10**9}
    meter = nvml.GpuMeter("GPU-1")
    for _ in range(3):
        card.nanoseconds["POWER"] += 10**9  # between the samples
        with meter:
            card.nanoseconds["POWER"] += 10**8
    assert meter.values()["throttled_s"] == pytest.approx(0.3)
    assert meter.notes() == {"throttle": "power cap", "clock": ""}
    with nvml.GpuMeter("GPU-1") as short:
        card.nanoseconds["POWER"] += 10**6
    assert short.values()["throttled_s"] == pytest.approx(0.001)
    assert short.notes()["throttle"] == "", "a moment at a lowered clock"


@pytest.mark.parametrize(
    ("mhz", "reason", "low", "again"),
    [(1500, "", 0, 0), (345, "", 1, 1), (345, "POWER", 1, 0), (345, "THERMAL", 1, 1)],
)
def test_a_sample_at_a_low_clock_is_taken_again_unless_capped(card, mhz, reason, low, again):
    """The clock is that of the sample, judged by the card's largest."""
    card.nanoseconds = {"POWER": 0, "THERMAL": 0}
    meter = nvml.GpuMeter("GPU-1")
    with meter:
        card.nanoseconds |= {reason: 10**8}
    meter.judge_sample(Sample(1, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, clock_hz=1e6 * mhz))
    assert meter.is_slow == again
    assert meter.values()["sm_clock_hz"] == 1e6 * mhz
    assert meter.notes()["clock"] == low * "below 75 % of its maximum in 1 of 1 samples"


def test_a_part_of_a_card_has_the_clock_and_energy_of_the_card(card, library):
    library.nvmlDeviceGetDeviceHandleFromMigDeviceHandle = lambda part: f"the card of {part}"
    asked = []
    library.nvmlDeviceGetMaxClockInfo = lambda gpu, kind: asked.append(gpu) or 1980
    library.nvmlDeviceGetTotalEnergyConsumption = lambda gpu: asked.append(gpu) or 6500
    for uuid in ("MIG-1", "GPU-2"):
        nvml.GpuMeter(uuid)
        assert nvml.joules(uuid) == 6.5
    assert asked == ["the card of MIG-1"] * 2 + ["GPU-2"] * 2


def test_what_others_compute_is_seen(library):
    busy = SimpleNamespace(gpu=4)
    library.nvmlDeviceGetUtilizationRates = lambda gpu: busy
    assert nvml.load_of_others("GPU-1") == ""
    busy.gpu = 40
    assert nvml.load_of_others("GPU-1") == "busy 40 % of the time"
    library.nvmlDeviceGetUtilizationRates = missing
    assert nvml.load_of_others("GPU-1") == ""


def test_only_this_process_counts_and_it_may_be_hidden(library):
    def process(pid, used):
        return SimpleNamespace(pid=pid, usedGpuMemory=used)

    running = [process(os.getpid() + 1, 7), process(os.getpid(), 5)]
    library.nvmlDeviceGetComputeRunningProcesses = lambda gpu: running
    assert nvml.process_bytes("GPU-1") == 5
    running[1] = process(os.getpid(), None)
    with pytest.raises(nvml.Unavailable, match="does not show this process"):
        nvml.process_bytes("GPU-1")
