"""Peaks of memory on a CPU: live bytes summed over the events of torch's allocator.

They are exact for what torch allocates in the thread that computes, as those of
`torch.cuda.max_memory_allocated` are on a GPU, whatever the operating system. What other threads or
libraries such as numpy allocate is not seen. It shows in by how much the process grew,
`grown_bytes`, which also has the slack of the C library's allocator and the code that an iteration
loads; outside Linux it is polled.
"""

from contextlib import nullcontext
from typing import Any

from torch.autograd.profiler import profile, record_function

from attnbench.devices import kernels
from attnbench.devices.counting import FUSED, Counter
from attnbench.devices.protocol import Build, ValuesAndNotes
from attnbench.devices.system import SYSTEM
from attnbench.records import Case
from attnbench.records.notes import Note

MARK = "attnbench:"


def on_cpu(build: Build, case: Case) -> ValuesAndNotes:
    """Values and notes of one iteration: peaks, saved bytes, operators, bytes moved.

    The case is built within the profile, so that parameters and inputs are counted. Peaks of
    decoding include its prefill, and operators do not.
    """
    counter = Counter()
    resident = SYSTEM.resident_peak()
    with profile(profile_memory=True) as events:
        subject = build(case)
        mark("start")
        subject.prefill()
        with nullcontext() if subject.compiles else counter:
            subject.iteration()(mark)
        subject.clear()
        grown_bytes = resident.grown_bytes()
    values = peaks(events.kineto_results.events())
    if resident.is_known:
        values["grown_bytes"] = grown_bytes
    notes = counter.notes | kernels.operators(kernels.names_in(events))
    if values["kept_bytes"]:
        # what a forward pass drew may be kept until the next one replaces it
        with profile(profile_memory=True) as events:
            subject.iteration()(mark)
            subject.clear()
        values["kept_bytes"] = peaks(events.kineto_results.events())["kept_bytes"]
    if subject.compiles:
        notes[Note.OPERATORS] = FUSED
    else:
        values |= counter.values
    return subject.with_state(values), notes


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
