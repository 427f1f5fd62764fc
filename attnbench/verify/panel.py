"""Whether a form keeps its digits: on usual inputs, and on those that break kernels.

Every row of a panel has the inputs of one stress, which replace tensors of the core by name
(`attention.core`), at sizes of its own. Errors are against the mechanism's default form in float64,
which the contract compares with the equations; where memory does not allow that, in the number type
that is judged. They are relative to the largest output and, on usual inputs, of each row of the
output to the largest number of that row, so that large rows hide no small ones; of each gradient to
its own largest number, or to a `FLOOR` of the largest of all.

The default form's own error, in the same number type on the same inputs, says what a stress costs
any sound arithmetic. A form passes within the tolerance of the number type, or within `FACTOR`
times the default form's error: of one recurrence, a loop over tokens and chunks differed up to
4.5 times. Under stress a form may have `fewer digits`, down to half of them, and is still steady.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, sqrt
from typing import Any

import torch
from torch import Tensor

from attnbench.attention.card import Card, Tolerance
from attnbench.attention.core import LAYER, computed, tensor_names, usual
from attnbench.devices.finding import find
from attnbench.devices.out_of_memory import is_out_of_memory
from attnbench.errors import one_line
from attnbench.records import Aspect, Attempt, Finding, Level, Row, Workload
from attnbench.units import few
from attnbench.verify.equations import Values, relative, values
from attnbench.verify.stress import BFLOAT16, LONG, MASKED, NAMED, Stress
from attnbench.verify.trial import (
    NotApplicable,
    Trial,
    core_inputs,
    in_dtype,
    masks,
    same_draws,
    tokens,
    trials,
)

SLACK, FACTOR = 4.0, 10.0
# Sums of logs of decays round more over more tokens: those of flash-linear-attention's plain
# forgetting attention err by 2.6e-5 at 512, and the ten bits of TF32 by 5e-4 at any length
FEW_TOKENS, MOST_LONGER = 64, 8.0
ROUNDED = 1e-2  # a larger error is no matter of rounding
# of the largest gradient, below which the errors of another are of the terms that cancelled in it
FLOOR = 0.1
ROW_FLOOR = 1e-3  # of the largest output: the rows of 65,536 tokens are 1/100 of the first
EXACT = 1e-3  # what a constant factor explains of an output may err by this
OUTPUT, A_ROW = "output", "a row"
PRECISE = frozenset({"g", "w", "gk", "dt", "A"})  # logs of decays, and what they are made of


@dataclass(frozen=True)
class Comparison:
    """A form and its rival beside what is exact, by what errs.

    `reason`: why the form gives nothing to compare; `out_of_memory`: whether memory ran out.
    `note`: what else is to be said. `reference`: the number type of what is exact. `head_width`: of
    the first tensor.
    """

    errors: Mapping[str, float]
    ours: Mapping[str, float]
    reason: str
    out_of_memory: bool
    gave: str
    changed: tuple[str, ...]
    factor: str
    reference: str
    head_width: int


def row(trial: Trial, attempt: Attempt) -> Row:
    """What is found of an attempt.

    Raises `NotApplicable` where a form refuses the size, or the stress changes no input.
    """
    begun = time.perf_counter()
    trial = placed(trial, attempt)
    shown = compared(trial, attempt)
    dtype = getattr(torch, attempt.dtype)
    # sums are longer than in the contract; what has 16 bits errs by rounding its output
    longer = min(MOST_LONGER, max(1.0, sqrt(attempt.tokens / FEW_TOKENS)))
    slack = SLACK * longer if dtype.itemsize >= 4 else 1.0
    tolerance = slack * getattr(Tolerance(), attempt.dtype)
    if shown.reference != "float64":
        tolerance *= 2  # both err
    allowed = {
        name: max(tolerance, FACTOR * min(shown.ours.get(name, 0.0), 1.0)) for name in shown.errors
    }
    worst = max(shown.errors, key=lambda name: shown.errors[name] / allowed[name], default="")
    finding, reason = concluded(attempt, shown, allowed, worst)
    return Row(
        attempt=attempt,
        finding=finding,
        head_width=shown.head_width,
        errors=dict(shown.errors),
        ours=dict(shown.ours),
        allowed=allowed,
        worst=worst,
        reason=reason,
        note=f"gives {shown.gave}" if shown.gave else "",
        reference=shown.reference,
        took_s=time.perf_counter() - begun,
    )


def concluded(
    attempt: Attempt, shown: Comparison, allowed: Mapping[str, float], worst: str
) -> tuple[Finding, str]:
    """The finding of a comparison, with its reason."""
    if not shown.errors:
        if shown.out_of_memory:
            return Finding.UNTRIED, shown.reason
        # few kernels take any length and any number type
        special = attempt.inputs in (BFLOAT16, MASKED) or attempt.tokens % 512 or attempt.batch == 1
        return (Finding.REFUSED if special else Finding.FAILED), shown.reason
    half = sqrt(torch.finfo(getattr(torch, attempt.dtype)).eps)
    finding = judged(
        shown.errors[worst], allowed[worst], half if attempt.aspect is Aspect.STEADY else 0.0
    )
    exceeding = few((name for name in shown.errors if shown.errors[name] > allowed[name]), 3)
    if finding in (Finding.PASSED, Finding.FEWER_DIGITS):
        if shown.changed:
            return Finding.CHANGES_INPUTS, few(shown.changed, 3)
        # plain forms of a package in float32 are no errors of a kernel judged in that
        if shown.gave and attempt.inputs != BFLOAT16:
            return Finding.OTHER_TYPE, f"{shown.gave} for {attempt.dtype}"
        return finding, exceeding
    changed = f"; it changes its inputs: {few(shown.changed, 3)}" if shown.changed else ""
    factor = f"; its output is {shown.factor} times ours" if shown.factor else ""
    return finding, exceeding + factor + changed


def judged(error: float, allowed: float, half: float) -> Finding:
    """The finding of an error, where under stress `half` of the digits may be lost."""
    if error <= allowed:
        return Finding.PASSED
    if error <= half:
        return Finding.FEWER_DIGITS
    if not isfinite(error):
        return Finding.NOT_FINITE
    return Finding.IMPRECISE if error < ROUNDED else Finding.WRONG


def placed(trial: Trial, attempt: Attempt) -> Trial:
    """The trial with the sizes, options and causality of an attempt."""
    return replace(
        trial,
        config=replace(trial.config, **dict(attempt.options)),
        causal=attempt.causal,
        width=attempt.width,
        heads=attempt.heads,
    )


def panel(trial: Trial, attempts: Iterator[Attempt]) -> Iterator[Row]:
    """The rows of those attempts that apply to a trial."""
    for attempt in attempts:
        with suppress(NotApplicable):
            yield row(trial, attempt)


@dataclass
class Comparing:
    """One attempt in the making: the mechanism's forms and a user's function on the same inputs.

    `names` are those of the core's tensors, or of the whole layer's. `default`: the form that is
    exact in float64. Raises `NotApplicable`.
    """

    trial: Trial
    attempt: Attempt

    def __post_init__(self) -> None:
        trial, attempt = self.trial, self.attempt
        self.mechanism: Card = trial.card.mechanism or trial.card
        self.w = trial.workload(attempt.tokens, attempt.batch)
        self.names = tensor_names(self.mechanism.forms["eager"])
        self.dtype = getattr(torch, attempt.dtype)
        core = replace(self.w, level=Level.CORE)
        if not self.names or trial.refusal(in_dtype(core, self.dtype)):
            self.names, core = LAYER, self.w
        self.default = self.mechanism.usual_form(trial.config, core)
        self.mask = masks(self.w) if attempt.masked else None
        self.reference = replace(trial, card=self.mechanism)
        self.exact: Any = self.reference.build(self.w, form=self.default)

    def ordinary(self) -> dict[str, Tensor]:
        """The core's tensors in float64, changed by the stress. Raises `NotApplicable`."""
        stress = NAMED.get(self.attempt.inputs, Stress(self.attempt.inputs))
        inputs = [tokens(self.w)] if self.names == LAYER else core_inputs(self.exact, self.w)
        usual_ones = usual(self.exact, self.names, inputs)
        changed = stress.changed(usual_ones)
        idle = all(changed[name] is usual_ones[name] for name in self.names)
        if stress.changes and stress is not LONG and idle:
            raise NotApplicable(f"no input has {stress.name}")
        bounds = (getattr(self.exact, "least_decay", None), self.bound)
        for least in (each for each in bounds if each is not None):
            changed["g"] = changed["g"].clamp(min=least)
        return changed

    @property
    def bound(self) -> float | None:
        """The least log of a decay that the function is to take."""
        return getattr(self.trial.config, "lower_bound", None)

    def started(self, form: str, card: Card) -> Any:
        """A form in the number type that is judged, with the parameters of the exact one."""
        # what a package's layer computes for itself is not rounded as in `Trial.build`
        trial = replace(self.trial, card=card)
        module = trial.start(in_dtype(self.w, self.dtype), form).eval()
        module.to(find(self.w.device).torch_name, self.dtype)
        module.load_state_dict(self.exact.state_dict())
        return module

    def evaluated(self, module: Any, tensors: Mapping[str, Tensor], core: Any = None) -> Values:
        """Output and gradients; `core`: what makes the core's tensors of those of a function."""
        backward = self.attempt.gradients
        leaves = {name: t.clone().requires_grad_(backward) for name, t in tensors.items()}
        with torch.set_grad_enabled(backward):
            taken = leaves if core is None else core(leaves)
            own = getattr(module, "called", None)
            if own and backward:  # what changes a leaf raises, and would not be seen to change it
                taken = {name: t.clone() for name, t in taken.items()}
            call = partial(own or partial(computed, module), taken, self.mask)
            y = same_draws(call)
        if self.mask is not None and self.names != LAYER:
            y = y.transpose(1, 2)
        if not y.requires_grad:
            y = y if self.mask is None else y[self.mask]
            return Values(y.double().cpu(), {})
        # under stress sums over all tokens, as of parameters, cancel
        stressed_ones = self.attempt.aspect is Aspect.STEADY
        learned = {} if stressed_ones else dict(module.named_parameters())
        return values(learned | leaves, y, self.mask)


def compared(trial: Trial, attempt: Attempt) -> Comparison:
    """A form beside its rival and what is exact. Raises `NotApplicable`."""
    comparing = Comparing(trial, attempt)
    changed, claims = comparing.ordinary(), trial.card.mechanism is not None
    module: Any = comparing.started(trial.form, trial.card)
    core = module.of_core if claims else None
    offered = module.offered(changed) if claims else changed
    given = {name: rounded(name, tensor, comparing.dtype) for name, tensor in offered.items()}
    taken = {*module.binding.parameters, *module.learned} if claims else None
    expected, reference = exact_values(comparing, given, core)

    def errors_of(found: Values) -> dict[str, float]:
        known = expected if found.gradients else Values(expected.output, {})
        return deviations(found, known, attempt, taken)

    # of a function the default form is the rival; of that form, the equations as written
    rival = "eager" if trial.form == comparing.default and not claims else comparing.default
    ours = dict[str, float]()
    with suppress(Exception):  # it need not run in this number type
        rival_form = comparing.started(rival, comparing.mechanism)
        ours = errors_of(comparing.evaluated(rival_form, given, core))
    first = next(iter(given.values()))
    errors, reason, gave, factor = dict[str, float](), "", "", ""
    out_of_memory = False
    if claims:
        module.watched = []
    try:
        found = comparing.evaluated(module, given)
        errors = errors_of(found)
        factor = constant_factor(found.output, expected.output, int(first.shape[-1]))
    except Exception as error:  # a user's function raises anything
        reason = one_line(error)
        out_of_memory = is_out_of_memory(error)
    if claims and module.gave not in (None, comparing.dtype):
        gave = str(module.gave).removeprefix("torch.")
    return Comparison(
        errors=errors,
        ours=ours,
        reason=reason,
        out_of_memory=out_of_memory,
        gave=gave,
        changed=tuple(getattr(module, "watched", None) or ()),
        factor=factor,
        reference=reference,
        head_width=head_width(comparing, comparing.w),
    )


def exact_values(
    comparing: Comparing, given: Mapping[str, Tensor], core: Any
) -> tuple[Values, str]:
    """What is exact for these tensors, and its number type: float64, where memory allows it."""
    wide = {name: tensor.double() for name, tensor in given.items()}
    try:
        return comparing.evaluated(comparing.exact, wide, core), "float64"
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    narrow = comparing.started(comparing.default, comparing.mechanism)
    return comparing.evaluated(narrow, given, core), comparing.attempt.dtype


def head_width(comparing: Comparing, w: Workload) -> int:
    """The last dimension of a core's first tensor; of a layer, d."""
    if comparing.names == LAYER:
        return w.head_width
    return int(comparing.exact.core_inputs(comparing.exact.config, w)[0][-1])


def deviations(
    ours: Values, expected: Values, attempt: Attempt, taken: set[str] | None
) -> dict[str, float]:
    """The errors by what errs: the output, a row of it, and each gradient as `dq`.

    ours, expected: outputs [B, H, N, d] or [tokens, …], and gradients by name
    attempt: only on usual inputs and raced ones rows are compared by themselves
    taken: tensors and parameters that a function takes, whose gradients alone count; None: all
    Raises `ValueError` where the output has another shape.
    """
    if ours.output.shape != expected.output.shape:
        shapes = (list(values.output.shape) for values in (ours, expected))
        raise ValueError("the output has shape {}, not {}".format(*shapes))
    largest = expected.output.abs().max()
    found = {OUTPUT: relative(ours.output, expected.output, largest)}
    if attempt.aspect is Aspect.RIGHT or attempt.inputs == LONG.name:
        found[A_ROW] = of_rows(ours.output, expected.output, float(largest))
    zero = torch.zeros(())
    known = {n: g for n, g in expected.gradients.items() if taken is None or n in taken}
    # those of fixed decays and of parameters are sums over all tokens, and would hide the others
    of_tokens = {n for n, g in known.items() if g.dim() > 2 and attempt.tokens in g.shape[1:3]}
    most = {
        only: max((known[n].abs().max() for n in known if n in of_tokens or not only), default=zero)
        for only in (False, True)
    }
    for name in {**known, **ours.gradients}:
        if taken is not None and name not in taken:
            continue
        a, b = (values.gradients.get(name, zero) for values in (ours, expected))
        # under stress gradients cancel, and what is left of one is no measure of its terms
        floor = FLOOR if attempt.aspect is Aspect.RIGHT else 1.0
        found[f"d{name}"] = relative(
            a, b, torch.maximum(b.abs().max(), floor * most[name in of_tokens])
        )
    return found


def of_rows(ours: Tensor, expected: Tensor, largest: float) -> float:
    """The largest error of a row, relative to the largest number of the row in any sequence."""
    if ours.dim() != 4:
        return 0.0
    scale = expected.abs().amax((0, 3)).clamp(min=ROW_FLOOR * largest or 1.0)  # [H, N]
    worst = ((ours - expected).abs().amax((0, 3)) / scale).max()
    return relative(worst, torch.zeros(()), torch.ones(()))


def constant_factor(ours: Tensor, expected: Tensor, d: int) -> str:
    """By which factor an output differs from the expected one: `0.25 (d^-0.5)`; or nothing."""
    size = expected.square().sum()
    if not (size > 0 and ours.isfinite().all()):
        return ""
    factor = float((ours * expected).sum() / size)
    left = (ours - factor * expected).abs().max() / (abs(factor) * expected.abs().max() or 1.0)
    if left > EXACT or abs(factor - 1) < EXACT:
        return ""
    powers = {"d^-0.5": d**-0.5, "d^0.5": d**0.5, "1 / d": 1 / d, "d": float(d)}
    named = (text for text, value in powers.items() if abs(factor / value - 1) < EXACT)
    text = next(named, "")
    return f"{factor:.3g}" + (f" ({text})" if text else "")


def rounded(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in the number type that is judged; logs of decays are float32 at least."""
    return tensor.to(torch.float32 if name in PRECISE and dtype.itemsize < 4 else dtype)


def stressed(card: Card) -> Iterator[dict[str, str]]:
    """The panel of each form with the usual options, as rows of `checks.verify`."""
    from attnbench.verify.plan import of_form

    usual_ones = ((label, trial) for label, trial in trials(card) if label.startswith("0-"))
    for label, trial in usual_ones:
        usual_trial = replace(trial, config=card.config())
        for found in panel(usual_trial, of_form(usual_trial)):
            worst, attempt = found.worst, found.attempt
            passed = "passed" if found.passes else "failed"
            error = found.errors.get(worst)
            said = f"{found.finding}: error {error:.1e} of {worst}" if worst else found.reason
            sizes = f"N = {attempt.tokens:,}, d = {found.head_width}"
            yield {
                "check": f"{attempt.aspect} {attempt.inputs}, {sizes}",
                "trial": label.removeprefix("0-"),
                "result": passed if found.tried else "skipped",
                "reason": said,
            }
