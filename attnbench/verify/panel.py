"""Whether a form keeps its digits: on usual inputs, and on those that break kernels.

Every row of a panel has the inputs of one stress, which replace tensors of the core by name
(`attention.core`). Errors of the output and of each gradient are relative to the largest number of
the same tensor, or to `NOISE` of the largest gradient if that is more: what cancels to less has
the rounding of what it was, and a parameter's gradient sums that of all tokens. They are against
the form `eager` in float64, and beyond `EXACT` tokens against the default form in float64, which
takes a small part of the time; the contract compares both with the equations.

The default form's own error, in the same number type on the same inputs, says what a stress costs
any sound arithmetic. A form passes within the tolerance of the number type, or within `FACTOR`
times the default form's error: of one recurrence, a loop over tokens and chunks differed up to
4.5 times. Under stress a form may have `fewer digits`, down to half of them, and is still steady.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf, isfinite, isnan, sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnbench.attention.card import Card, Tolerance
from attnbench.attention.contract import CoreAttention
from attnbench.attention.core import LAYER, computed, tensor_names, usual
from attnbench.devices.finding import find
from attnbench.records import Level, Workload
from attnbench.verify.stress import BFLOAT16, LONG, STRESSES, USUAL, Stress, Tensors
from attnbench.verify.trial import (
    NotApplicable,
    Trial,
    core_inputs,
    in_dtype,
    same_draws,
    seeded,
    tokens,
    trials,
)

BAD = ("imprecise", "wrong", "not finite")  # verdicts on an error
RIGHT, STEADY = "right", "steady"
WIDTH, TOKENS, LONG_TOKENS, LONGEST = 128, 512, 1024, 65_536
EXACT = 128  # tokens up to which errors are against the form `eager`
SLACK, FACTOR, NOISE = 4.0, 10.0, 0.1
ROUNDED = 1e-2  # a larger error is no matter of rounding
MOST_FLOPS, MOST_ELEMENTS, MOST_S = 2e10, 1 << 28, 20.0  # of the longest sequence

Row = dict[str, Any]


class Values(NamedTuple):
    """An output, and gradients by name where there is a backward pass."""

    output: Tensor
    gradients: Tensors


def panel(trial: Trial, dtype: torch.dtype = torch.float32) -> Iterator[Row]:
    """A row for each of the usual and of the stressed inputs of a form.

    It has `part` (right or steady), `inputs`, `tokens`, `dtype`, and by the name of a tensor its
    `errors`, those of its `rival`, the default form, and what is `allowed`; also the `worst` of
    the names, a `verdict` (passed, fewer digits, imprecise, wrong, not finite, refused, failed)
    and its `reason`, and whether it `passes`.
    """
    for seq_len in (1, 100, TOKENS):
        with suppress(NotApplicable):
            yield row(Setup(trial, seq_len, dtype), RIGHT, USUAL)
    setup = Setup(trial, TOKENS, dtype)
    for stress in STRESSES:
        if stress.change(setup.usual) is not None:
            yield row(setup, STEADY, stress)
    if dtype is not torch.bfloat16:
        with suppress(NotApplicable):
            rounded = Setup(trial, TOKENS, torch.bfloat16)
            yield row(rounded, STEADY, USUAL._replace(name=BFLOAT16))
    yield longest(trial, dtype)


def stressed(card: Card) -> list[dict[str, str]]:
    """The panel of each form with the usual options, as rows of `checks.verify`, failures first."""
    found = []
    for label, trial in trials(card):
        if label.startswith("0-"):
            asked = replace(trial, config=card.config(), width=WIDTH)
            found += [(label.removeprefix("0-"), one) for one in panel(asked)]
    found.sort(key=lambda pair: pair[1]["passes"])
    return [{"trial": label, **as_check(one)} for label, one in found]


def as_check(found: Row) -> dict[str, str]:
    """A row as a check with its result."""
    errors, worst = found["errors"], found["worst"]
    reason = found["reason"] or f"{found['verdict']}: error {errors[worst]:.1e} of {worst}"
    result = "passed" if found["passes"] else "failed"
    return {
        "check": f"{found['part']} {found['inputs']}, N = {found['tokens']:,}",
        "result": "skipped" if found["verdict"] == "refused" else result,
        "reason": reason,
    }


class Setup:
    """A form, its rival and the exact one, with the same parameters, at one length.

    `names` are those of the tensors that they take; `usual` are such tensors. The rival of the
    default form is `eager`.
    """

    def __init__(self, trial: Trial, seq_len: int, dtype: torch.dtype, batch: int = 2) -> None:
        self.trial, self.dtype, self.seq_len = trial, dtype, seq_len
        self.device = find(trial.device).torch_name
        eager: Any = trial.card.forms["eager"]
        w = replace(trial.workload(seq_len, batch), level=Level.CORE)
        self.names = tensor_names(eager)
        self.refused = trial.refusal(in_dtype(w, dtype))
        if not self.names or self.refused:
            self.names, w = LAYER, replace(w, level=Level.ATTENTION)
        self.least_decay = getattr(eager, "least_decay", -inf)
        self.tolerance = self.tolerated()
        default = trial.card.usual_form(trial.config, w)
        rival = "eager" if trial.form == default else default
        self.exact = trial.build(w, form="eager" if seq_len <= EXACT else default)
        parameters = {name for name, _ in self.exact.named_parameters()}.difference(self.names)
        self.summed = dict.fromkeys(parameters, sqrt(w.tokens))
        self.form, self.rival = (self.built(w, form) for form in (trial.form, rival))
        if self.names == LAYER:
            inputs = [tokens(w)]
        else:
            assert isinstance(self.exact, CoreAttention), "it has a core"
            inputs = [tensor.to(self.device) for tensor in core_inputs(self.exact, w)]
        self.usual = usual(self.exact, self.names, inputs)

    def built(self, w: Workload, form: str) -> Any:
        """A form in the number type that is judged, with the parameters of the exact one.

        Those that a package's layer computes for itself are not rounded. Raises `NotApplicable`.
        """
        card, w = self.trial.card, in_dtype(w, self.dtype)
        if reason := card.refusal(form, self.trial.config, w):
            raise NotApplicable(reason)
        seeded(0)
        module: Any = card.forms[form](self.trial.config, w)
        module.to(self.device, self.dtype).load_state_dict(self.exact.state_dict())
        return module.eval()

    def tolerated(self) -> float:
        """The error of a sound form: the contract's, times `SLACK`, as sums are longer than there.

        A core in 16 bits errs by the rounding of its output, and no layer magnifies that.
        """
        name, own = str(self.dtype).removeprefix("torch."), self.trial.card.forms[self.trial.form]
        if self.names == LAYER:
            declared = getattr(self.trial.card.tolerance, name)
            return SLACK * max(declared, getattr(own, "tolerance", 0.0))
        core: float = getattr(Tolerance(), name)
        return core if self.dtype.itemsize < 4 else SLACK * core

    def errors(self, stress: Stress, backward: bool = True) -> tuple[Any, Any]:
        """The errors of the form and of its rival by the name of a tensor; text where it raises."""
        changed = self.usual | (stress.change(self.usual) or {})
        if "r" in changed:  # which the rule reads after a decay, and the equations before it
            changed["g"] = changed["g"].clamp(min=self.least_decay)
            changed["r"] = self.usual["r"] * (self.usual["g"] - changed["g"]).exp()
        given = {name: self.rounded(name, tensor) for name, tensor in changed.items()}
        exact = {name: tensor.double() for name, tensor in given.items()}
        expected = values(self.exact, exact, backward)
        mine, other = (self.error(m, given, expected, backward) for m in (self.form, self.rival))
        return mine, other

    def rounded(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor in the number type that is judged; logs of decays are float32 at least."""
        decays = name == "g" and self.dtype.itemsize < 4
        return tensor.to(torch.float32 if decays else self.dtype)

    def error(self, module: Any, given: Tensors, expected: Values, backward: bool) -> Any:
        try:
            return errors(values(module, given, backward), expected, self.summed)
        except Exception as error:  # a user's function raises anything
            lines = str(error).strip().splitlines() or [""]
            return f"{type(error).__name__}: {lines[0]}"


def values(module: Any, given: Tensors, backward: bool) -> Values:
    """The output for these tensors, and the gradients of a random weighting of it."""
    leaves = {name: tensor.clone().requires_grad_(backward) for name, tensor in given.items()}
    with torch.set_grad_enabled(backward):
        y = same_draws(lambda: computed(module, leaves))
    if not (backward and y.requires_grad):
        return Values(y.detach().double(), {})
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(y.shape, generator=generator).bfloat16().to(y.device, y.dtype)
    named = {**dict(module.named_parameters()), **leaves}
    raw = torch.autograd.grad((y * weights).sum(), [*named.values()], allow_unused=True)
    gradients = {
        name: (torch.zeros_like(tensor) if gradient is None else gradient).double()
        for (name, tensor), gradient in zip(named.items(), raw, strict=True)
    }
    return Values(y.detach().double(), gradients)


def errors(found: Values, expected: Values, summed: Mapping[str, float]) -> dict[str, float]:
    """The largest error of each tensor, relative to the largest number that is expected of it.

    `summed`: the noise of gradients that sum others, in units of that of the others.
    """
    if found.output.shape != expected.output.shape:
        shapes = (list(values.output.shape) for values in (found, expected))
        raise ValueError("the output has shape {}, not {}".format(*shapes))
    largest = max((gradient.abs().max() for gradient in expected.gradients.values()), default=0)
    pairs: dict[str, tuple[Tensor, Tensor, Any]] = {
        "output": (found.output, expected.output, expected.output.abs().max())
    }
    for name in found.gradients.keys() & expected.gradients.keys():
        own = expected.gradients[name]
        least = NOISE * summed.get(name, 1.0) * largest
        pairs[f"d{name}"] = found.gradients[name], own, max(own.abs().max(), least)
    result = {}
    for name, (a, b, scale) in pairs.items():
        error = float((a.to(b.device) - b).abs().max() / (scale or 1.0))
        result[name] = inf if isnan(error) else error
    return result


def row(setup: Setup, part: str, stress: Stress, backward: bool = True) -> Row:
    """One row of a panel."""
    mine, other = setup.errors(stress, backward)
    dtype = str(setup.dtype).removeprefix("torch.")
    about = {"part": part, "inputs": stress.name, "tokens": setup.seq_len, "dtype": dtype}
    about |= {"form": setup.trial.form, "errors": {}, "rival": {}, "allowed": {}, "worst": ""}
    if isinstance(mine, str):
        # few kernels take any length and any number type
        other_type = setup.dtype is torch.bfloat16 and stress.name == BFLOAT16
        refuses = other_type or (part == RIGHT and setup.seq_len < TOKENS)
        verdict = "refused" if refuses else "failed"
        return {**about, "verdict": verdict, "passes": refuses, "reason": mine}
    other = {} if isinstance(other, str) else other
    allowed = {name: max(setup.tolerance, FACTOR * min(other.get(name, 0.0), 1.0)) for name in mine}
    worst = max(mine, key=lambda name: mine[name] / allowed[name])
    half = sqrt(torch.finfo(setup.dtype).eps) if part == STEADY else 0.0
    verdict = judged(mine[worst], allowed[worst], half)
    about |= {"errors": mine, "rival": other, "allowed": allowed, "worst": worst}
    return {**about, "verdict": verdict, "passes": verdict not in BAD, "reason": ""}


def judged(error: float, allowed: float, half: float) -> str:
    """The verdict on an error, where under stress `half` of the digits may be lost."""
    if error <= allowed:
        return "passed"
    if error <= half:
        return "fewer digits"
    if not isfinite(error):
        return "not finite"
    return "imprecise" if error < ROUNDED else "wrong"


def longest(trial: Trial, dtype: torch.dtype) -> Row:
    """The row of the longest sequence that takes reasonable time and memory, of outputs alone.

    Four times as long again, as a user's function may need any time and memory for it.
    """
    card, seq_len, took_s, growth = trial.card, LONG_TOKENS, 0.0, 4.0
    last: Row = {}
    while seq_len <= LONGEST:
        w = trial.workload(seq_len, 1)
        form = card.forms[card.usual_form(trial.config, w)]
        work, elements = form.flops(trial.config, w).core, form.elements(trial.config, w)
        if last and (work > MOST_FLOPS or elements > MOST_ELEMENTS):
            break
        if growth * took_s > MOST_S:
            return {**last, "reason": f"{seq_len:,} tokens would take over {MOST_S:g} s"}
        begun = time.process_time()
        setup = Setup(trial, seq_len, dtype, batch=1)
        found = row(setup, STEADY, LONG, backward=False)
        if last and "memory" in found["reason"]:
            return {**last, "reason": f"{seq_len:,} tokens: {found['reason']}"}
        before_s, took_s = took_s, time.process_time() - begun
        growth = max(growth, took_s / before_s) if before_s else growth
        last, seq_len = found, 4 * seq_len
    return last
