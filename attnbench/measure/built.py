"""A case that a measuring process has built: checked, warm, and ready to be timed lap by lap."""

import gc
import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch._dynamo.utils import counters
from torch.profiler import profile, supported_activities

from attnbench.attention.card import Card
from attnbench.devices.disturbances import kernel_s
from attnbench.devices.host import load
from attnbench.devices.protocol import Device, Iterate, Meter, Stopwatch, ValuesAndNotes
from attnbench.devices.timing import (
    increments,
    is_away,
    is_cold,
    sample,
    spent_s,
    warm_up,
    without_faults_s,
)
from attnbench.measure import allocator
from attnbench.measure.cards import Unmeasured, is_out_of_memory
from attnbench.measure.energy import energy
from attnbench.measure.inputs import Iterations, some_numbers
from attnbench.measure.oddities import Examination, is_not_causal
from attnbench.measure.server import described
from attnbench.measure.subject import Subject, subject_of
from attnbench.records import Case, Clock, Sample

UNHELD_S = 0.002  # of samples that show launches: long compared with one wait for the device
EXAMINED = 6  # iterations that the search for odd behaviour may take
UNEXAMINED = "was not examined for odd behaviour, as the budget ended"
# to collect 400 after each iteration of 6 ms took 2.5 % of the time
LITTER = 100  # objects that an iteration leaves in cycles
GARBAGE = "leaves garbage in cycles; the collector is off while laps run, and not in their time"
REHEARSAL_S = 0.1  # at most, while pages fault
COLD_S = 2.0  # a first prefill below this is mostly warm-up, and does not count
PREFILLS_S, PREFILLS = 0.2, 5  # most time and number of prefills that count
TRACED_S, MOST_TRACED = 0.05, 20  # short iterations are traced repeatedly


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How a case is timed: fields of a request's settings, and what its race adds."""

    warmup_s: float = 0.0  # most seconds of the warm-up
    faulting_s: float = 0.0  # most seconds of it while pages fault
    cold: bool = False  # whether the device's cache is flushed before each iteration
    cuda_graphs: bool = False  # whether the iteration, once checked, is captured and replayed
    energy: bool = False  # whether `finish` measures that of an iteration
    clock: str = Clock.CPU  # where there is no device time
    core: int | None = None  # to which the process is bound from now on
    inputs_seed: int = 0  # of the inputs of all iterations but the first; should be fresh
    filled: bool = False  # whether a step's state is random numbers, and not left by a prompt
    suspicious: bool = False  # whether `finish` looks for odd behaviour


class Built:
    """One case, from its first iteration to its last; `finish` says what else was seen meanwhile.

    `iteration_s` is the time of one iteration, `cost_s` what one takes in full, and `wall_s` its
    wall time. Raises `Unmeasured`, or what the mechanism raises.
    """

    def __init__(self, card: Card, case: Case, seed: int, device: Device, timing: Timing) -> None:
        self.timing, self.device = timing, device
        self.values = without_none(load_before=load())
        begun = time.perf_counter()
        if is_not_causal(card, case, seed):
            raise Unmeasured("unsupported", "later tokens change its earlier outputs")
        self.subject = subject = subject_of(card, case, seed, filled=timing.filled)
        if subject.compiles:
            load_compiler(device)
        if timing.core is not None:
            os.sched_setaffinity(0, {timing.core})
        self.meter, self.watch = device.meter(), self.stopwatch()
        iterate = subject.iteration()
        self.values["setup_s"] = time.perf_counter() - begun
        if subject.mode.steps:
            ttft_s = time_to_first_token(subject, self.stopwatch(), device.meter())
            self.values |= without_none(ttft_s=ttft_s)
        compiling_s = self.compiling_s(iterate) if subject.compiles else 0.0
        faulted, waited = increments(self.meter.faults), increments(self.meter.waited)
        self.examination = Examination(subject, seed) if timing.suspicious else None
        first = self.checked(iterate)
        if subject.compiles:
            self.values["compile_s"] = max(0.0, compiling_s - first.wall_s)
        if timing.cuda_graphs:
            iterate, self.watch = captured(device, subject), self.stopwatch()
            first = sample(iterate, lambda: None, self.watch, 1)
        self.iterate = Iterations(
            subject, iterate, timing.inputs_seed, timing.cuda_graphs, timing.suspicious
        )
        self.warm_up(first, faulted, waited)
        self.graphs, self.moved = graphs(), self.iterate.moved
        # a collection would disturb the samples of one process alone
        gc.collect()
        gc.disable()

    def stopwatch(self) -> Stopwatch:
        return self.device.stopwatch(self.timing.cold, Clock(self.timing.clock))

    def compiling_s(self, iterate: Iterate) -> float:
        """Seconds of an iteration that compiles everything it runs."""
        begun = time.perf_counter()
        iterate(lambda phase: None)
        self.subject.clear()
        self.device.synchronise()
        return time.perf_counter() - begun

    def checked(self, iterate: Iterate) -> Sample:
        """The sample of the first iteration, whose output is checked. Raises `Unmeasured`."""
        kept: list[torch.Tensor] = []
        mapping_s = increments(kernel_s)
        taken = sample(lambda lap: kept.append(iterate(lap)), self.subject.clear, self.watch, 1)
        self.mapping_s = mapping_s()
        if self.examination:
            self.examination.first = some_numbers(kept[0])
        if wrong := self.subject.check(kept.pop()):
            raise Unmeasured("failed", wrong)
        return taken

    def warm_up(
        self, first: Sample, faulted: Callable[[], int], waited: Callable[[], float]
    ) -> None:
        """Warm up after the `first` iteration, and tell from the end of it what one takes."""
        warm = warm_up(
            self.iterate,
            self.iterate.clear,
            self.watch,
            first,
            self.timing.warmup_s,
            faulted,
            self.timing.faulting_s,
            allocator.map_ahead,
        )
        self.values |= {"warmup_s": spent_s(warm), "warmup_iterations": len(warm)}
        late = warm[len(warm) // 2 :]
        self.wall_s = median(spent_s([each]) for each in late)
        self.iteration_s = median(each.seconds for each in late)
        if len(warm) == 1 and first.device_s is None:
            self.iteration_s = without_faults_s(first, self.mapping_s)
        self.cost_s = self.iteration_s
        if self.watch.hides_launches:  # hiding the launches of one takes longer than they do
            self.cost_s = self.wall_s = self.timed(1).wall_s
        elif is_away(warm, waited()):
            self.iteration_s = self.cost_s = self.wall_s

    def lap(self, iterations: int, rehearse: bool = False, left_s: float = math.inf) -> Sample:
        """One sample; with `rehearse`, first one iteration untimed. Raises `Unmeasured`.

        A sample that hides launches follows a short one that shows them, for its wall time. A
        disturbed one is retaken once, if the `left_s` of the budget allow it.
        """
        begun, unheld_s = time.perf_counter(), None
        if rehearse:
            self.rehearse()
        if self.watch.hides_launches:
            count = min(iterations, math.ceil(UNHELD_S / self.iteration_s))
            unheld_s = self.timed(count, hide=False).wall_s / count
        taken = self.taken_once(iterations)
        took_s = time.perf_counter() - begun
        if self.meter.is_slow and 2 * took_s < left_s - took_s:
            if rehearse:  # the meter has used the caches too
                self.rehearse()
            taken = self.taken_once(iterations)
        if taken.seconds <= 0:
            raise Unmeasured("failed", "by the device's clock a sample took no time")
        if self.examination and self.iterate.output is not None:
            self.examination.last = some_numbers(self.iterate.output)
        return taken._replace(unheld_s=unheld_s)

    def timed(self, iterations: int, hide: bool = True) -> Sample:
        return sample(self.iterate, self.iterate.clear, self.watch, iterations, hide)

    def taken_once(self, iterations: int) -> Sample:
        """A sample, with what the meter saw of it."""
        self.iterate.prepare(iterations)
        return metered(self.meter, partial(self.timed, iterations))

    def rehearse(self) -> None:
        """Run an iteration untimed, and further ones while pages fault."""
        end, faulted = time.perf_counter() + REHEARSAL_S, increments(self.meter.faults)
        taken = self.timed(1)
        while is_cold(faulted(), taken) and time.perf_counter() < end:
            taken = self.timed(1)

    def finish(self, left_s: float = math.inf) -> ValuesAndNotes:
        """Values and notes since its build began.

        Odd behaviour is looked for, and energy measured, if the `left_s` of the budget allow.
        """
        garbage = gc.collect() // max(1, self.iterate.moved - self.moved)
        values = {**self.values, "garbage": garbage, **self.meter.values()}
        values |= without_none(load_after=load())
        if (recompiles := graphs() - self.graphs) or self.subject.compiles:
            values["recompiles"] = recompiles
        notes = {**self.device.notes(self.watch), **self.meter.notes()}
        if self.examination and EXAMINED * self.iteration_s < left_s:
            notes |= self.examination.notes(self.iterate)
        elif self.examination:
            notes["unexamined"] = UNEXAMINED
        if recompiles:
            again = "was compiled again while it was timed"
            notes["recompiled"] = f"{again} (new graphs: {recompiles})"
        if garbage > LITTER:
            notes["garbage"] = GARBAGE
        if self.timing.energy:
            more, said = energy(self.run, self.device, self.iteration_s, left_s)
            values, notes = values | more, notes | said
        return values, notes

    def run(self) -> None:
        """One iteration, untimed."""
        self.iterate.clear()
        self.iterate(lambda phase: None)

    def trace(self, path: str) -> None:
        """Write a trace of some iterations to `path`, in Chrome's format."""
        count = round(TRACED_S / max(self.iteration_s, 1e-9))
        with warnings.catch_warnings(action="ignore"):  # of the profiler, about itself
            with profile(activities=supported_activities(), profile_memory=True) as recorded:
                for _ in range(max(1, min(MOST_TRACED, count))):
                    self.run()
            recorded.export_chrome_trace(path)


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
    if wrong := subject.check(replay(lambda phase: None)):
        raise Unmeasured("failed", f"replayed as CUDA graphs, {wrong}")
    return replay


def load_compiler(device: Device) -> None:
    """Forget what was compiled for other cases, and load the compiler with all its parts.

    Otherwise the first case of a process would pay for loading, and torch would stop compiling a
    mechanism after a few shapes.
    """
    torch.compiler.reset()
    torch.compile(lambda x: x + 1, dynamic=False)(torch.zeros(2, device=device.torch_name))


def graphs() -> int:
    """How many graphs torch.compile has compiled in this process so far."""
    return counters["stats"]["unique_graphs"]


def metered(meter: Meter, take: Callable[[], Sample]) -> Sample:
    """Take a sample, and add what the meter saw of it."""
    with meter:
        taken = take()
    meter.judge_sample(taken)
    return taken._replace(waited_s=meter.waited_s, disturbed=meter.disturbed)


def time_to_first_token(subject: Subject, watch: Stopwatch, meter: Meter) -> float | None:
    """The time to the first token: the median in seconds of a few prefills; None without a prompt.

    Raises `Unmeasured`.
    """
    output: list[torch.Tensor | None] = []

    def iterate(lap: Callable[[str], None]) -> None:
        output[:] = [subject.prefill()]
        lap("forward")

    # users wait for launches too
    prefill = partial(metered, meter, partial(sample, iterate, lambda: None, watch, 1, hide=False))
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
