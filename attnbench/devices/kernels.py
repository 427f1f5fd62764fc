"""The kernels that computed fused attention in an iteration, from the profiler's events.

torch chooses a kernel for `scaled_dot_product_attention` by device, type, shape and mask, and other
packages choose theirs, so what runs is recorded, as notes of a run. `attention_kernel` names the
operators without the backward pass: `scaled_dot_product_` followed by `flash_attention`,
`flash_attention_for_cpu`, `efficient_attention`, `cudnn_attention` or `attention_math`, the last of
which stores the weights. `attention_device_kernels` names what these operators, or compiled code,
started on a GPU.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.autograd.profiler import profile
from torch.profiler import ProfilerActivity, supported_activities

FORWARD = r"(?!\S*(?:backward|bwd))"
OF_TORCH = re.compile(rf"{FORWARD}aten::_(scaled_dot_product_\w+)")
OF_OTHERS = re.compile(rf"{FORWARD}(?=\S*(?:attention|attn|flash|fmha))(\w+::\w+)")
COMPILED = "Torch-Compiled Region"  # how the profiler calls what torch.compile has compiled


def of_attention(trace: profile, iterate: Callable[..., Any]) -> dict[str, str]:
    """The notes on an iteration on a GPU that `trace` has seen; runs one more if there is any."""
    names = names_in(trace)
    notes = operators(names)
    if notes or any(name.startswith(COMPILED) for name in names):
        notes |= started_on_gpu(iterate)
    return notes


def names_in(trace: profile) -> set[str]:
    """The names of all events."""
    results: Any = trace.kineto_results
    return {event.name() for event in results.events()}


def operators(names: Iterable[str]) -> dict[str, str]:
    """The note on the operators of attention among these names of events; empty without any.

    Those of other packages count only where torch's own did not run.
    """
    known = set(names)
    for pattern in (OF_TORCH, OF_OTHERS):
        if found := {match[1] for name in known if (match := pattern.fullmatch(name))}:
            return {"attention_kernel": ", ".join(sorted(found))}
    return {}


def started_on_gpu(iterate: Callable[..., Any]) -> dict[str, str]:
    """The note on the GPU's kernels in one iteration; empty if the profiler shows none."""
    if ProfilerActivity.CUDA not in supported_activities():
        return {}
    with profile(use_kineto=True, use_device="cuda") as trace:
        iterate(lambda phase: None)
    found: dict[str, None] = {}
    for event in trace.function_events or ():
        of_attention = OF_TORCH.fullmatch(event.name) or OF_OTHERS.fullmatch(event.name)
        if of_attention or event.name.startswith(COMPILED):
            names = (short(kernel.name) for kernel in kernels_of(event))
            found |= {name: None for name in names if of_attention or "attention" in name}
    return {"attention_device_kernels": ", ".join(found)} if found else {}


def kernels_of(event: Any) -> Iterator[Any]:
    """The kernels that an operator and those inside it started; no copies and fills."""
    yield from (kernel for kernel in event.kernels if not kernel.name.startswith("Mem"))
    for inner in event.cpu_children:
        yield from kernels_of(inner)


def short(kernel: str) -> str:
    """A kernel's name without return type, template arguments and parameters."""
    named = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    return re.split(r"[<(]", named, maxsplit=1)[0]
