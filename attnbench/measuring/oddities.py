"""Odd behaviour of a mechanism that ran: signs that it did not compute what was to be timed.

Timed iterations are not instrumented. Once they are done, the first one and one of the last lap,
drawn at random, must give the same output again. Then the mechanism alone is called on other
inputs, in memory like the timed ones', after its parameters have been changed a little: what is
initialised with zeros would hide what it computes. It is suspect only if several such calls, each
with other inputs and random numbers, show the same sign. Last, an iteration with the changed
parameters is timed: it must not take much longer than those of the laps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import torch
from torch import Tensor

from attnbench.measuring import causality
from attnbench.measuring.caller import Caller
from attnbench.measuring.comparing import GROSS, differs
from attnbench.measuring.draws import Draws
from attnbench.measuring.gradients import missing_gradients, vary
from attnbench.measuring.inputs import Inputs, Iterations, copy_elsewhere, some_numbers
from attnbench.measuring.responses import Responses
from attnbench.measuring.subject import Subject, without_graph
from attnbench.records import Causality, units
from attnbench.records.notes import Note

MORE = 3.0  # times as long as in laps, from which an iteration does other work
FIRST = 10.0  # the same of the first iteration, which also makes what others reuse
FIRST_S = 0.1  # that it takes longer at least
EARLY = 3  # iterations of the warm-up that are compared, after the first
INPUTS = 6  # of which each must have its own output
AGAIN = 3  # iterations with other parameters, of which the fastest counts


@dataclass
class IterationTimes:
    """Seconds of an iteration: of the first, of the next ones that warm up, and of each lap."""

    first_s: float = 0.0
    warm_s: list[float] = field(default_factory=list)
    laps_s: list[float] = field(default_factory=list)

    def slow_start(self) -> float:
        """How many times as long as in laps the first iterations took; 0 if not much longer."""
        if not self.laps_s:
            return 0.0
        usual_s = median(self.laps_s)
        if len(self.warm_s) >= EARLY:
            ratio = median(self.warm_s[:EARLY]) / usual_s
            if ratio > MORE:
                return ratio
        slow = self.first_s - usual_s > FIRST_S and self.first_s > FIRST * usual_s
        return self.first_s / usual_s if slow else 0.0


class Examination:
    """Looks at the iterations of a subject from outside, and examines its mechanism at the end.

    `first` are some numbers of the first iteration's output, `last` of the last one's as its lap
    ended.
    """

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject, self.seed, self.trains = subject, seed, subject.mode.trains
        self.caller = Caller(subject)
        self.draws = self.caller.draws()
        self.first: Tensor | None = None
        self.last: Tensor | None = None
        self.times = IterationTimes()
        self.suspect_signs = self.caller.suspect_signs
        self.odd_signs = self.caller.odd_signs

    def notes(
        self, iterations: Iterations, iterate_once_s: Callable[[], float] | None = None
    ) -> Mapping[str, str]:
        """Why it is `suspect`, so that it is not ranked, or only `odd`, or `causal` unasked.

        `iterate_once_s` gives the seconds of one more iteration, by the clock of the laps.
        """
        causal = ""
        last = self.last
        output = iterations.output
        try:
            if last is not None and output is not None and differs(some_numbers(output), last):
                self.suspect_signs["changed its output after it had returned it"] = None
            if frozen := sum(not parameter.requires_grad for parameter in self.subject.parameters):
                self.odd_signs[f"switched off the gradients of {frozen} of its parameters"] = None
            if any(module.training != self.trains for module in self.subject.module.modules()):
                self.odd_signs["switched between training and evaluation"] = None
            if not iterations.fixed:  # graphs run none of its code
                if self.trains:
                    self.iterate_again(iterations)
                else:
                    self.repeat(iterations)
                self.look_for_reuse()
                self.rewrite_parameters()
            vary(self.caller.mechanism.parameters())
            findings = Responses(self.caller).findings()
            self.suspect_signs |= dict.fromkeys(findings.suspect_signs)
            self.odd_signs |= dict.fromkeys(findings.odd_signs)
            if self.may_be_causal and not self.suspect_signs:
                causal = "" if self.sees_later_tokens() else "it sees no later token"
            if self.trains and not self.subject.compiles:
                self.suspect_signs |= dict.fromkeys(missing_gradients(self.caller))
            if iterate_once_s is not None and not iterations.fixed:
                self.time_again(iterate_once_s)
        except Exception as error:
            self.odd_signs[f"failed when it was called again, with {type(error).__name__}"] = None
        w = self.subject.case.workload
        return {
            Note.SUSPECT: "; ".join(self.suspect_signs),
            Note.ODD: "; ".join(self.odd_signs),
            Note.CAUSAL: causal,
            Note.EXAMINED: f"{w.mode}, N = {units.count(w.seq_len)}",
        }

    @property
    def may_be_causal(self) -> bool:
        """Whether only a test tells that the mechanism, which need not be causal, is."""
        w = self.subject.case.workload
        tested = self.subject.causality is Causality.TESTED
        return tested and w.seq_len > 1 and not (w.steps or w.causal)

    def sees_later_tokens(self) -> bool:
        """Whether outputs of earlier tokens change with later tokens."""
        forward = causality.with_fixed_draws(self.caller, self.caller.draws())
        return causality.leak(self.caller, forward) is not None

    def look_for_reuse(self) -> None:
        """Note if it sometimes gives for other input what it gave for the one before."""
        outputs = [self.caller.output(self.caller.new_input()) for _ in range(INPUTS)]
        repeats = sum(
            torch.equal(earlier, later) and bool(earlier.std() > 0)
            for earlier, later in pairwise(outputs)
        )
        if 0 < repeats < INPUTS - 1:  # if always, responses tell
            sign = f"gave its last output again for {repeats} of {INPUTS - 1} other inputs"
            self.suspect_signs[sign] = None

    def iterate_again(self, iterations: Iterations) -> None:
        """Note if an iteration as in laps gives another output than the same numbers elsewhere.

        In training, parameters change with each iteration, so it is one more, with those before it.
        """
        parameters = self.subject.parameters
        before = [p.detach().clone() for p in parameters]
        iterations.prepare(1)
        iterations.clear()
        iterations(ignore_phase)
        numbers = iterations.numbers
        states = iterations.draws
        with torch.no_grad():
            for p, was in zip(parameters, before, strict=True):
                p.copy_(was)
        inputs = iterations.windows(iterations.looked_at - 1)
        if numbers is None or states is None:
            return
        if not differs(repeat := self.numbers_of_repeat(states, inputs), numbers):
            return
        self.numbers_of_repeat(states, tuple(x.flip(-1) for x in inputs))
        if not torch.equal(self.numbers_of_repeat(states, inputs), repeat):
            return
        sign = "gave another output while it was timed than later for the same input"
        if differs(repeat, numbers, GROSS):
            self.suspect_signs[sign] = None
        else:
            self.odd_signs[f"{sign} (stateful?)"] = None

    def rewrite_parameters(self) -> None:
        """Note if the output depends on whether parameters were written to, by the same values."""
        x = self.caller.new_input()
        states = self.caller.draws()
        output = self.caller.output(x, states)
        if differs(self.caller.output(x, states), output):
            return
        with torch.no_grad():
            for p in self.caller.mechanism.parameters():
                p.copy_(p.clone())
        if differs(self.caller.output(x, states), output):
            sign = "gave another output once its parameters were written to, with the same values"
            self.suspect_signs[sign] = None

    def time_again(self, iterate_once_s: Callable[[], float]) -> None:
        """Note if iterations with other parameters take much longer than laps did."""
        if not self.times.laps_s:
            return
        usual_s = median(self.times.laps_s)
        iterate_once_s()
        if (ratio := min(iterate_once_s() for _ in range(AGAIN)) / usual_s) > MORE:
            sign = f"took {ratio:.0f} times as long once its parameters had changed a little"
            self.suspect_signs[sign] = None

    def repeat(self, iterations: Iterations) -> None:
        """Note if the first iteration, or one of the last lap, now gives another output.

        Not if that varies by itself, with random numbers of the mechanism's own or with what came
        before. What took much longer at first, and gave something else, did its work only then.
        """
        self.subject.inputs = self.subject.new_inputs(self.seed)
        last_inputs = iterations.windows(iterations.looked_at - 1)
        for when, numbers, states, inputs in (
            ("at first", self.first, self.draws, self.subject.inputs),
            ("while it was timed", iterations.numbers, iterations.draws, last_inputs),
        ):
            if numbers is None or states is None:
                continue
            if not differs(repeat := self.numbers_of_repeat(states, inputs), numbers):
                continue
            self.numbers_of_repeat(states, tuple(x.flip(-1) for x in inputs))  # others in between
            if not torch.equal(self.numbers_of_repeat(states, inputs), repeat):
                continue
            sign = f"gave another output {when} than later for the same input"
            gross = differs(repeat, numbers, GROSS)
            if when == "at first" and gross and (ratio := self.times.slow_start()):
                self.suspect_signs[f"{sign}, when it took {ratio:.0f} times as long"] = None
            elif when == "at first" or not gross:
                self.odd_signs[f"{sign} (stateful?)"] = None
            else:
                self.suspect_signs[sign] = None

    def numbers_of_repeat(self, states: Draws, inputs: Inputs) -> Tensor:
        """Some numbers of the output, with what an iteration uses as it was then."""
        self.subject.inputs = tuple(map(copy_elsewhere, inputs))
        self.caller.restore(states)
        with torch.set_grad_enabled(self.trains):
            output = self.subject.forward()
        return some_numbers(without_graph(output))


def ignore_phase(phase: str) -> None:
    """Take no notice of the end of a phase."""
