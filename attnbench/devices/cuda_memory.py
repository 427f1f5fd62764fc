"""Memory of the current CUDA device: torch's exact peaks, and the driver's view of a process."""

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import profile

from attnbench.devices import kernels, nvml
from attnbench.devices.counting import FUSED, Counter
from attnbench.devices.protocol import Unavailable, ValuesAndNotes
from attnbench.records.notes import Note


def profile_memory(build: Callable[[], Any], uuid: str) -> ValuesAndNotes:
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
    before = torch.cuda.memory_allocated()
    saved: dict[str, int] = {}
    with profile() as trace:
        subject.prefill()
        iterate(lambda phase: saved.update({phase: torch.cuda.memory_allocated() - before}))
        torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    process, hidden = process_bytes(uuid)
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
    values = subject.with_state(values)
    notes = dict[str, str]()
    values["kept_bytes"] -= values.get("state_bytes", 0)
    values |= process
    notes |= hidden
    if subject.compiles:
        notes[Note.OPERATORS] = FUSED
    else:
        with Counter() as counter:
            iterate(lambda phase: None)
        values |= counter.values
        notes |= counter.notes
    subject.clear()
    of_kernels, named = kernels.started_on_gpu(iterate)
    return values | of_kernels, notes | kernels.operators(kernels.names_in(trace)) | named


def process_bytes(uuid: str) -> ValuesAndNotes:
    """What the driver charges to this process, tensors or not, or why that is hidden.

    After an iteration that is the most it took: torch keeps what it has reserved.
    """
    try:
        held = nvml.process_bytes(uuid)
    except Unavailable as error:
        return {}, {Note.NVML: str(error)}
    context = held - torch.cuda.memory_reserved()
    return {"device_process_bytes": held, "context_bytes": context}, {}


def free_workspaces() -> int:
    """Free what cuBLAS keeps allocated between calls; returns its bytes."""
    before = torch.cuda.memory_allocated()
    if clear := getattr(torch._C, "_cuda_clearCublasWorkspaces", None):
        clear()
    return int(before - torch.cuda.memory_allocated())
