"""How a sweep judges claims, by the 95 % confidence intervals of what it measured.

A claim is reproduced only if the whole interval lies where the claim says, and contradicted only if
all of it lies elsewhere; what holds for counts alone agrees by count. Costs are per sequence.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import product
from math import exp, inf
from typing import NamedTuple

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.scaling import CrossoverKind, Tail, find_crossover, scaling
from attnbench.analysis.summary import Frame
from attnbench.claims.claim import Check, Claim
from attnbench.metrics import TABLE, TIME, Unit
from attnbench.records import PASSES, Selection
from attnbench.render.grid import quantity
from attnbench.statistics.curves import LogCurve, cost_curve

FEWEST = 3  # lengths at which a claim about a range of them must hold


class Answer(StrEnum):
    """How a sweep judges a claim; of several answers the last of these decides."""

    REPRODUCED = "reproduced"
    COUNTED = "agrees by count (not timed)"
    NOT_MEASURED = "not measured"
    CANNOT_TELL = "cannot tell"
    CONTRADICTED = "contradicted"


class Finding(NamedTuple):
    """An answer, the number or reason behind it, and all lengths at which it was measured."""

    answer: Answer
    evidence: str
    lengths: tuple[int, ...] = ()


def judge(analysis: Analysis, claim: Claim) -> Finding:
    """All checks of the claim, each in every mode that it is about, must hold."""
    found = [one for check in claim.checks for one in _findings(analysis, check)]
    answer = max((one.answer for one in found), key=[*Answer].index)
    said = [*dict.fromkeys(one.evidence for one in found if one.answer is answer)]
    more = f"; and {len(said) - 1} more" if len(said) > 1 else ""
    if answer is Answer.NOT_MEASURED and any(one.answer is not answer for one in found):
        answer = Answer.CANNOT_TELL
    return Finding(answer, said[0] + more, tuple(sorted({n for one in found for n in one.lengths})))


def _findings(analysis: Analysis, check: Check) -> Iterator[Finding]:
    """What a check finds in each mode that it is about, and for each of several sizes."""
    wanted = [check.mode] if check.mode else [*PASSES]
    modes = [mode for mode in analysis.modes if mode in wanted]
    if not modes:
        yield Finding(Answer.NOT_MEASURED, f"no case of mode {' or '.join(wanted)}")
    cases = analysis.judged[analysis.judged["mode"].isin(modes[-1:] if check.counted else modes)]
    for _, block in cases.groupby(["mode", "sizes"], sort=False):
        every = [(one, series(analysis, one, block)) for one in (*check.a, *check.b)]
        if lost := ", ".join(str(one) for one, own in every if own is None):
            yield Finding(Answer.NOT_MEASURED, f"not in the sweep: {lost}")
        known = {one: own for one, own in every if own is not None}
        a, b = ([known[one] for one in side if one in known] for side in (check.a, check.b))
        if check.predicate == "exponent":
            yield from (_exponent(check, own) for own in a)
        judged = _crossover if check.predicate == "crossover" else _ratios
        pairs = [_log_ratio(analysis, check, *sides) for sides in product(a, b)]
        # what comes closest to refuting that A costs less comes first
        for pair in sorted(pairs, key=lambda pair: -max(pair[1].high, default=inf)):
            yield from judged(check, *pair)


def series(analysis: Analysis, chosen: Selection, cases: Frame) -> Frame | None:
    """The rows of the series that a claim means: of several the one timed at the most lengths."""
    plan = {planned.case.key: planned.case for planned in analysis.sweep.plan}
    defaults = {card.mechanism: card.options for card in analysis.sweep.cards}.get(chosen.name, {})
    fitting = []
    for _, own in cases[cases["mechanism"] == chosen.name].groupby("series", sort=False):
        options = {**defaults, **dict(plan[own["key"].iloc[0]].options)}
        in_form = chosen.form is None or {*own["form"]} == {chosen.form}
        if in_form and all(options.get(name, ...) == value for name, value in chosen.options):
            fitting.append(own)
    return max(fitting, key=lambda own: int(own[TIME].count()), default=None)


def _log_ratio(analysis: Analysis, check: Check, a: Frame, b: Frame) -> tuple[str, LogCurve]:
    """What the costs of A over those of B are called, and their logarithms by length."""
    mode, x, y = str(a["mode"].iloc[0]), str(a["series"].iloc[0]), str(b["series"].iloc[0])
    curve = cost_curve(a, check.quantity).minus(cost_curve(b, check.quantity))
    if check.quantity == TIME:
        curve, _ = analysis.ratios.in_turns(curve, x, y, mode)
    return f"{TABLE[check.quantity].name} of {x} over {y}, {mode}", curve


def _ratios(check: Check, label: str, curve: LogCurve) -> Iterator[Finding]:
    """The ratio is `value` at each length of the claim."""
    curve = curve.at(check.lengths.among(curve.whole))
    few = check.lengths.longest or check.lengths.low == check.lengths.high
    if len(curve) < (1 if few else FEWEST):
        answer = Answer.CANNOT_TELL if len(curve) else Answer.NOT_MEASURED
        yield Finding(answer, f"{label}: measured at {len(curve)} of these lengths")
    for n, *logs in zip(curve.whole, curve.logs, curve.low, curve.high, strict=True):
        yield _placed(check, label, Unit.RATIO, map(exp, logs), n)


def _exponent(check: Check, cases: Frame) -> Finding:
    """The cost grows as N to the power of `value`, at the longest lengths."""
    row = scaling(cases, (check.quantity,)).iloc[0]
    label = f"exponent of {TABLE[check.quantity].name} of {row['series']}, {row['mode']}"
    known = map(int, cases.loc[cases[check.quantity] > 0, "seq_len"])
    at = sorted(n for n in known if row["from_len"] <= n <= row["to_len"])
    if not at:
        return Finding(Answer.NOT_MEASURED, f"{label}: {row['tail']}")
    ends = row[["exponent", "low", "high"]]
    one = _placed(check, label, Unit.EXPONENT, ends, *at)
    if row["tail"] == Tail.STRAIGHT or one.answer in (Answer.REPRODUCED, Answer.COUNTED):
        return one
    return Finding(Answer.CANNOT_TELL, f"{label}: {row['tail']}", tuple(at))


def _crossover(check: Check, label: str, curve: LogCurve) -> Iterator[Finding]:
    """The length from which the ratio is above 1, for good, is `value`."""
    crossing, at = find_crossover(replace(curve, logs=-curve.logs)), curve.whole
    match crossing.answer:
        case CrossoverKind.FROM:
            low = crossing.low if crossing.low > at[0] else 0.0  # it may begin before
            said, ends = "above 1 from", (crossing.length, low, crossing.high)
        case CrossoverKind.ALWAYS:
            said, ends = "above 1 already at", (at[0], 0.0, at[0])
        case CrossoverKind.NEVER:
            said, ends = "not above 1 up to", (at[-1], at[-1], inf)
        case CrossoverKind.UNCLEAR:
            answer = Answer.CANNOT_TELL if at else Answer.NOT_MEASURED
            yield Finding(answer, f"{label}: cannot tell from which length above 1")
            return
    yield _placed(check, f"{label}: {said}", Unit.COUNT, ends, *at)


def _placed(check: Check, label: str, unit: Unit, ends: Iterable[float], *at: int) -> Finding:
    """Whether a number with its interval lies where a claim says."""
    value, low, high = ends
    answer = Answer.CANNOT_TELL
    if check.value.low <= low and high <= check.value.high:
        answer = Answer.COUNTED if check.counted else Answer.REPRODUCED
    elif high < check.value.low or low > check.value.high:
        answer = Answer.CONTRADICTED
    text = quantity(value, unit)
    if 0 < low < high < inf:
        text = units.interval(text, *(quantity(end, unit).removesuffix("×") for end in (low, high)))
    if unit is not Unit.COUNT:
        text += f" at {units.between(at[0], at[-1])}"
    return Finding(answer, f"{label} {text}", at)
