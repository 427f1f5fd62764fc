"""Peaks of memory on a CPU: allocated (exact) and resident (from the operating system).

Allocated: live bytes summed over the allocator's events, as `torch.cuda.max_memory_allocated` does
on a GPU. Resident: VmHWM after a reset, never `ru_maxrss`, which a child inherits from its parent.
"""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch.autograd.profiler import profile, record_function

from attnbench import units
from attnbench.devices import kernels
from attnbench.devices.counting import FUSED, Counter
from attnbench.devices.host import proc_bytes
from attnbench.devices.protocol import Built, ValuesAndNotes

MARK = "attnbench:"
# What became resident may exceed what torch allocated by this much, and by this share of it: twice
# as much as libraries' workspaces were in 410 cases.
UNSEEN_BYTES, UNSEEN = 1 << 24, 0.6
CLEAR_REFS = Path("/proc/self/clear_refs")


def on_cpu(build: Callable[[], Built]) -> ValuesAndNotes:
    """Values and notes of one iteration: peaks, saved bytes, operators, bytes moved.

    `build` runs within the profile, so that parameters and inputs are counted. Peaks of decoding
    include its prefill, and operators do not.
    """
    counter = Counter()
    with profile(profile_memory=True) as events:
        subject = build()
        resident = resident_available()
        resident_before = proc_bytes("self/status", "VmRSS")
        mark("start")
        subject.prefill()
        with nullcontext() if subject.compiles else counter:
            subject.iteration()(mark)
        resident_peak = proc_bytes("self/status", "VmHWM")
        subject.clear()
    values = peaks(events.kineto_results.events())
    notes = counter.notes | kernels.operators(kernels.names_in(events))
    if values["kept_bytes"]:
        # what a forward pass drew may be kept until the next one replaces it
        with profile(profile_memory=True) as events:
            subject.iteration()(mark)
            subject.clear()
        values["kept_bytes"] = peaks(events.kineto_results.events())["kept_bytes"]
    if subject.compiles:
        notes["operators"] = FUSED
    else:
        values |= counter.values
    values = subject.with_state(values)
    if resident:
        values["resident_peak_bytes"] = resident_peak
        values["resident_delta_bytes"] = max(0, resident_peak - resident_before)
        notes |= unseen(values["resident_delta_bytes"], values["allocated_delta_bytes"])
    else:
        notes["resident"] = "this system does not let a process reset its resident peak"
    return values, notes


def unseen(resident: float, allocated: float) -> dict[str, str]:
    """A note if far more became resident than torch's allocator saw on this thread."""
    more = resident - allocated
    if more <= max(UNSEEN_BYTES, UNSEEN * allocated):
        return {}
    where = "in other threads or outside torch, so its allocated peak is a lower bound"
    return {"unseen": f"used {units.size(more)} more memory {where}"}


def mark(phase: str) -> None:
    """Leave a name among the profiler's events."""
    with record_function(MARK + phase):
        pass


def peaks(events: Any) -> dict[str, float]:
    """Peak, peak above the start, and bytes still live after the forward pass and at the end."""
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


def resident_available() -> bool:
    """Reset the resident peak of this process (VmHWM); whether this system allows that."""
    try:
        CLEAR_REFS.write_text("5")
    except OSError:
        return False
    return proc_bytes("self/status", "VmHWM") > 0
