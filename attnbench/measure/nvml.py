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

from attnbench.device import Meter

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


def ask(uuid: str, question: Callable[[Any, Any], Any]) -> Any:
    """The result of a call with the library and its handle for the GPU. Raises `Unavailable`."""
    return ask_library(lambda nvml: question(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)))


def ask_card(uuid: str, question: Callable[[Any, Any], Any]) -> Any:
    """The same with the handle of the whole GPU, of which a MIG instance is a part."""

    def of_card(nvml: Any, gpu: Any) -> Any:
        is_part = uuid.startswith(PART)
        return question(
            nvml, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu) if is_part else gpu
        )

    return ask(uuid, of_card)


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
    try:
        ask(uuid, lambda nvml, gpu: None)
    except Unavailable:
        return False
    return True


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
        self.before, self.begun = cumulative(self.uuid), time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.elapsed_s += time.perf_counter() - self.begun
        low = self._read_clock()
        self.slow += low
        after = cumulative(self.uuid)
        grown = {key: after[key] - self.before[key] for key in self.before.keys() & after.keys()}
        for key, more in grown.items():
            self.grown[key] = self.grown.get(key, 0.0) + more
        # under a cap of the power the clock would be as low again
        self.is_slow = low and not grown.get(POWER_CAP)
        if not set(COUNTERS.values()) & after.keys() and (reasons := throttle(self.uuid)):
            self.seen[reasons] = None

    def values(self) -> Mapping[str, float]:
        found = readings(self.uuid)
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

    def _read_clock(self) -> bool:
        """Record the clock; whether it is low."""
        with suppress(Unavailable):
            now_hz, largest_hz = clocks(self.uuid)
            self.clocks_hz.append(now_hz)
            return now_hz < SLOW * largest_hz
        return False


def cumulative(uuid: str) -> dict[str, float]:
    """Energy in joules, and seconds for which each reason in `COUNTERS` lowered the clock."""
    values: dict[str, float] = {}
    with suppress(Unavailable):
        values["energy_j"] = ask_card(
            uuid, lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000
        )
    with suppress(Unavailable):
        values |= ask_card(uuid, lowered)
    return values


def lowered(nvml: Any, gpu: Any) -> dict[str, float]:
    """Seconds for which each reason in `COUNTERS` has lowered the clock, where there is a count."""
    numbers = {getattr(nvml, name): reason for name, reason in COUNTERS.items()}
    answers = nvml.nvmlDeviceGetFieldValues(gpu, list(numbers))
    return {
        numbers[answer.fieldId]: answer.value.ullVal / 1e9
        for answer in answers
        if answer.nvmlReturn == nvml.NVML_SUCCESS
    }


def readings(uuid: str) -> dict[str, float]:
    """Temperature and power now."""
    questions: dict[str, Callable[[Any, Any], float]] = {
        "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(
            gpu, nvml.NVML_TEMPERATURE_GPU
        ),
        "power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
    }
    values = {}
    for key, question in questions.items():
        with suppress(Unavailable):
            values[key] = ask_card(uuid, question)
    return values


def clocks(uuid: str) -> tuple[float, float]:
    """The clock of the multiprocessors now and its maximum, in Hz. Raises `Unavailable`."""
    now, largest = ask_card(
        uuid,
        lambda nvml, gpu: (
            nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
        ),
    )
    return 1e6 * now, 1e6 * largest


def throttle(uuid: str) -> str:
    """Why the clock is low now, as NVML names it; empty if it is not, or NVML cannot say."""
    try:
        active, names = ask_card(
            uuid, lambda nvml, gpu: (nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu), vars(nvml))
        )
    except Unavailable:
        return ""
    reasons: dict[int, str] = {}  # by bit; a bit may have several names, and `All` is several bits
    for name in sorted(names):
        if (match := REASON.fullmatch(name)) and names[name].bit_count() == 1:
            reasons.setdefault(names[name], match[1])
    return ", ".join(reasons[bit] for bit in sorted(reasons) if bit & active & ~IDLE)


def driver() -> str:
    """The driver's version, or nothing."""
    try:
        return str(ask_library(lambda nvml: nvml.nvmlSystemGetDriverVersion()))
    except Unavailable:
        return ""


def state() -> str:
    """Whether NVML answers, or why not."""
    try:
        return f"answers, {ask_library(lambda nvml: nvml.nvmlDeviceGetCount())} devices"
    except Unavailable as error:
        return f"does not answer: {error}"
