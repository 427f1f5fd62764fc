"""Whether a form keeps its digits: on usual inputs, and on those that break kernels.

Every row of a panel has the inputs of one stress, which replace tensors of the core by name
(`attention.core`), at sizes of its own. Errors are against the mechanism's default form in float64,
which the contract compares with the equations; where memory does not allow that, in the number type
that is judged. They are relative to the largest output and, on usual inputs, of each row of the
output to the largest number of that row, so that large rows hide no small ones; of each gradient to
its own largest number, or to a `FLOOR` of the largest of all; of one whose terms all cancel, to the
largest of all.

What a kernel may err by follows from what sound arithmetic costs on the same inputs (`allowed`): a
`FACTOR` times the error of the mechanism's own forms in the same number type, on top of what the
contract allows a form on short sequences. A factor, since of one recurrence a loop over tokens and
chunks differed up to 4.5 times. Kernels sum logs of decays in float32 where ours do not; what these
sums cost is computed too (`summed`), and `TWICE` as much allowed. None of it grows with the length
but by these errors. Under stress a form may have `fewer digits`, down to half of them, and is still
steady.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from attnbench.attention.arguments import from_logits
from attnbench.attention.card import Card, Tolerance
from attnbench.attention.checks.equations import Values, relative, values
from attnbench.attention.checks.stress import BFLOAT16, LONG, MASKED, NAMED, VIEWS, Stress
from attnbench.attention.checks.trial import (
    NotApplicable,
    Trial,
    core_inputs,
    in_dtype,
    masks,
    same_draws,
    tokens,
    trials,
)
from attnbench.attention.core import LAYER, computed, tensor_names, usual
from attnbench.devices import DeviceFailed, find, is_out_of_memory, raise_device_failure
from attnbench.errors import one_line
from attnbench.records import (
    GRADIENT,
    Aspect,
    Attempt,
    KernelFinding,
    Level,
    PanelRow,
    Workload,
    units,
)

FACTOR = 10.0
TWICE = 2.0
CHUNK = 128  # tokens over which kernels of recurrences sum logs of decays; most take 64
PAIRS = frozenset({"g", "q", "k", "v"})  # of a core without a delta rule
AFFORDABLE = 1 << 26  # elements of `eager`'s largest tensor, for a second opinion
# of a bound: at it, what limits may have a gradient or none; clamp has none from torch 2.14 on
WITHIN = 1 - 2**-7
ROUNDED = 1e-2  # a larger error is no matter of rounding
# of the largest gradient, below which the errors of another are of the terms that cancelled in it
FLOOR = 0.1
# of the largest gradient, below which all terms of another cancelled, as of a weight of one key
VANISHED = 1e-6
ROW_FLOOR = 1e-3  # of the largest output: the rows of 65,536 tokens are 1/100 of the first
EXACT = 1e-3  # what a constant factor explains of an output may err by this
OUTPUT = "output"
A_ROW = "a row"
WITHOUT = " without gradients"  # ends the name of an error that only a call without them has
Core = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] | None
PRECISE = frozenset({"g", "w", "gk", "dt", "A"})  # logs of decays, and what they are made of


@dataclass(frozen=True)
class FormErrors:
    """A form and its rivals beside what is exact, by what errs.

    `ours`: the largest error of our forms. `summing`: what sums of logs of decays cost; both are
    known in full only of what the default form's error does not explain. `reason`: why the form
    gives nothing to compare or, where there are errors, why its call without gradients gives
    nothing; `out_of_memory`: whether memory ran out. `gave`: the number type of its output, where
    that is not the one of its inputs. `changed`: the names of what it was given and changed.
    `factor`: what its output is a multiple of the expected one by. `reference`: the number type of
    what is exact. `head_width`: of the first tensor.
    """

    errors: Mapping[str, float]
    ours: Mapping[str, float]
    summing: Mapping[str, float]
    reason: str
    out_of_memory: bool
    gave: str
    changed: tuple[str, ...]
    factor: str
    reference: str
    head_width: int


def row(trial: Trial, attempt: Attempt) -> PanelRow:
    """What is found of an attempt.

    Raises `NotApplicable` where a form refuses the size, or the stress changes no input, and
    `DeviceFailed` where it broke the GPU, which then computes nothing to compare with.
    """
    begun = time.perf_counter()
    trial = placed(trial, attempt)
    shown = compared(trial, attempt)
    limits = allowed(shown, attempt)
    worst = max(shown.errors, key=lambda name: shown.errors[name] / limits[name], default="")
    finding, reason = concluded(attempt, shown, limits, worst)
    without = {name: name.removesuffix(WITHOUT) for name in shown.errors if name.endswith(WITHOUT)}
    ours_without = {name: shown.ours[of] for name, of in without.items() if of in shown.ours}
    return PanelRow(
        attempt=attempt,
        finding=finding,
        head_width=shown.head_width,
        errors=dict(shown.errors),
        ours={**shown.ours, **ours_without},
        allowed=limits,
        worst=worst,
        reason=reason,
        note=f"gives {shown.gave}" if shown.gave else "",
        reference=shown.reference,
        took_s=time.perf_counter() - begun,
    )


def allowed(shown: FormErrors, attempt: Attempt) -> dict[str, float]:
    """How much each of the errors of a form may be, by its name."""
    dtype = getattr(torch, attempt.dtype)
    tolerance = getattr(Tolerance(), attempt.dtype)
    limits = dict[str, float]()
    for name in shown.errors:
        same_name = name.removesuffix(WITHOUT)
        ours = min(shown.ours.get(same_name, 0.0), 1.0)
        if shown.reference != "float64":
            # nothing is exact: the errors of sums of so many terms, of either side
            ours = max(ours, 2 * torch.finfo(dtype).eps * sqrt(attempt.tokens))
        costs = max(FACTOR * ours, TWICE * min(shown.summing.get(same_name, 0.0), 1.0))
        # what has 16 bits errs by rounding its output, in whatever order it sums
        limits[name] = tolerance + costs if dtype.itemsize >= 4 else max(tolerance, costs)
    return limits


def concluded(
    attempt: Attempt, shown: FormErrors, limits: Mapping[str, float], worst: str
) -> tuple[KernelFinding, str]:
    """The finding of a comparison, with its reason.

    attempt: what was tried.
    shown: the errors, and what else was seen.
    limits: what each error may be, by its name (`allowed`).
    worst: the name of the error that is largest beside its limit; empty where there is none.
    """
    if not shown.errors and shown.changed:
        return KernelFinding.CHANGES_INPUTS, f"{units.few(shown.changed, 3)}; then {shown.reason}"
    if not shown.errors:
        return without_result(attempt, shown), shown.reason
    half = sqrt(torch.finfo(getattr(torch, attempt.dtype)).eps)
    finding = judged(
        shown.errors[worst], limits[worst], half if attempt.aspect is Aspect.STEADY else 0.0
    )
    exceeding = units.few((name for name in shown.errors if shown.errors[name] > limits[name]), 3)
    if finding in (KernelFinding.PASSED, KernelFinding.FEWER_DIGITS):
        if shown.changed:
            return KernelFinding.CHANGES_INPUTS, units.few(shown.changed, 3)
        # plain forms of a package in float32 are no errors of a kernel judged in that
        if shown.gave and attempt.inputs != BFLOAT16:
            return KernelFinding.OTHER_TYPE, f"{shown.gave} for {attempt.dtype}"
        if shown.reason:
            return without_result(attempt, shown), shown.reason
        return finding, exceeding
    changed = f"; it changes its inputs: {units.few(shown.changed, 3)}" if shown.changed else ""
    changed += f"; it gives {shown.gave} for {attempt.dtype}" if shown.gave else ""
    factor = f"; its output is {shown.factor} times ours" if shown.factor else ""
    return finding, exceeding + factor + changed


def without_result(attempt: Attempt, shown: FormErrors) -> KernelFinding:
    """The finding where a call raised: few kernels take any length and any number type."""
    if shown.out_of_memory:
        return KernelFinding.UNTRIED
    special = attempt.inputs in (BFLOAT16, MASKED, VIEWS) or attempt.batch == 1
    return KernelFinding.REFUSED if special or attempt.tokens % 512 else KernelFinding.FAILED


def judged(error: float, allowed: float, half: float) -> KernelFinding:
    """The finding of an error, where under stress `half` of the digits may be lost."""
    if error <= allowed:
        return KernelFinding.PASSED
    if error <= half:
        return KernelFinding.FEWER_DIGITS
    if not isfinite(error):
        return KernelFinding.NOT_FINITE
    return KernelFinding.IMPRECISE if error < ROUNDED else KernelFinding.WRONG


def placed(trial: Trial, attempt: Attempt) -> Trial:
    """The trial with the sizes, options and causality of an attempt."""
    return replace(
        trial,
        config=replace(trial.config, **dict(attempt.options)),
        causal=attempt.causal,
        width=attempt.width,
        heads=attempt.heads,
    )


def panel(trial: Trial, attempts: Iterator[Attempt]) -> Iterator[PanelRow]:
    """The rows of those attempts that apply to a trial, up to one that breaks the GPU."""
    for attempt in attempts:
        try:
            yield row(trial, attempt)
        except NotApplicable:
            continue
        except DeviceFailed as error:
            yield PanelRow.without(attempt, KernelFinding.FAILED, str(error))
            return


@dataclass
class Comparing:
    """One attempt in the making: the mechanism's forms and a user's function on the same inputs.

    `names` are those of the core's tensors, or of the whole layer's. `default`: the form that is
    exact in float64. Raises `NotApplicable`.
    """

    trial: Trial
    attempt: Attempt

    def __post_init__(self) -> None:
        trial = self.trial
        attempt = self.attempt
        self.mechanism: Card = trial.card.mechanism or trial.card
        self.w = trial.workload(attempt.tokens, attempt.batch)
        self.names = tensor_names(self.mechanism.forms["eager"])
        self.dtype = getattr(torch, attempt.dtype)
        core = replace(self.w, level=Level.CORE)
        if not self.names or trial.refusal(in_dtype(core, self.dtype)):
            self.names = LAYER
            core = self.w
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
            changed["g"] = changed["g"].clamp(min=WITHIN * least)
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

    @property
    def takes_eager(self) -> bool:
        """Whether the equations as written need little memory."""
        eager = self.mechanism.forms["eager"]
        return eager.elements(self.trial.config, self.w) <= AFFORDABLE

    def errors_of_form(
        self,
        form: str,
        inputs: Mapping[str, Tensor],
        core: Core,
        errors_of: Callable[[Values], dict[str, float]],
    ) -> dict[str, float]:
        """The errors of a form of the mechanism; none where it does not run in this number type.

        form: its name.
        inputs: the tensors, as the function that is judged takes them.
        core: what makes the core's tensors of those; None: they are the core's.
        errors_of: errors by name, of values.
        Raises `DeviceFailed`, so that no other form is accused of it.
        """
        with suppress(Exception):
            return errors_of(self.evaluated(self.started(form, self.mechanism), inputs, core))
        raise_device_failure()
        return {}

    def summing(
        self,
        inputs: Mapping[str, Tensor],
        core: Core,
        errors_of: Callable[[Values], dict[str, float]],
    ) -> dict[str, float]:
        """What it costs to sum logs of decays in float32, all else in float64."""
        learned = {f"learned {name}": p.detach() for name, p in self.exact.named_parameters()}

        def by_sums(tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
            return summed(tensors if core is None else core(tensors), learned)

        if {"g", "f"}.isdisjoint(self.names):
            return {}
        wide = {name: tensor.double() for name, tensor in inputs.items()}
        return errors_of(self.evaluated(self.exact, wide, by_sums))

    def evaluated(
        self,
        module: Any,
        tensors: Mapping[str, Tensor],
        core: Any = None,
        backward: bool | None = None,
    ) -> Values:
        """Output and gradients of a form.

        module: the form.
        tensors: those that it takes, by name.
        core: what makes the core's tensors of those of a function; None: they are the core's.
        backward: whether it is called for gradients; None: where the attempt asks for them.
        """
        backward = self.attempt.gradients if backward is None else backward
        leaves = {name: t.clone().requires_grad_(backward) for name, t in tensors.items()}
        with torch.set_grad_enabled(backward):
            taken = leaves if core is None else core(leaves)
            function = getattr(module, "called", None)
            # what changes a leaf raises, and would not be seen to change it
            if function and backward:
                taken = {name: t.clone() for name, t in taken.items()}
            call = partial(function or partial(computed, module), taken, self.mask)
            y = same_draws(call)
        if backward and y.requires_grad and getattr(module, "watched", None) is not None:
            y.register_hook(partial(module.watch, "the gradient of its output"))
        if self.mask is not None and self.names != LAYER:
            y = y.transpose(1, 2)
        if not y.requires_grad:
            y = y if self.mask is None else y[self.mask]
            return Values(y.double().cpu(), {})
        # under stress sums over all tokens, as of parameters, cancel
        stressed_ones = self.attempt.aspect is Aspect.STEADY
        learned = {} if stressed_ones else dict(module.named_parameters())
        return values(learned | leaves, y, self.mask)


def compared(trial: Trial, attempt: Attempt) -> FormErrors:
    """A form beside its rivals and what is exact. Raises `NotApplicable` and `DeviceFailed`."""
    comparing = Comparing(trial, attempt)
    changed = comparing.ordinary()
    claims = trial.card.mechanism is not None
    module: Any = comparing.started(trial.form, trial.card)
    core = module.of_core if claims else None
    offered = module.offered(changed) if claims else changed
    inputs = {name: rounded(name, tensor, comparing.dtype) for name, tensor in offered.items()}
    taken = {*module.binding.parameters, *module.learned} if claims else None
    expected, reference = exact_values(comparing, inputs, core)

    def errors_of(result: Values) -> dict[str, float]:
        target = expected if result.gradients else Values(expected.output, {})
        return deviations(result, target, attempt, taken)

    # of a function the default form is the rival; of that form, the equations as written
    rival = "eager" if trial.form == comparing.default and not claims else comparing.default
    ours = comparing.errors_of_form(rival, inputs, core, errors_of)
    if claims:
        module.views = attempt.inputs == VIEWS
    outcome = called(comparing, module, inputs)
    errors = dict[str, float]()
    factor = ""
    if outcome.values is not None:
        with raised(outcome):
            errors = errors_of(outcome.values)
            width = int(next(iter(inputs.values())).shape[-1])
            factor = constant_factor(outcome.values.output, expected.output, width)
    if errors and claims and attempt.gradients:
        plain = called(comparing, module, inputs, backward=False)
        if plain.values is not None:
            with raised(plain):
                errors |= larger_without(errors_of(plain.values), errors)
        outcome = outcome.with_plain(plain)
    shown = FormErrors(
        errors=errors,
        ours=ours,
        summing={},
        reason=outcome.reason,
        out_of_memory=outcome.out_of_memory,
        gave=outcome.gave,
        changed=outcome.changed,
        factor=factor,
        reference=reference,
        head_width=head_width(comparing, comparing.w),
    )
    return explained(comparing, shown, inputs, core, errors_of)


@dataclass
class Called:
    """What one call of a form gave: its values, or the reason why there are none.

    `out_of_memory`: whether that reason is a lack of memory. `gave`: the number type of the output,
    where that is not the one of the inputs. `changed`: the names of what it was given and changed.
    """

    values: Values | None = None
    reason: str = ""
    out_of_memory: bool = False
    gave: str = ""
    changed: tuple[str, ...] = ()

    def with_plain(self, plain: "Called") -> "Called":
        """This outcome of a call with gradients, with what a call without them adds to it."""
        return replace(
            self,
            reason=f"without gradients: {plain.reason}" if plain.reason else "",
            out_of_memory=plain.out_of_memory,
            gave=self.gave or plain.gave,
            changed=tuple(dict.fromkeys((*self.changed, *plain.changed))),
        )


@contextmanager
def raised(outcome: Called) -> Iterator[None]:
    """Keep what is raised meanwhile, in one line; a user's function raises anything.

    Raises `DeviceFailed` where it broke the GPU.
    """
    try:
        yield
    except Exception as error:
        raise_device_failure()
        outcome.reason = one_line(error)
        outcome.out_of_memory = is_out_of_memory(error)


def called(
    comparing: Comparing, module: Any, inputs: Mapping[str, Tensor], backward: bool | None = None
) -> Called:
    """What a form gives for its inputs.

    comparing: the attempt.
    module: the form; of a function, what it changes is watched.
    inputs: its tensors, by name.
    backward: whether it is called for gradients; None: where the attempt asks for them.
    """
    outcome = Called()
    claims = comparing.trial.card.mechanism is not None
    if claims:
        module.watched = []
    with raised(outcome):
        outcome.values = comparing.evaluated(module, inputs, backward=backward)
    if claims:
        if module.gave not in (None, comparing.dtype):
            outcome.gave = str(module.gave).removeprefix("torch.")
        with raised(outcome):
            outcome.changed = module.overwritten
        module.watched = None
    return outcome


def larger_without(without: Mapping[str, float], errors: Mapping[str, float]) -> dict[str, float]:
    """Errors of a call `without` gradients that are larger than those of the call with them.

    A function may take another path there, which is the one that inference is timed with. Each has
    a name that says so.
    """
    larger = {name: error for name, error in without.items() if error > errors.get(name, 0.0)}
    return {f"{name}{WITHOUT}": error for name, error in larger.items()}


def explained(
    comparing: Comparing,
    shown: FormErrors,
    inputs: Mapping[str, Tensor],
    core: Core,
    errors_of: Callable[[Values], dict[str, float]],
) -> FormErrors:
    """The comparison with all that sound arithmetic costs, where an error exceeds what is allowed.

    inputs: the tensors, as the form takes them
    core: what makes the core's tensors of those; None: they are the core's
    errors_of: errors by name, of values
    """
    attempt = comparing.attempt

    def exceeds(shown: FormErrors) -> bool:
        limits = allowed(shown, attempt)
        # what is far off is wrong, whatever sums cost; under stress ours may be far off too
        most = 1.0 if attempt.aspect is Aspect.STEADY else ROUNDED
        return any(limits[name] < error < most for name, error in shown.errors.items())

    form = comparing.trial.form if comparing.trial.card.mechanism is None else ""
    if exceeds(shown) and "eager" not in (form, comparing.default) and comparing.takes_eager:
        eager = comparing.errors_of_form("eager", inputs, core, errors_of)
        most = {name: max(shown.ours.get(name, 0.0), error) for name, error in eager.items()}
        shown = replace(shown, ours={**shown.ours, **most})
    if exceeds(shown) and shown.reference == "float64":
        shown = replace(shown, summing=comparing.summing(inputs, core, errors_of))
    return shown


def exact_values(
    comparing: Comparing, inputs: Mapping[str, Tensor], core: Any
) -> tuple[Values, str]:
    """What is exact for these tensors, and its number type: float64, where memory allows it."""
    wide = {name: tensor.double() for name, tensor in inputs.items()}
    try:
        return comparing.evaluated(comparing.exact, wide, core), "float64"
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    narrow = comparing.started(comparing.default, comparing.mechanism)
    return comparing.evaluated(narrow, inputs, core), comparing.attempt.dtype


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
    highest = expected.output.abs().max()
    errors = {OUTPUT: relative(ours.output, expected.output, highest)}
    if attempt.aspect is Aspect.RIGHT or attempt.inputs == LONG.name:
        errors[A_ROW] = of_rows(ours.output, expected.output, float(highest))
    zero = torch.zeros(())
    relevant = {n: g for n, g in expected.gradients.items() if taken is None or n in taken}
    # those of fixed decays and of parameters are sums over all tokens, and would hide the others
    of_tokens = {n for n, g in relevant.items() if g.dim() > 2 and attempt.tokens in g.shape[1:3]}
    most = {
        only: max(
            (relevant[n].abs().max() for n in relevant if n in of_tokens or not only), default=zero
        )
        for only in (False, True)
    }
    for name in {**relevant, **ours.gradients}:
        if taken is not None and name not in taken:
            continue
        a, b = (values.gradients.get(name, zero) for values in (ours, expected))
        # under stress gradients cancel, and what is left of one is no measure of its terms
        largest = most[name in of_tokens]
        size = b.abs().max()
        cancelled = attempt.aspect is not Aspect.RIGHT or bool(size <= VANISHED * largest)
        floor = 1.0 if cancelled else FLOOR
        errors[f"{GRADIENT}{name}"] = relative(a, b, torch.maximum(size, floor * largest))
    return errors


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
    return f"{factor:.4g}" + (f" ({text})" if text else "")


def summed(tensors: Mapping[str, Tensor], learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The core's tensors with logs of decays that are differences of their sums in float32.

    Over a chunk; over all tokens where kernels compare all pairs of them, as in softmax attention,
    and as a decay of the whole head allows without a delta rule. Of logits f with a bias, which is
    `learned`, the logs are those of their sigmoid.
    """
    if "f" in tensors:
        g = logsigmoid(tensors["f"] + learned["learned b"].to(tensors["f"].dtype)[:, None])
        sums = {**tensors, **learned, "g": differences(g, g.shape[2])}
        return {**tensors, "f": from_logits(sums)["f"]}
    g = tensors["g"]
    if g.shape[2] == 1:
        return dict(tensors)
    pairs = tensors.keys() == PAIRS and g.dim() == 3
    return {**tensors, "g": differences(g, g.shape[2] if pairs else CHUNK)}


def differences(g: Tensor, chunk: int) -> Tensor:
    """Logs of decays [B, H, N, …] from their sums over each chunk of tokens, kept in float32."""
    parts = []
    for part in g.split(chunk, 2):
        sums = part.cumsum(2).float().to(part.dtype)
        parts.append(sums - torch.cat([torch.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], 2))
    return torch.cat(parts, 2)


def rounded(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in the number type that is judged; logs of decays are float32 at least."""
    return tensor.to(torch.float32 if name in PRECISE and dtype.itemsize < 4 else dtype)


def stressed(card: Card) -> Iterator[dict[str, str]]:
    """The panel of each form with the usual options, as rows of `checks.verify`."""
    from attnbench.attention.checks.plan import of_form

    usual_ones = ((label, trial) for label, trial in trials(card) if label.startswith("0-"))
    for label, trial in usual_ones:
        usual_trial = replace(trial, config=card.config())
        for result in panel(usual_trial, of_form(usual_trial)):
            worst = result.worst
            attempt = result.attempt
            passed = "passed" if result.passes else "failed"
            error = result.errors.get(worst)
            summary = f"{result.finding}: error {error:.1e} of {worst}" if worst else result.reason
            sizes = f"N = {attempt.tokens:,}, d = {result.head_width}"
            yield {
                "check": f"{attempt.aspect} {attempt.inputs}, {sizes}",
                "trial": label.removeprefix("0-"),
                "result": passed if result.tried else "skipped",
                "reason": summary,
            }
