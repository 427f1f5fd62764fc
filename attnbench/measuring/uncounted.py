"""Memory that torch's allocator does not count: of numpy, of other threads, and of anything else.

The peaks of a CPU are those of torch in the thread that computes (`devices.memory`). A module of
others may keep its numbers in numpy, which tells `tracemalloc` what it allocates, compute in
threads of its own, or ask the system for memory by itself, by which the process then grows.
"""

import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import Tensor

from attnbench.devices import SYSTEM
from attnbench.devices.protocol import Iterate
from attnbench.measuring import allocator
from attnbench.records import units

# The domain in which numpy reports its arrays (`numpy.lib.tracemalloc_domain`)
NUMPY = 389047
LEAST_BYTES = 1 << 14  # of arrays that are worth a word
LEAST_BUFFERS_BYTES = 1 << 20  # the same of buffers of Python's own, such as a `bytearray`
# By how much a process may grow beyond what torch allocates, as freed blocks between others stay:
# bytes, and a multiple of what torch allocates. Of this package's mechanisms the worst grew by 1.6
# times as much beyond it.
SLACK_BYTES = 4 << 20
SLACK = 2.5
LOOKS = 3  # at most, of which the one with the least growth counts
MORE = 1.05  # times the traced memory of the last look at which to look again


class Threads:
    """Threads that started while they were watched, and in which of them tensors were used."""

    def __init__(self) -> None:
        self.computing = set[threading.Thread]()  # as numbers of threads come again

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch threads that start within the block; others stay as they are."""
        threading.setprofile(self.look)  # for threads that start from now on
        try:
            yield
        finally:
            threading.setprofile(None)

    def look(self, frame: FrameType, event: str, argument: Any) -> None:
        """Called within such a thread whenever a function begins or ends."""
        if event != "return":
            return
        if isinstance(argument, Tensor) or any(
            isinstance(v, Tensor) for v in frame.f_locals.values()
        ):
            self.computing.add(threading.current_thread())
            sys.setprofile(None)  # of this thread


class Arrays:
    """The most bytes of numpy arrays that were seen at once while functions began or ended.

    An array that comes and goes between two of these moments is not seen. The same of large buffers
    of Python itself, whose memory tensors may share, are `buffers_bytes`.
    """

    def __init__(self) -> None:
        self.most_bytes = 0
        self.buffers_bytes = 0
        self.traced_bytes = 0.0

    def look(self, frame: FrameType, event: str, argument: Any) -> None:
        """Look at all arrays if memory has grown since they were last looked at."""
        traced_bytes = tracemalloc.get_traced_memory()[0]
        if traced_bytes < MORE * self.traced_bytes + LEAST_BYTES / 2:
            return
        self.traced_bytes = traced_bytes
        traces = tracemalloc.take_snapshot().traces
        arrays_bytes = sum(trace.size for trace in traces if trace.domain == NUMPY)
        other_traces = (trace.size for trace in traces if trace.domain != NUMPY)
        large_bytes = sum(size for size in other_traces if size >= LEAST_BUFFERS_BYTES)
        self.most_bytes = max(self.most_bytes, arrays_bytes)
        self.buffers_bytes = max(self.buffers_bytes, large_bytes)

    def run(self, iterate: Iterate) -> None:
        """Run an iteration, and look at what it allocates."""
        earlier_profiler = sys.getprofile()
        traced = tracemalloc.is_tracing()
        if not traced:
            tracemalloc.start()
        sys.setprofile(self.look)
        try:
            iterate(lambda phase: None)
        finally:
            sys.setprofile(earlier_profiler)
            if not traced:
                tracemalloc.stop()


def grown_bytes(iterate: Callable[[], None], counted_bytes: float) -> float:
    """By how many bytes an iteration grows this process beyond what torch allocates; 0 if hardly,
    or where the system does not say.

    Free memory is returned to the system from now on. Code that an iteration loads counts at its
    first run, so one should have run before.
    """
    if not SYSTEM.frees_pages:
        return 0.0
    least = float("inf")
    for _ in range(LOOKS):
        allocator.return_pages()
        resident = SYSTEM.resident_peak()
        if not resident.is_known:
            return 0.0
        iterate()
        grown = resident.grown_bytes() - counted_bytes
        least = min(least, grown)
        if least <= SLACK_BYTES + SLACK * counted_bytes:
            return 0.0
    return least


def missed_text(arrays: Arrays, threads: Threads, grown_bytes: float = 0.0) -> str:
    """What peaks miss, in words; empty if nothing was seen.

    `grown_bytes` are those by which the process grew beyond what torch allocates; said are those
    that nothing else explains.
    """
    parts = []
    if arrays.most_bytes >= LEAST_BYTES:
        parts.append(f"numpy arrays of at least {units.size(arrays.most_bytes)} at once")
    if arrays.buffers_bytes >= LEAST_BUFFERS_BYTES:
        size = units.size(arrays.buffers_bytes)
        parts.append(f"buffers of Python of at least {size} at once")
        grown_bytes -= arrays.buffers_bytes
    if count := len(threads.computing):
        parts.append(f"what {units.many(count, 'thread')} of its own allocated")
    elif (unexplained_bytes := grown_bytes - arrays.most_bytes) > SLACK_BYTES:
        parts.append(f"about {units.size(unexplained_bytes)} by which its process grew beside them")
    return " and ".join(parts)
