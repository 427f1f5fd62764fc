"""Iterations as CUDA graphs, whose replays must compute what the iteration computes."""

import torch

from attnbench.devices.protocol import Device, Iterate
from attnbench.measure.cards import Unmeasured
from attnbench.measure.process import is_out_of_memory
from attnbench.measure.server import described
from attnbench.measure.subject import Subject

ROUNDING = 100.0  # times the machine epsilon by which outputs of the same work may differ


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
    if wrong := subject.check(replay(lambda phase: None)) or deviation(subject, replay):
        raise Unmeasured("failed", f"replayed as CUDA graphs, {wrong}")
    return replay


def deviation(subject: Subject, replay: Iterate) -> str:
    """How a replay deviates from the iteration itself, on inputs other than those captured.

    Empty where they agree, or cannot: training changes parameters, and some forms draw numbers.
    """
    if subject.mode.trains:
        return ""
    with torch.no_grad():
        for x in subject.inputs:
            x.copy_(x.flip(-1))
    iterate = subject.iteration()
    replayed, one, other = (run(lambda phase: None).clone() for run in (replay, iterate, iterate))
    if differ(one, other) or not differ(replayed, one):
        return ""
    return "the output is not that of the iteration"


def differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two outputs differ by more than the order of summation explains."""
    most = ROUNDING * torch.finfo(b.dtype).eps
    return float((a.double() - b.double()).norm()) > most * float(b.double().norm())
