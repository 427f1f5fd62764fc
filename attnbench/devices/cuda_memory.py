"""Memory of the current CUDA device: torch's exact peaks, and the driver's view of a process."""

import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Self

import torch
from torch.autograd.profiler import profile

from attnbench.devices import kernels, nvml
from attnbench.devices.counting import FUSED, Counter
from attnbench.devices.protocol import Built, Unavailable, ValuesAndNotes


def profile_memory(build: Callable[[], Built], uuid: str) -> ValuesAndNotes:
    """Allocated and reserved peak, saved bytes, counts, and the process's peak from NVML.

    The first iteration warms up (autotuning allocates), the second is measured, operators are
    counted in the third, and the GPU's kernels recorded in a fourth. Peaks of decoding include its
    prefill. What is allocated already, and the workspaces of cuBLAS, are not part of the allocated
    peak. The context includes the code of all kernels that the process has run.
    """
    gc.collect()
    free_workspaces()
    torch.cuda.empty_cache()
    left = torch.cuda.memory_allocated()
    subject = build()
    iterate = subject.iteration()
    subject.prefill()
    iterate(lambda phase: None)
    subject.clear()
    subject.state = None
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # otherwise what the warm-up reserved would count
    torch.cuda.reset_peak_memory_stats()
    before, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    saved: dict[str, int] = {}
    with profile() as trace, Peak(partial(nvml.process_bytes, uuid)) as seen:
        subject.prefill()
        iterate(lambda phase: saved.update({phase: torch.cuda.memory_allocated() - before}))
        torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    subject.clear()
    kept = torch.cuda.memory_allocated() - before
    workspace = free_workspaces()  # the warm-up allocated them
    values: dict[str, float] = {
        "allocated_peak_bytes": peak - left - workspace,
        "allocated_delta_bytes": peak - before,
        "reserved_peak_bytes": torch.cuda.max_memory_reserved(),
        "saved_bytes": saved["forward"],
        "kept_bytes": kept,
        "workspace_bytes": workspace,
    }
    if not seen.hidden:
        values |= {"device_process_bytes": seen.peak, "context_bytes": seen.first - reserved}
    values, notes = subject.with_state(values), dict[str, str]()
    values["kept_bytes"] -= values.get("state_bytes", 0)
    if seen.hidden:
        notes["nvml"] = seen.hidden
    if subject.compiles:
        notes["operators"] = FUSED
    else:
        with Counter() as counter:
            iterate(lambda phase: None)
        values |= counter.values
        notes |= counter.notes
    subject.clear()
    of_kernels, named = kernels.started_on_gpu(iterate)
    return values | of_kernels, notes | kernels.operators(kernels.names_in(trace)) | named


def free_workspaces() -> int:
    """Free what cuBLAS keeps allocated between calls; returns its bytes."""
    before = torch.cuda.memory_allocated()
    if clear := getattr(torch._C, "_cuda_clearCublasWorkspaces", None):
        clear()
    return int(before - torch.cuda.memory_allocated())


class Peak:
    """The first and the largest answer of `ask`, in bytes, while the `with` block runs; `hidden`
    says why there is none.

    A thread calls it every `PERIOD_S` and once at the end, since a short iteration may fall between
    two calls.
    """

    PERIOD_S = 0.002

    def __init__(self, ask: Callable[[], int]) -> None:
        self.ask = ask

    def __enter__(self) -> Self:
        self.first, self.hidden = 0, ""
        try:
            self.first = self.ask()
        except Unavailable as error:
            self.hidden = str(error)
        self.peak, self._done = self.first, threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _poll(self) -> None:
        over = False
        while not over:
            over = self._done.wait(self.PERIOD_S)
            with suppress(Unavailable):
                self.peak = max(self.peak, self.ask())
