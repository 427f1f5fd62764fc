"""The kernels that computed fused attention in an iteration, from the profiler's events.

torch chooses a kernel for `scaled_dot_product_attention` by device, type, shape and mask, and other
packages choose theirs, so what runs is recorded, as notes of a run. `attention_kernel` names the
operators without the backward pass: `scaled_dot_product_` followed by `flash_attention`,
`flash_attention_for_cpu`, `efficient_attention`, `cudnn_attention` or `attention_math`, the last of
which stores the weights. `arithmetic` says how they multiply float32 on a GPU where that is not one
product in float32. Of all kernels of an iteration on a GPU the number is recorded.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile
from torch.profiler import ProfilerActivity, supported_activities

from attnbench.devices.protocol import ValuesAndNotes
from attnbench.records import SPLIT
from attnbench.records.notes import Note

FORWARD = r"(?!\S*(?:backward|bwd))"
TORCH_ATTENTION = re.compile(rf"{FORWARD}aten::_(scaled_dot_product_\w+)")
OTHER_ATTENTION = re.compile(rf"{FORWARD}(?=\S*(?:attention|attn|flash|fmha))(\w+::\w+)")
# torch's memory-efficient attention in float32, by the architecture that it was compiled for. From
# 8.0 on it multiplies on tensor cores (`OpMultiplyAddFastF32` in gemm_kernel_utils.h of torch)
EFFICIENT = re.compile(r".*fmha_cutlass\w_f32_\w*sm(\d+)")
SPLIT_FROM = 80


def names_in(trace: profile) -> set[str]:
    """The names of all events."""
    results: Any = trace.kineto_results
    return {event.name() for event in results.events()}


def operators(names: Iterable[str]) -> dict[str, str]:
    """The note on the attention operators among these event names; empty without any.

    Those of other packages count only where torch's own did not run.
    """
    known = set(names)
    for pattern in (TORCH_ATTENTION, OTHER_ATTENTION):
        if found := {match[1] for name in known if (match := pattern.fullmatch(name))}:
            return {Note.ATTENTION_KERNEL: ", ".join(sorted(found))}
    return {}


def started_on_gpu(iterate: Callable[..., Any]) -> ValuesAndNotes:
    """Values and notes on the GPU's kernels in one iteration; none if the profiler shows none."""
    if ProfilerActivity.CUDA not in supported_activities():
        return {}, {}
    with profile(use_kineto=True, use_device="cuda") as trace:
        iterate(lambda phase: None)
    events = trace.function_events or ()
    ran = [
        event.name
        for event in events
        if event.device_type is not DeviceType.CPU and not event.is_user_annotation
    ]
    kernels = [name for name in ran if not name.startswith("Mem")]
    split = any((found := EFFICIENT.match(name)) and int(found[1]) >= SPLIT_FROM for name in ran)
    values = {"kernels": float(len(kernels))} if ran else {}
    return values, {Note.ARITHMETIC: SPLIT} if split else {}
