"""Readings of a GPU from NVIDIA's management library (NVML), by UUID.

NVML comes from the package nvidia-ml-py, which is imported as pynvml. It may be absent, hide things
from a container, or be older than the package; none of these is an error of a run. A MIG instance
has its own memory and processes, but clocks, power and energy are the GPU's.
"""

import os
import time
from collections.abc import Callable, Mapping
from statistics import median
from types import MappingProxyType
from typing import Any, Self

from attnbench.devices.protocol import Meter, Unavailable
from attnbench.records import Sample
from attnbench.records.notes import Note

SLOW = 0.75  # of the multiprocessors' maximum clock; samples below it are retaken
THROTTLED = 0.05  # a reason that lowered the clock for less of the samples' time is not noted
BUSY = 5  # percent of the time; a process that starts uses less itself
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


Question = Callable[[Any, Any], Any]  # of the library and its handle for a GPU, if one is named


def ask(question: Question, uuid: str = "", whole_gpu: bool = False) -> Any:
    """The result of a call with the library and its handle for the GPU. Raises `Unavailable`.

    With `whole_gpu` it is the handle of the whole GPU, of which a MIG instance is a part.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else None
        if whole_gpu and uuid.startswith(PART):
            gpu = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(gpu)
        return question(pynvml, gpu)
    except Exception as error:  # a driver that lacks the call raises no NVMLError
        raise Unavailable(str(error)) from error


def answer(uuid: str, question: Question, default: Any) -> Any:
    """What NVML says about the whole GPU, or the default where it does not say."""
    try:
        return ask(question, uuid, whole_gpu=True)
    except Unavailable:
        return default


def process_bytes(uuid: str) -> int:
    """Device memory that the driver charges to this process. Raises `Unavailable`."""
    running = ask(lambda nvml, gpu: nvml.nvmlDeviceGetComputeRunningProcesses(gpu), uuid)
    for process in running:
        if process.pid == os.getpid() and process.usedGpuMemory:
            return int(process.usedGpuMemory)
    raise Unavailable("NVML does not show this process; containers often hide it")


class GpuMeter(Meter):
    """What a GPU reports of the samples of one case; what it does not report is left out.

    The clock is the stopwatch's: by the time NVML is asked, the GPU is idle.
    """

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.elapsed_s = 0.0
        self.grown: dict[str, float] = {}  # what cumulative counters grew by
        self.clocks_hz: list[float] = []
        self.slow = 0  # samples at a low clock
        self.capped = False  # whether a power cap lowered the clock in the last sample
        self.largest_hz = 1e6 * answer(uuid, largest_mhz, 0.0)

    def __enter__(self) -> Self:
        self.before = answer(self.uuid, lowered_clock_s, {})
        self.begun = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.elapsed_s += time.perf_counter() - self.begun
        after = answer(self.uuid, lowered_clock_s, {})
        grown = {key: after[key] - self.before[key] for key in self.before.keys() & after.keys()}
        for key, increase in grown.items():
            self.grown[key] = self.grown.get(key, 0.0) + increase
        self.capped = bool(grown.get(POWER_CAP))

    def judge_sample(self, sample: Sample) -> None:
        self.is_slow = False
        if sample.clock_hz is not None:
            self.clocks_hz.append(sample.clock_hz)
            low = sample.clock_hz < SLOW * self.largest_hz
            self.slow += low
            # under a power cap the clock would be as low again
            self.is_slow = low and not self.capped

    def values(self) -> Mapping[str, float]:
        values = {"throttled_s": max(self.grown.values())} if self.grown else {}
        if self.clocks_hz:
            values["sm_clock_hz"] = median(self.clocks_hz)
        return values

    def notes(self) -> Mapping[str, str]:
        least_s = THROTTLED * self.elapsed_s
        counted = [r for r in COUNTERS.values() if self.grown.get(r, 0.0) > least_s]
        samples = f"in {self.slow} of {len(self.clocks_hz)} samples"
        return {
            Note.THROTTLE: ", ".join(counted),
            Note.CLOCK: f"below {100 * SLOW:.0f} % of its maximum {samples}" if self.slow else "",
        }


def joules(uuid: str) -> float:
    """Energy that the GPU has used since its driver was loaded. Raises `Unavailable`."""
    spent = ask(lambda lib, gpu: lib.nvmlDeviceGetTotalEnergyConsumption(gpu), uuid, whole_gpu=True)
    return float(spent) / 1000  # from millijoules


def lowered_clock_s(nvml: Any, gpu: Any) -> dict[str, float]:
    """Seconds for which each reason in `COUNTERS` has lowered the clock, where there is a count."""
    numbers = {getattr(nvml, name): reason for name, reason in COUNTERS.items()}
    return {
        numbers[answer.fieldId]: answer.value.ullVal / 1e9
        for answer in nvml.nvmlDeviceGetFieldValues(gpu, list(numbers))
        if answer.nvmlReturn == nvml.NVML_SUCCESS
    }


def largest_mhz(nvml: Any, gpu: Any) -> int:
    """The largest clock of the multiprocessors."""
    return int(nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM))


def machine(uuid: str) -> dict[str, str]:
    """The GPU's limits and settings, as far as NVML says them."""
    questions: Mapping[str, Question] = {
        "largest clock": lambda nvml, gpu: f"{largest_mhz(nvml, gpu)} MHz",
        "power limit": lambda nvml, gpu: f"{nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3:.0f} W",
        "ECC": lambda nvml, gpu: "on" if nvml.nvmlDeviceGetEccMode(gpu)[0] else "off",
    }
    answers = {name: answer(uuid, question, "") for name, question in questions.items()}
    return {name: text for name, text in answers.items() if text}


def load_of_others(uuid: str) -> str:
    """What others compute on the GPU now, `busy 31 % of the time`, or nothing.

    Containers often hide processes, but not that they compute.
    """
    busy = answer(uuid, lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu, 0)
    return f"busy {busy} % of the time" if busy > BUSY else ""


def driver() -> str:
    """The driver's version, or nothing."""
    return str(answer("", lambda nvml, _: nvml.nvmlSystemGetDriverVersion(), ""))


def state() -> str:
    """Whether NVML answers, or why not."""
    try:
        count = ask(lambda nvml, _: nvml.nvmlDeviceGetCount())
        return f"answers, {count} device{'s' * (count != 1)}"
    except Unavailable as error:
        return f"does not answer: {error}"
