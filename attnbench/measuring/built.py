"""A case that a measuring process has built: checked, warm, and ready to be timed lap by lap."""

import gc
import math
import time
import warnings
from statistics import median
from typing import Any

import torch
from torch.profiler import profile, supported_activities

from attnbench.attention import Card
from attnbench.devices import SYSTEM, is_out_of_memory
from attnbench.devices.disturbances import kernel_s
from attnbench.devices.host import load
from attnbench.devices.protocol import Device, Iterate, Stopwatch, ValuesAndNotes
from attnbench.devices.timing import (
    REHEARSAL_S,
    increments,
    is_away,
    is_cold,
    sample,
    spent_s,
    warm_up,
    without_faults_s,
)
from attnbench.errors import one_line
from attnbench.measuring import allocator
from attnbench.measuring.causality import leak_of
from attnbench.measuring.energy import energy
from attnbench.measuring.inputs import Iterations, some_numbers
from attnbench.measuring.oddities import Examination
from attnbench.measuring.server import Unmeasured
from attnbench.measuring.subject import Subject, subject_of
from attnbench.records import Case, Causality, Outcome, Sample, messages
from attnbench.records.notes import Note

UNHELD_S = 0.002  # of samples that show launches: long compared with one wait for the device
UNEXAMINED = "was not examined for odd behaviour, as its time or the budget would have ended"
# to collect 400 after each iteration of 6 ms took 2.5 % of the time
LITTER = 100  # objects that an iteration leaves in cycles
GARBAGE = "leaves garbage in cycles; the collector is off while laps run, and not in their time"
TRACED_S = 0.05  # short iterations are traced repeatedly
MOST_TRACED = 20


class BuiltCase:
    """One case, from its first iteration to its last; `finish` says what else was seen meanwhile.

    `iteration_s` is the time of one iteration, `cost_s` what one takes in full, and `wall_s` its
    wall time. Raises `Unmeasured`, or what the mechanism raises.

    card:   of the mechanism
    case:   what is built
    seed:   of parameters and inputs
    device: where it runs; this process is on it already
    timing: how it is timed, and what else is looked at
    """

    def __init__(
        self, card: Card, case: Case, seed: int, device: Device, timing: messages.TimedCase[Any]
    ) -> None:
        self.timing = timing
        self.device = device
        begun = time.perf_counter()
        if leak := leak_of(card, case, seed):
            takes_causal = card.causality is not Causality.TESTED
            outcome = Outcome.FAILED if takes_causal else Outcome.UNSUPPORTED
            raise Unmeasured(outcome, f"it is not causal: {leak}")
        self.subject = subject = subject_of(card, case, seed, filled=timing.filled)
        if timing.core is not None:
            SYSTEM.bind(0, {timing.core})
        self.meter = device.meter()
        self.watch = self.stopwatch()
        iterate = subject.iteration()
        prompted = subject.prefill()
        if prompted is not None and (fault := subject.check(prompted)):
            raise Unmeasured("failed", f"after the prompt, {fault}")
        device.synchronise()
        self.values = {"load_before": load(), "setup_s": time.perf_counter() - begun}
        compiling_s = self.compiling_s(iterate) if subject.compiles else 0.0
        new_faults = increments(self.meter.faults)
        new_wait_s = increments(self.meter.waited)
        mapping_s = increments(kernel_s)
        self.examination = Examination(subject, seed) if timing.suspicious else None
        first = self.first_sample(iterate)
        mapped_s = mapping_s()
        if subject.compiles:
            self.values["compile_s"] = max(0.0, compiling_s - first.wall_s)
        if timing.cuda_graphs:
            iterate = capture(device, subject)
            self.watch = self.stopwatch()
            first = sample(iterate, lambda: None, self.watch, 1)
        self.iterate = Iterations(
            subject, iterate, timing.inputs_seed, timing.cuda_graphs, timing.suspicious
        )
        limits = timing.warmup_s, new_faults, timing.faulting_s, allocator.map_ahead
        warm = warm_up(self.iterate, self.iterate.clear, self.watch, first, *limits)
        self.values |= {"warmup_s": spent_s(warm), "warmup_iterations": len(warm)}
        later_half = warm[len(warm) // 2 :]
        self.wall_s = median(spent_s([each]) for each in later_half)
        self.iteration_s = self.cost_s = median(each.seconds for each in later_half)
        if self.watch.hides_launches:  # hiding the launches of one takes longer than they do
            self.cost_s = self.wall_s = self.time_iterations(1).wall_s
        elif is_away(warm, new_wait_s()):
            self.iteration_s = self.cost_s = self.wall_s
        elif len(warm) == 1 and first.device_s is None:
            self.iteration_s = self.cost_s = without_faults_s(first, mapped_s)
        if self.examination:
            first_s = first.seconds if first.device_s else without_faults_s(first, mapped_s)
            self.examination.times.first_s = first_s
            self.examination.times.warm_s = [each.seconds for each in warm[1:]]
        self.moved = self.iterate.moved
        # a collection would disturb the samples of one process alone
        gc.collect()
        gc.disable()

    def stopwatch(self) -> Stopwatch:
        return self.device.stopwatch(self.timing.cold, self.timing.clock)

    def compiling_s(self, iterate: Iterate) -> float:
        """Seconds of an iteration that compiles everything it runs.

        What was compiled for other cases is forgotten: torch would stop after a few shapes.
        """
        torch.compiler.reset()
        begun = time.perf_counter()
        iterate(lambda phase: None)
        self.subject.clear()
        self.device.synchronise()
        return time.perf_counter() - begun

    def first_sample(self, iterate: Iterate) -> Sample:
        """The sample of the first iteration, whose output is checked. Raises `Unmeasured`."""
        outputs: list[torch.Tensor] = []
        first = sample(lambda lap: outputs.append(iterate(lap)), self.subject.clear, self.watch, 1)
        if self.examination:
            self.examination.first = some_numbers(outputs[0])
        if fault := self.subject.check(outputs.pop()):
            raise Unmeasured("failed", fault)
        return first

    def lap(self, iterations: int, rehearse: bool = False, left_s: float = math.inf) -> Sample:
        """One sample; with `rehearse`, first one iteration untimed. Raises `Unmeasured`.

        A sample that hides launches follows a short one that shows them, for its wall time. A
        disturbed one is retaken once, if the `left_s` of the budget allow it.
        """
        begun = time.perf_counter()
        unheld_s = None
        if rehearse:
            self.rehearse()
        if self.watch.hides_launches:
            count = min(iterations, math.ceil(UNHELD_S / self.iteration_s))
            unheld_s = self.time_iterations(count, hide=False).wall_s / count
        lap = self.metered_lap(iterations)
        took_s = time.perf_counter() - begun
        if self.meter.is_slow and 2 * took_s < left_s - took_s:
            if rehearse:  # the meter has used the caches too
                self.rehearse()
            lap = self.metered_lap(iterations)
        if lap.seconds <= 0:
            raise Unmeasured("failed", "by the device's clock a sample took no time")
        if self.examination and self.iterate.output is not None:
            self.examination.last = some_numbers(self.iterate.output)
            self.examination.times.laps_s.append(lap.seconds)
        return lap._replace(unheld_s=unheld_s)

    def time_iterations(self, iterations: int, hide: bool = True) -> Sample:
        return sample(self.iterate, self.iterate.clear, self.watch, iterations, hide)

    def metered_lap(self, iterations: int) -> Sample:
        """A sample, with what the meter saw of it."""
        self.iterate.prepare(iterations)
        with self.meter:
            lap = self.time_iterations(iterations)
        self.meter.judge_sample(lap)
        return lap._replace(waited_s=self.meter.waited_s, disturbed=self.meter.disturbed)

    def rehearse(self) -> None:
        """Run an iteration untimed, and further ones while pages fault."""
        end = time.perf_counter() + REHEARSAL_S
        new_faults = increments(self.meter.faults)
        rehearsal = self.time_iterations(1)
        while is_cold(new_faults(), rehearsal) and time.perf_counter() < end:
            rehearsal = self.time_iterations(1)

    def finish(self, left_s: float = math.inf) -> ValuesAndNotes:
        """Values and notes since its build began.

        Odd behaviour is looked for, and energy measured, if the `left_s` of the budget allow.
        """
        garbage = gc.collect() // max(1, self.iterate.moved - self.moved)
        values = {k: value for k, value in self.values.items() if value is not None}
        values |= {"garbage": garbage, **self.meter.values()}
        notes = {**self.device.notes(self.watch), **self.meter.notes()}
        if self.examination and self.subject.mode.examined_iterations * self.wall_s < left_s:
            begun = time.perf_counter()
            notes |= self.examination.notes(self.iterate, self.iterate_once_s)
            values["examination_s"] = time.perf_counter() - begun
        elif self.examination:
            notes[Note.UNEXAMINED] = UNEXAMINED
        if garbage > LITTER:
            notes[Note.GARBAGE] = GARBAGE
        if self.timing.energy:
            energy_values, energy_notes = energy(self.run, self.device, self.iteration_s, left_s)
            values = values | energy_values
            notes = notes | energy_notes
        return values, notes

    def iterate_once_s(self) -> float:
        """Seconds of one more iteration."""
        return self.time_iterations(1).seconds

    def run(self) -> None:
        """One iteration, untimed."""
        self.iterate.clear()
        self.iterate(lambda phase: None)

    def trace(self, path: str) -> None:
        """Write a trace of some iterations to `path`, in Chrome's format."""
        count = round(TRACED_S / max(self.iteration_s, 1e-9))
        with warnings.catch_warnings(action="ignore"):  # of the profiler, about itself
            with profile(activities=supported_activities(), profile_memory=True) as profiler:
                for _ in range(max(1, min(MOST_TRACED, count))):
                    self.run()
            profiler.export_chrome_trace(path)


def capture(device: Device, subject: Subject) -> Iterate:
    """The iteration as CUDA graphs. Raises `Unmeasured` if it cannot be captured."""
    try:
        replay = device.captured(subject)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        cause: BaseException = error  # ending a failed capture raises an error of its own
        while cause.__context__ is not None:
            cause = cause.__context__
        reason = f"a CUDA graph cannot capture it: {one_line(cause)}"
        raise Unmeasured("unsupported", reason) from error
    if fault := subject.check(replay(lambda phase: None)):
        raise Unmeasured("failed", f"replayed as CUDA graphs, {fault}")
    return replay
