"""Peaks of memory: allocated (exact), resident (the operating system's), and on CUDA.

Allocated on a CPU: live bytes summed over the allocator's own events, what
`max_memory_allocated` would say if there were one. Resident: VmHWM after a reset, never
`ru_maxrss`, which a child inherits from its parent.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile, record_function

from attnbench.measure import device
from attnbench.measure.counting import Counter
from attnbench.measure.subject import Subject, iteration

MARK = "attnbench:"
CLEAR_REFS, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def on_cpu(build: Callable[[], Subject]) -> tuple[dict[str, float], dict[str, str]]:
    """Values and notes of one iteration: peaks, saved bytes, operators, bytes moved.

    `build` runs inside the profile, so that parameters and inputs are counted.
    """
    counter = Counter()
    with profile(profile_memory=True) as events:
        subject = build()
        resident = ResidentPeak()
        mark("start")
        with counter:
            iteration(subject)(mark)
        values = resident.values()
        subject.clear()
    values |= peaks(events.kineto_results.events())
    if values["kept_bytes"]:
        # what the last forward pass drew may stay, in the place of what the one before it drew
        with profile(profile_memory=True) as events:
            iteration(subject)(mark)
            subject.clear()
        values["kept_bytes"] = peaks(events.kineto_results.events())["kept_bytes"]
    values |= {"operators": counter.operators, "moved_bytes": counter.moved_bytes}
    notes = {"attention_kernel": counter.attention_kernel} if counter.attention_kernel else {}
    if not resident.available:
        notes["resident"] = "this system does not let a process reset its resident peak"
    return values, notes


def mark(phase: str) -> None:
    """Leave a name among the profiler's events."""
    with record_function(MARK + phase):
        pass


def peaks(events: Any) -> dict[str, float]:
    """Peak, its part above the start, and what lived on after the forward pass and after all."""
    live = before = peak = saved = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        match event.name():
            case "[memory]":
                live += event.nbytes()
                peak = max(peak, live)
            case "attnbench:start":
                before = peak = live
            case "attnbench:forward":
                saved = live - before
    return {
        "allocated_peak_bytes": peak,
        "allocated_delta_bytes": peak - before,
        "saved_bytes": saved,
        "kept_bytes": live - before,
    }


class ResidentPeak:
    """VmHWM from here on, and the part of it above what was resident here."""

    def __init__(self) -> None:
        self.available = resident_available()
        self.before = status_bytes("VmRSS") if self.available else 0

    def values(self) -> dict[str, float]:
        """Peak and delta so far; none where the system cannot tell."""
        if not self.available:
            return {}
        peak = status_bytes("VmHWM")
        delta = max(0, peak - self.before)
        return {"resident_peak_bytes": peak, "resident_delta_bytes": delta}


def resident_available() -> bool:
    """Whether this system can reset and read a process's resident peak."""
    try:
        CLEAR_REFS.write_text("5")
        return status_bytes("VmHWM") > 0
    except OSError:
        return False


def status_bytes(field: str) -> int:
    """A size from /proc/self/status, in bytes; 0 if it is not there."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def on_cuda(subject: Subject) -> tuple[dict[str, float], dict[str, str]]:
    """Allocated and reserved peak, bytes saved, counts, and the process's peak from NVML.

    The first iteration warms up (autotuning allocates), the second is measured, the third counted.
    """
    iterate = iteration(subject)
    iterate(lambda phase: None)
    subject.clear()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    saved = {}
    with ProcessPeak() as process:
        iterate(lambda phase: saved.update({phase: torch.cuda.memory_allocated() - before}))
        torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    values = {
        "allocated_peak_bytes": peak,
        "allocated_delta_bytes": peak - before,
        "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
        "saved_bytes": saved["forward"],
    }
    notes = {}
    if process.peak_bytes:
        values["device_process_bytes"] = process.peak_bytes
    else:
        notes["nvml"] = process.reason
    subject.clear()
    values["kept_bytes"] = torch.cuda.memory_allocated() - before
    counter = Counter()
    with counter:
        iterate(lambda phase: None)
    values |= {"operators": counter.operators, "moved_bytes": counter.moved_bytes}
    if counter.attention_kernel:
        notes["attention_kernel"] = counter.attention_kernel
    return values, notes


class ProcessPeak:
    """Polls NVML for this process's device memory while the block runs.

    `peak_bytes` stays 0 where NVML hides the process, as it does in many containers; `reason`
    then says so.
    """

    PERIOD_S = 0.002

    def __enter__(self) -> "ProcessPeak":
        self.peak_bytes, self.reason = 0, ""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _poll(self) -> None:
        while True:
            try:
                self.peak_bytes = max(self.peak_bytes, device.process_bytes())
            except device.Unavailable as error:
                self.reason = str(error)
                return
            if self._done.wait(self.PERIOD_S):
                return
