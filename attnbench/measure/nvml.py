"""Readings of a GPU from NVIDIA's management library (NVML), by UUID.

NVML comes from the package nvidia-ml-py, which imports as pynvml. It may be absent, hide things
from a container, or be older than the package; none of these is an error of a run.
"""

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

SLOW = 0.75  # of the multiprocessors' default clock; samples taken below it are discarded
PAUSE_S = 0.05
REASON = re.compile("nvmlClocks(?:Event|Throttle)Reason(.+)")
IDLE = 1


class Unavailable(Exception):
    """NVML gives no answer, for the reason in the text."""


def ask(uuid: str, question: Callable[[Any, Any], Any]) -> Any:
    """The result of a call with the library and its handle for the GPU. Raises `Unavailable`."""
    return ask_library(lambda nvml: question(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)))


def ask_library(question: Callable[[Any], Any]) -> Any:
    """The result of a call with the library alone. Raises `Unavailable`."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return question(pynvml)
    except Exception as error:  # a driver that lacks the call raises no NVMLError
        raise Unavailable(str(error)) from error


def process_bytes(uuid: str) -> int:
    """Device memory that the driver charges to this process. Raises `Unavailable`."""
    processes = ask(uuid, lambda nvml, gpu: nvml.nvmlDeviceGetComputeRunningProcesses(gpu))
    for process in processes:
        if process.pid == os.getpid() and process.usedGpuMemory:
            return int(process.usedGpuMemory)
    raise Unavailable("NVML does not show this process; containers often hide it")


def readings(uuid: str) -> dict[str, float]:
    """Temperature, power and energy so far; what the device does not report is left out."""
    questions: dict[str, Callable[[Any, Any], float]] = {
        "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(
            gpu, nvml.NVML_TEMPERATURE_GPU
        ),
        "power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        "energy_j": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000,
    }
    values = {}
    for key, question in questions.items():
        with suppress(Unavailable):
            values[key] = ask(uuid, question)
    return values


def throttle(uuid: str) -> str:
    """Why the device is throttled, as NVML names it; empty if it is not, or NVML cannot say."""
    try:
        active, names = ask(
            uuid, lambda nvml, gpu: (nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu), vars(nvml))
        )
    except Unavailable:
        return ""
    reasons: dict[int, str] = {}  # by bit; a bit may have several names, and `All` is several bits
    for name in sorted(names):
        if (match := REASON.fullmatch(name)) and names[name].bit_count() == 1:
            reasons.setdefault(names[name], match[1])
    return ", ".join(reasons[bit] for bit in sorted(reasons) if bit & active & ~IDLE)


def near_usual_clock(uuid: str) -> bool:
    """Whether the clock is near the default, or cannot be read; pauses a moment if it is not."""
    try:
        now, usual = ask(
            uuid,
            lambda nvml, gpu: (
                nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
                nvml.nvmlDeviceGetDefaultApplicationsClock(gpu, nvml.NVML_CLOCK_SM),
            ),
        )
    except Unavailable:
        return True
    if now >= SLOW * usual:
        return True
    time.sleep(PAUSE_S)
    return False


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
