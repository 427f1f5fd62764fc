"""Memory that torch's allocator does not count: arrays of numpy, and what other threads allocate.

The peaks of a CPU are those of torch in the thread that computes (`devices.memory`). A module of
others may keep its numbers in numpy, which tells `tracemalloc` what it allocates, or compute in
threads of its own.
"""

import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch import Tensor

from attnbench import units
from attnbench.devices.protocol import Iterate

# The domain in which numpy reports its arrays (`numpy.lib.tracemalloc_domain`)
NUMPY = 389047
LEAST_BYTES = 1 << 14  # of arrays that are worth a word
MORE = 1.05  # times the traced memory of the last look at which to look again


class Threads:
    """Threads that started while they were watched, and in which of them tensors were used."""

    def __init__(self) -> None:
        self.computing = set[threading.Thread]()  # as numbers of threads come again

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch threads that start within the block; others stay as they are."""
        threading.setprofile(self.look)  # for threads that start from now on
        try:
            yield
        finally:
            threading.setprofile(None)

    def look(self, frame: FrameType, event: str, given: Any) -> None:
        """Called within such a thread whenever a function begins or ends."""
        if event != "return":
            return
        if isinstance(given, Tensor) or any(isinstance(v, Tensor) for v in frame.f_locals.values()):
            self.computing.add(threading.current_thread())
            sys.setprofile(None)  # of this thread


class Arrays:
    """The most bytes of numpy arrays that were seen at once while functions began or ended.

    An array that comes and goes between two of these moments is not seen.
    """

    def __init__(self) -> None:
        self.most_bytes = 0
        self.traced_bytes = 0.0

    def look(self, frame: FrameType, event: str, given: Any) -> None:
        """Look at all arrays if memory has grown since they were last looked at."""
        traced_bytes = tracemalloc.get_traced_memory()[0]
        if traced_bytes < MORE * self.traced_bytes + LEAST_BYTES / 2:
            return
        self.traced_bytes = traced_bytes
        domain = tracemalloc.DomainFilter(inclusive=True, domain=NUMPY)
        arrays = tracemalloc.take_snapshot().filter_traces([domain])
        self.most_bytes = max(self.most_bytes, sum(trace.size for trace in arrays.traces))

    def run(self, iterate: Iterate) -> None:
        """Run an iteration, and look at what it allocates."""
        others, traced = sys.getprofile(), tracemalloc.is_tracing()
        if not traced:
            tracemalloc.start()
        sys.setprofile(self.look)
        try:
            iterate(lambda phase: None)
        finally:
            sys.setprofile(others)
            if not traced:
                tracemalloc.stop()


def said(arrays: Arrays, threads: Threads) -> str:
    """What peaks miss, in words; empty if nothing was seen."""
    parts = []
    if arrays.most_bytes >= LEAST_BYTES:
        parts.append(f"numpy arrays of at least {units.size(arrays.most_bytes)} at once")
    if count := len(threads.computing):
        parts.append(f"what {units.many(count, 'thread')} of its own allocated")
    return " and ".join(parts)
