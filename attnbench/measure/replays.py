"""Iterations as CUDA graphs, whose replays must compute what the iteration computes."""

import torch

from attnbench.devices.protocol import Device, Iterate
from attnbench.measure.cards import Unmeasured
from attnbench.measure.oddities import differs
from attnbench.measure.server import described
from attnbench.measure.subject import Subject

# how torch and CUDA's libraries report a refused allocation; the last is how torch's allocator
# fails on a MIG instance, or in a container, when it asks NVML what is free
OUT_OF_MEMORY = (
    *("can't allocate memory", "out of memory", "not enough memory"),
    *("cublas_status_alloc_failed", "cublas_status_not_initialized", "cudnn_status_alloc_failed"),
    *("cufft_alloc_failed", "cusolver_status_alloc_failed"),
    "nvml_success == r internal assert failed",
)


def captured(device: Device, subject: Subject) -> Iterate:
    """The iteration as CUDA graphs. Raises `Unmeasured` if it cannot be captured."""
    try:
        replay = device.captured(subject)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        first: BaseException = error  # ending a failed capture raises an error of its own
        while first.__context__ is not None:
            first = first.__context__
        reason = f"a CUDA graph cannot capture it: {described(first)}"
        raise Unmeasured("unsupported", reason) from error
    wrong = subject.check(replay(lambda phase: None))
    if not wrong and not subject.mode.trains and deviates(subject, replay):
        wrong = "the output is not that of the iteration"
    if wrong:
        raise Unmeasured("failed", f"replayed as CUDA graphs, {wrong}")
    return replay


def deviates(subject: Subject, replay: Iterate) -> bool:
    """Whether a replay gives another output than the iteration on inputs other than the captured.

    Not if iterations give other outputs too, as some forms draw numbers.
    """
    with torch.no_grad():
        for x in subject.inputs:
            x.copy_(x.flip(-1))
    iterate = subject.iteration()
    replayed, one, other = (run(lambda phase: None).clone() for run in (replay, iterate, iterate))
    return differs(replayed, one) and not differs(one, other)


def is_out_of_memory(error: BaseException) -> bool:
    """torch reports a refused allocation as a RuntimeError on a CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in OUT_OF_MEMORY)
