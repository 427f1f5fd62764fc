"""What surrounds the samples of a case: rehearsals, meters, prefills and graphs."""

import gc
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from attnbench.devices.protocol import Device, Iterate, Meter, Stopwatch
from attnbench.devices.timing import increments, is_cold, sample, spent_s
from attnbench.measure.cards import Unmeasured
from attnbench.measure.process import is_out_of_memory
from attnbench.measure.server import described
from attnbench.measure.subject import Subject
from attnbench.records import Level, Sample
from attnbench.verify.flops import counted_flops

REHEARSAL_S = 0.1  # at most, while pages fault
COLD_S = 2.0  # a first prefill below this is mostly warm-up, and does not count
ROUNDING = 100.0  # times the machine epsilon by which outputs of the same work may differ
PREFILLS_S, PREFILLS = 0.2, 5  # most time and number of prefills that count


def take_metered(meter: Meter, take: Callable[[], Sample]) -> Sample:
    """Take a sample, and add what the meter saw of it."""
    with meter:
        taken = take()
    meter.judge_sample(taken)
    return taken._replace(waited_s=meter.waited_s, disturbed=meter.disturbed)


def run_rehearsal(take: Callable[[], Sample], faults: Callable[[], int]) -> None:
    """Run an iteration untimed, and further ones while pages fault."""
    end, faulted = time.perf_counter() + REHEARSAL_S, increments(faults)
    taken = take()
    while is_cold(faulted(), taken) and time.perf_counter() < end:
        taken = take()


def time_to_first_token(subject: Subject, watch: Stopwatch, meter: Meter) -> float | None:
    """The time to the first token: the median in seconds of a few prefills; None without a prompt.

    Raises `Unmeasured`.
    """
    output: list[torch.Tensor | None] = []

    def iterate(lap: Callable[[str], None]) -> None:
        output[:] = [subject.prefill()]
        lap("forward")

    # users wait for launches too
    take = partial(sample, iterate, lambda: None, watch, 1, hide=False)
    prefill = partial(take_metered, meter, take)
    taken = [prefill()]
    if output[0] is None:
        return None
    if wrong := subject.check(output[0]):
        raise Unmeasured("failed", f"after the prompt, {wrong}")
    if spent_s(taken) <= COLD_S:
        taken.clear()
    while spent_s(taken) < PREFILLS_S and len(taken) < PREFILLS:
        taken.append(prefill())
    return median(one.seconds if one.device_s is None else one.wall_s for one in taken)


def without_none(**values: float | None) -> dict[str, float]:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


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
    if wrong := subject.check(replay(lambda phase: None)) or replay_deviation(subject, replay):
        raise Unmeasured("failed", f"replayed as CUDA graphs, {wrong}")
    return replay


def replay_deviation(subject: Subject, replay: Iterate) -> str:
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
    if outputs_differ(one, other) or not outputs_differ(replayed, one):
        return ""
    return "the output is not that of the iteration"


def outputs_differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two outputs differ by more than the order of summation explains."""
    most = ROUNDING * torch.finfo(b.dtype).eps
    return float((a.double() - b.double()).norm()) > most * float(b.double().norm())


def check(subject: Subject) -> None:
    """Check the output and the gradients of one iteration. Raises `Unmeasured`."""
    subject.prefill()
    wrong = subject.check(subject.iteration()(lambda phase: None))
    tensors = (*subject.parameters, *subject.inputs)
    gradients = [t.grad for t in tensors if t.grad is not None]
    if not wrong and not all(gradient.isfinite().all() for gradient in gradients):
        wrong = "a gradient is not finite"
    subject.clear()
    if wrong:
        raise Unmeasured("failed", wrong)


def garbage(subject: Subject) -> int:
    """How many objects an iteration after the first leaves in cycles, to the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        subject.iteration()(lambda phase: None)
        subject.clear()
        return gc.collect()
    finally:
        gc.enable()


def counted(subject: Subject) -> dict[str, float]:
    """Parameters and forward FLOPs of a module that does not declare them."""
    is_core = subject.case.workload.level is Level.CORE
    call = subject.module.attend if is_core else subject.module
    flops = counted_flops(subject.module, *subject.inputs, subject.mask, call=call)
    return {"parameters": sum(p.numel() for p in subject.parameters), "flops": flops}
