"""Odd behaviour of a mechanism that ran: signs that it did not compute what was to be timed.

Timed iterations are not instrumented. Once they are done, the first one and one of the last lap,
drawn at random, must give the same output again. Then the mechanism alone is called on other
inputs, in memory like the timed ones', after its parameters have been changed a little: what is
initialised with zeros would hide what it computes. It is suspect only if several such calls, each
with other inputs and random numbers, show the same sign.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from attnbench.attention.card import Card
from attnbench.attention.contract import Attention
from attnbench.measure.inputs import Inputs, Iterations, draws, elsewhere, redraw, some_numbers
from attnbench.measure.subject import Subject, plain, subject_of
from attnbench.records import Case, Causality, Level

# Outputs differ if more than this share of the numbers of a sequence do: where rounding chooses
# among almost equal tokens, a few of them differ.
SHARE = 0.1
# Numbers differ if by more than this share of their usual size, or by `STEPS` of the type;
# `GROSS` is more than the state of a mechanism changes within a lap.
TOLERANCE, STEPS, GROSS = 1e-4, 4, 0.5
ROUNDING = 1e-5  # by which a causal Fourier transform lets later tokens change earlier outputs
TRIES = 8  # that must show a sign before it is believed
# what it may ignore: along which dimension one is replaced
TOKENS, CHANNELS = -2, -1
# Share of the comparisons that must show it, half of it while more are to come. An honest mechanism
# may drop a token where an expert has no room for it, but seldom both it and what replaces it.
IGNORED = 0.4
# Share of the tokens that a mechanism may return as they were: those that are always the same ones,
# which is most of them unless their contents decide.
PASSED_ON, ALWAYS = 0.1, 0.9
UNTRAINED = 0.75  # share of its parameters that may lack a gradient
SMALL = 1e-3  # change of a token to which only what chooses among codes does not respond


class Examination:
    """Looks at the iterations of a subject from outside, and examines its mechanism at the end.

    `first` are some numbers of the first iteration's output, `last` of the last one's as its lap
    ended.
    """

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject, self.seed, self.trains = subject, seed, subject.mode.trains
        self.draws = draws(subject.device)
        self.first: Tensor | None = None
        self.last: Tensor | None = None
        modules = subject.module.modules()
        self.mechanism: Any = next(m for m in modules if isinstance(m, Attention))
        self.suspect, self.odd = dict[str, None](), dict[str, None]()

    def notes(self, iterations: Iterations) -> Mapping[str, str]:
        """Why it is `suspect`, so that it is not ranked, or only `odd`, or `causal` unasked."""
        causal, last, output = "", self.last, iterations.output
        try:
            if last is not None and output is not None and differs(some_numbers(output), last):
                self.suspect["changed its output after it had returned it"] = None
            if frozen := sum(not parameter.requires_grad for parameter in self.subject.parameters):
                self.odd[f"switched off the gradients of {frozen} of its parameters"] = None
            if any(module.training != self.trains for module in self.subject.module.modules()):
                self.odd["switched between training and evaluation"] = None
            if not (self.trains or iterations.fixed):  # graphs run none of its code
                self.repeat(iterations)
            vary(self.mechanism.parameters())
            self.suspect |= dict.fromkeys(self.signs())
            if self.is_tested and not (self.suspect or self.subject.case.workload.causal):
                causal = "" if self.sees_later_tokens() else "it sees no later token"
            if self.trains and not self.subject.compiles:
                self.look_at_gradients()
        except Exception as error:
            self.odd[f"failed when it was called again, with {type(error).__name__}"] = None
        signs = {"suspect": "; ".join(self.suspect), "odd": "; ".join(self.odd), "causal": causal}
        return {**signs, "examined": "yes"}

    @property
    def is_tested(self) -> bool:
        """Whether only a test tells that the mechanism is causal."""
        w = self.subject.case.workload
        return self.subject.causality is Causality.TESTED and w.seq_len > 1 and not w.steps

    def sees_later_tokens(self) -> bool:
        """Whether outputs of the first token, or of the first half, change with later tokens."""
        states, x = draws(self.subject.device), self.fresh()
        usual = self.output(x, states).float()
        least = max(ROUNDING, torch.finfo(self.subject.dtype).eps) * usual.square().mean().sqrt()
        for known in (1, x[0].shape[-2] // 2):
            other = self.fresh()
            with torch.no_grad():
                for new, old in zip(other, x, strict=True):
                    new[..., :known, :] = old[..., :known, :]
            changes = (self.output(other, states).float() - usual)[..., :known, :].abs()
            if changes.max() > least:
                return True
        return False

    def repeat(self, iterations: Iterations) -> None:
        """Note if the first iteration, or one of the last lap, now gives another output.

        Not if that varies by itself, with random numbers of the mechanism's own or with what came
        before.
        """
        self.subject.inputs = self.subject.drawn(self.seed)
        given = iterations.windows(iterations.looked_at - 1)
        for when, numbers, states, inputs in (
            ("at first", self.first, self.draws, self.subject.inputs),
            ("while it was timed", iterations.numbers, iterations.draws, given),
        ):
            if numbers is None or not differs(again := self.again(states, inputs), numbers):
                continue
            self.again(states, tuple(x.flip(-1) for x in inputs))  # others in between
            if not torch.equal(self.again(states, inputs), again):
                continue
            sign = f"gave another output {when} than later for the same input"
            if when == "at first" or not differs(again, numbers, GROSS):
                self.odd[f"{sign} (stateful?)"] = None
            else:
                self.suspect[sign] = None

    def again(self, states: list[Tensor], inputs: Inputs) -> Tensor:
        """Some numbers of the output, with what an iteration uses as it was then."""
        self.subject.inputs = tuple(map(elsewhere, inputs))
        redraw(states, self.subject.device)
        with torch.no_grad():
            return some_numbers(plain(self.subject.forward()))

    def signs(self) -> Iterator[str]:
        """Signs that it does not use its input, or only a part of it."""
        hits, compared, passed = Counter[int](), 0, list[Tensor]()
        for number in range(1, TRIES + 1):
            y = self.output(x := self.fresh())
            passed.append(self.passed_on(x, y))
            kept = min(1, len(y) - 1)  # sequences that stay: others are not to be computed from one
            for dim in (TOKENS, CHANNELS):
                other = self.output(self.replaced(x, dim, kept))
                hits[dim] += sum(map(torch.equal, y[kept:], other[kept:]))
            compared += len(y) - kept
            least = (IGNORED if number == TRIES else IGNORED / 2) * compared
            tokens = torch.stack(passed)
            always, usual = (float(each.double().mean()) for each in (tokens.all(0), tokens))
            if always <= max(PASSED_ON, ALWAYS * usual):
                always = 0.0
            if not always and max(hits.values()) < least:
                return
        if hits[TOKENS] == hits[CHANNELS] == compared:
            yield "gave the same output for other input"
            return
        if hits[TOKENS] >= least:
            yield "ignored tokens of its input"
        if hits[CHANNELS] >= least:
            yield "ignored channels of its input"
        if always:
            yield f"returned {always:.0%} of its input as it was"

    def passed_on(self, x: Inputs, y: Tensor) -> Tensor:
        """Which tokens [B, N] of x come out as they were; of a core, all or none."""
        if self.subject.case.workload.level is not Level.CORE:
            return (y == x[0]).all(-1) if y.shape == x[0].shape else torch.zeros(1, 1)
        # the core of one token gives its value, as softmax over one key does
        return torch.tensor([[y.shape[-2] > 1 and any(torch.equal(y, each) for each in x)]])

    def replaced(self, x: Inputs, dim: int, kept: int) -> Inputs:
        """x with one random token or channel of each sequence drawn anew, but of those `kept`.

        Further inputs of a core may have other sizes, and stay.
        """
        size, mask = x[0].shape[dim], self.subject.mask
        real = size if mask is None or dim == CHANNELS else int(mask[0].sum())
        mixed, chosen = tuple(map(elsewhere, x)), torch.randint(real, (len(x[0]),)).tolist()
        with torch.no_grad():
            for each in (each for each in mixed if each.shape[dim] == size):
                for sequence, place in list(zip(each, chosen, strict=True))[kept:]:
                    sequence.select(dim, place).normal_(generator=self.subject.generator)
        return mixed

    def look_at_gradients(self) -> None:
        """Note if its backward pass does not compute gradients of its output."""
        x, states = self.fresh(), draws(self.subject.device)
        near = tuple(each.detach().clone().requires_grad_() for each in x)
        with torch.no_grad():
            for each in near:
                each[0].select(-2, 0).mul_(1 + SMALL)
        usual, changed = self.output(x, states), self.output(near, states)
        # the gradients of codes, for which inputs are rounded, are estimates
        rounded = (changed[0] - usual[0]).abs().max() <= TOLERANCE * usual.square().mean().sqrt()
        if rounded or differs(self.output(x, states), usual):
            return
        self.subject.clear()
        redraw(states, self.subject.device)
        y = self.call(x)
        y.backward(torch.randn_like(y))
        trained = [p for p in self.mechanism.parameters() if p.requires_grad]
        missing = [p for p in trained if p.grad is None or not p.grad.any()]
        vary(missing)
        if len(missing) > UNTRAINED * len(trained) and differs(self.output(x, states), usual):
            of = f"{len(missing)} of the {len(trained)} parameters it uses"
            self.suspect[f"gave no gradient to {of}"] = None

    def fresh(self) -> Inputs:
        """Other inputs for the mechanism."""
        subject, w = self.subject, self.subject.case.workload
        if w.level is Level.MODEL:
            return (subject.normal(w.batch, w.seq_len, w.width),)
        return tuple(elsewhere(subject.normal(*x.shape)) for x in subject.inputs)

    def output(self, x: Inputs, states: list[Tensor] | None = None) -> Tensor:
        """A copy of the mechanism's output, whose buffer it may keep; `states` of draws, if any."""
        if states:
            redraw(states, self.subject.device)
        return self.call(x).detach().clone()

    def call(self, x: Inputs) -> Tensor:
        """The mechanism's output, with its graph in training; notes what is odd about the call."""
        subject, before = self.subject, [each.detach().clone() for each in x]
        with torch.set_grad_enabled(self.trains):
            if subject.case.workload.level is Level.MODEL:
                y = self.mechanism(*x, subject.mask)
            else:
                subject.inputs = x
                y = subject.forward()
            if torch.is_grad_enabled() != self.trains:
                self.odd["left gradients switched " + ("off" if self.trains else "on")] = None
        if y.requires_grad and not self.trains:
            self.odd["recorded gradients in inference"] = None
        if y.dtype != x[0].dtype:
            self.odd[f"returned {y.dtype} for {x[0].dtype}"] = None
        if not all(map(torch.equal, before, x)):
            self.suspect["changed its input in place"] = None
        result: Tensor = y
        return result


def is_not_causal(card: Card, case: Case, seed: int) -> bool:
    """Whether a test shows that a mechanism is not causal which should be."""
    if card.causality is not Causality.TESTED or not case.workload.causal:
        return False
    examination = Examination(subject_of(card, case, seed), seed)
    vary(examination.mechanism.parameters())
    return examination.is_tested and examination.sees_later_tokens()


def vary(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Change all numbers a little; they keep their signs, and zeros become positive."""
    with torch.no_grad():
        for p in parameters:
            if p.is_floating_point():
                noise = torch.rand_like(p)
                p.copy_(torch.where(p == 0, 0.1 * noise, p * (0.9 + 0.2 * noise)))


def differs(output: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Whether more differs than rounding explains, in all numbers or in one sequence [B, …]."""
    if output.shape != expected.shape:
        return True
    usual = expected.float().square().mean().sqrt()
    limit = max(tolerance, STEPS * torch.finfo(expected.dtype).eps) * usual
    wrong = ~((output.float() - expected.float()).abs() <= limit)
    shares = wrong.double().reshape(len(wrong) if wrong.dim() > 1 else 1, -1).mean(1)
    return bool((shares > SHARE).any())
