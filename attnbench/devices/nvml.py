"""Readings of a GPU from NVIDIA's management library (NVML), by UUID.

NVML comes from the package nvidia-ml-py, which is imported as pynvml. It may be absent, hide things
from a container, or be older than the package; none of these is an error of a run. A MIG instance
has its own memory and processes, but clocks, temperature, power and energy are the GPU's.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from statistics import median
from types import MappingProxyType
from typing import Any, Self

from attnbench.devices.protocol import Meter

SLOW = 0.75  # of the largest clock of the multiprocessors; samples below it are taken again
THROTTLED = 0.05  # a reason that lowered the clock for less of the samples' time is not noted
REASON = re.compile("nvmlClocks(?:Event|Throttle)Reason(.+)")
IDLE = 1
PART = "MIG-"  # begins the UUID of a MIG instance
POWER_CAP = "power cap"

# nanoseconds for which the clock was lowered, by NVML's name of the counter. The counters of
# thermal reasons in the newest drivers are left out: their numbers differ between releases
COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "NVML_FI_DEV_PERF_POLICY_POWER": POWER_CAP,
        "NVML_FI_DEV_PERF_POLICY_THERMAL": "temperature",
        "NVML_FI_DEV_PERF_POLICY_SYNC_BOOST": "sync boost",
        "NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT": "board limit",
        "NVML_FI_DEV_PERF_POLICY_RELIABILITY": "reliability",
    }
)


class Unavailable(Exception):
    """NVML gives no answer, for the reason in the text."""


def ask(uuid: str, question: Callable[[Any, Any], Any], whole: bool = False) -> Any:
    """The result of a call with the library and its handle for the GPU. Raises `Unavailable`.

    With `whole` it is the handle of the whole GPU, of which a MIG instance is a part.
    """

    def asked(nvml: Any) -> Any:
        gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
        if whole and uuid.startswith(PART):
            gpu = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu)
        return question(nvml, gpu)

    return ask_library(asked)


def ask_library(question: Callable[[Any], Any]) -> Any:
    """The result of a call with the library alone. Raises `Unavailable`."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return question(pynvml)
    except Exception as error:  # a driver that lacks the call raises no NVMLError
        raise Unavailable(str(error)) from error


def knows(uuid: str) -> bool:
    """Whether NVML finds a GPU of this UUID."""
    with suppress(Unavailable):
        ask(uuid, lambda nvml, gpu: None)
        return True
    return False


def process_bytes(uuid: str) -> int:
    """Device memory that the driver charges to this process. Raises `Unavailable`."""
    processes = ask(uuid, lambda nvml, gpu: nvml.nvmlDeviceGetComputeRunningProcesses(gpu))
    for process in processes:
        if process.pid == os.getpid() and process.usedGpuMemory:
            return int(process.usedGpuMemory)
    raise Unavailable("NVML does not show this process; containers often hide it")


def hides_process(uuid: str) -> str:
    """Why NVML does not say how much memory this process uses; empty if it does."""
    try:
        process_bytes(uuid)
    except Unavailable as error:
        return str(error)
    return ""


class GpuMeter(Meter):
    """What a GPU reports of the samples of one case; what it does not report is left out."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.elapsed_s = 0.0
        self.grown: dict[str, float] = {}  # what cumulative counters grew by
        self.seen: dict[str, None] = {}  # reasons for a low clock, without counters of them
        self.clocks_hz: list[float] = []
        self.slow = 0  # samples after which the clock was low

    def __enter__(self) -> Self:
        self.before, self.begun = answers(self.uuid, energy, lowered), time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.elapsed_s += time.perf_counter() - self.begun
        low = False
        with suppress(Unavailable):
            now_mhz, largest_mhz = ask(self.uuid, clocks, whole=True)
            self.clocks_hz.append(1e6 * now_mhz)
            low = now_mhz < SLOW * largest_mhz
        self.slow += low
        after = answers(self.uuid, energy, lowered)
        grown = {key: after[key] - self.before[key] for key in self.before.keys() & after.keys()}
        for key, more in grown.items():
            self.grown[key] = self.grown.get(key, 0.0) + more
        # under a cap of the power the clock would be as low again
        self.is_slow = low and not grown.get(POWER_CAP)
        if not set(COUNTERS.values()) & after.keys() and (reasons := throttle(self.uuid)):
            self.seen[reasons] = None

    def values(self) -> Mapping[str, float]:
        found = answers(self.uuid, temperature, power)
        if "energy_j" in self.grown:
            found["energy_j"] = self.grown["energy_j"]
        if lowered := [seconds for reason, seconds in self.grown.items() if reason != "energy_j"]:
            found["throttled_s"] = max(lowered)
        if self.clocks_hz:
            found["sm_clock_hz"] = median(self.clocks_hz)
        return found

    def notes(self) -> Mapping[str, str]:
        least_s = THROTTLED * self.elapsed_s
        counted = [r for r in COUNTERS.values() if self.grown.get(r, 0.0) > least_s]
        samples = f"after {self.slow} of {len(self.clocks_hz)} samples"
        return {
            "throttle": ", ".join((*counted, *self.seen)),
            "clock": f"below {100 * SLOW:.0f} % of its maximum {samples}" if self.slow else "",
        }


def answers(uuid: str, *questions: Callable[[Any, Any], dict[str, float]]) -> dict[str, float]:
    """What NVML answers about the whole GPU, without what it does not say."""
    values: dict[str, float] = {}
    for question in questions:
        with suppress(Unavailable):
            values |= ask(uuid, question, whole=True)
    return values


def temperature(nvml: Any, gpu: Any) -> dict[str, float]:
    return {"temperature_c": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)}


def power(nvml: Any, gpu: Any) -> dict[str, float]:
    return {"power_w": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000}


def energy(nvml: Any, gpu: Any) -> dict[str, float]:
    return {"energy_j": nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000}


def lowered(nvml: Any, gpu: Any) -> dict[str, float]:
    """Seconds for which each reason in `COUNTERS` has lowered the clock, where there is a count."""
    numbers = {getattr(nvml, name): reason for name, reason in COUNTERS.items()}
    return {
        numbers[answer.fieldId]: answer.value.ullVal / 1e9
        for answer in nvml.nvmlDeviceGetFieldValues(gpu, list(numbers))
        if answer.nvmlReturn == nvml.NVML_SUCCESS
    }


def clocks(nvml: Any, gpu: Any) -> tuple[float, float]:
    """The clock of the multiprocessors now and its maximum, in MHz."""
    kind = nvml.NVML_CLOCK_SM
    return nvml.nvmlDeviceGetClockInfo(gpu, kind), nvml.nvmlDeviceGetMaxClockInfo(gpu, kind)


def throttle(uuid: str) -> str:
    """Why the clock is low now, as NVML names it; empty if it is not, or NVML cannot say."""
    reasons: dict[int, str] = {}  # by bit; a bit may have several names, and `All` is several bits
    with suppress(Unavailable):
        active, names = ask(
            uuid,
            lambda nvml, gpu: (nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu), vars(nvml)),
            whole=True,
        )
        for name in sorted(names):
            if (match := REASON.fullmatch(name)) and names[name].bit_count() == 1:
                reasons.setdefault(names[name], match[1])
        return ", ".join(reasons[bit] for bit in sorted(reasons) if bit & active & ~IDLE)
    return ""


def driver() -> str:
    """The driver's version, or nothing."""
    with suppress(Unavailable):
        return str(ask_library(lambda nvml: nvml.nvmlSystemGetDriverVersion()))
    return ""


def state() -> str:
    """Whether NVML answers, or why not."""
    try:
        return f"answers, {ask_library(lambda nvml: nvml.nvmlDeviceGetCount())} devices"
    except Unavailable as error:
        return f"does not answer: {error}"
