"""How a sweep judges claims, by the 95 % confidence intervals of what it measured.

A claim is reproduced only if the whole interval lies where the claim says, and contradicted only if
all of it lies elsewhere. A time is one that was measured: what holds for counts alone agrees by
count. Costs are per sequence, so that batches that shrink with length can be compared.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import product
from math import exp, inf
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.scaling import CrossoverKind, Tail, find_crossover, scaling
from attnbench.analysis.summary import Frame
from attnbench.claims.claim import Check, Claim, Range
from attnbench.metrics import TABLE, TIME, Unit
from attnbench.records import PASSES, Selection
from attnbench.render.grid import quantity
from attnbench.statistics.curves import LogCurve, cost_curve

Sides: TypeAlias = Sequence[Frame]  # the rows of each mechanism in one mode

FEWEST = 3  # lengths at which a claim about a range of them must hold


class Answer(StrEnum):
    """How a sweep judges a claim."""

    REPRODUCED = "reproduced"
    COUNTED = "agrees by count (not timed)"
    CONTRADICTED = "contradicted"
    CANNOT_TELL = "cannot tell"
    NOT_MEASURED = "not measured"


class Finding(NamedTuple):
    """An answer, the number or reason behind it, and the lengths at which it was found."""

    answer: Answer
    evidence: str
    lengths: tuple[int, ...] = ()


def judge(analysis: Analysis, claim: Claim) -> Finding:
    """All checks of the claim, each in every mode that it is about, must hold."""
    return combined([one for check in claim.checks for one in _by_mode(analysis, check)])


def combined(parts: Sequence[Finding]) -> Finding:
    """All must hold: one that is contradicted decides."""
    answers = {part.answer for part in parts}
    if Answer.CONTRADICTED in answers:
        answer = Answer.CONTRADICTED
    elif answers == {Answer.REPRODUCED, Answer.COUNTED}:
        answer = Answer.COUNTED
    else:
        answer = answers.pop() if len(answers) == 1 else Answer.CANNOT_TELL
    deciding = [one for one in parts if one.answer is answer]
    open_ = [one for one in parts if one.answer not in (Answer.REPRODUCED, Answer.COUNTED)]
    said = list(dict.fromkeys(one.evidence for one in deciding or open_))
    more = f"; and {len(said) - 1} more" if len(said) > 1 else ""
    return Finding(answer, said[0] + more, tuple(sorted({n for one in parts for n in one.lengths})))


def _by_mode(analysis: Analysis, check: Check) -> Iterator[Finding]:
    wanted = [check.mode] if check.mode else [*PASSES]
    modes = [mode for mode in analysis.modes if mode in wanted]
    if not modes:
        yield Finding(Answer.NOT_MEASURED, f"no case of mode {' or '.join(wanted)}")
    sizes = dict.fromkeys(analysis.cases["sizes"])
    for mode, own in product(modes[-1:] if check.counted else modes, sizes):
        every = (*check.a, *check.b)
        found = ((one, series(analysis, one, mode, own)) for one in every)
        rows = {one: cases for one, cases in found if cases is not None}
        lost = f"not in the sweep: {', '.join(str(one) for one in every if one not in rows)}"
        a, b = ([rows[one] for one in side if one in rows] for side in (check.a, check.b))
        if not a or (check.b and not b):
            yield Finding(Answer.NOT_MEASURED, lost)
            continue
        if len(rows) < len({*every}):
            yield Finding(Answer.CANNOT_TELL, lost)
        whole = combined([*RELATIONS[check.predicate](analysis, check, a, b)])
        by_count = check.counted and whole.answer is Answer.REPRODUCED
        yield whole._replace(answer=Answer.COUNTED) if by_count else whole


def series(analysis: Analysis, chosen: Selection, mode: str, sizes: str) -> Frame | None:
    """The rows of the series that a claim means: of several the one timed at the most lengths."""
    cases = {planned.case.key: planned.case for planned in analysis.sweep.plan}
    defaults = {card.mechanism: card.options for card in analysis.sweep.cards}.get(chosen.name, {})
    rows, fitting = analysis.cases, []
    rows = rows[(rows["mechanism"] == chosen.name) & (rows["mode"] == mode)]
    rows = rows[rows["sizes"] == sizes]
    for _, own in rows.groupby("series", sort=False):
        options = {**defaults, **dict(cases[own["key"].iloc[0]].options)}
        in_form = chosen.form is None or {*own["form"]} == {chosen.form}
        if in_form and all(options.get(name, ...) == value for name, value in chosen.options):
            fitting.append(own)
    return max(fitting, key=lambda own: int(own[TIME].count()), default=None)


def _log_ratio(analysis: Analysis, check: Check, a: Frame, b: Frame) -> tuple[str, LogCurve]:
    """What the costs of A over those of B are called, and their logarithms by length."""
    mode = str(a["mode"].iloc[0])
    x, y = (str(rows["series"].iloc[0]) for rows in (a, b))
    curve = cost_curve(a, check.quantity).minus(cost_curve(b, check.quantity))
    if check.quantity == TIME:
        curve, _ = analysis.ratios.in_turns(curve, x, y, mode)
    return f"{TABLE[check.quantity].name} of {x} over {y}, {mode}", curve


def _ratios(analysis: Analysis, check: Check, a: Sides, b: Sides) -> Iterator[Finding]:
    """The cost of each of A over that of each of B is `value`, at each length of the claim."""
    found: list[tuple[float, Finding]] = []
    for label, curve in (_log_ratio(analysis, check, x, y) for x in a for y in b):
        curve = curve.at(check.lengths.among(curve.whole))
        few = check.lengths.longest or check.lengths.low == check.lengths.high
        if len(curve) < (1 if few else FEWEST):
            text = f"{label}: measured at {len(curve)} of these lengths"
            answer = Answer.CANNOT_TELL if len(curve) else Answer.NOT_MEASURED
            found.append((inf, Finding(answer, text)))
        for n, *logs in zip(curve.whole, curve.logs, curve.low, curve.high, strict=True):
            found.append((logs[2], _placed(label, Unit.RATIO, map(exp, logs), check.value, n)))
    # what comes closest to refuting that A costs less comes first
    yield from (one for _, one in sorted(found, key=lambda pair: -pair[0]))


def _exponent(analysis: Analysis, check: Check, a: Sides, b: Sides) -> Iterator[Finding]:
    """The cost of each of A grows as N to the power of `value`, at its longest lengths."""
    for row in (scaling(rows, (check.quantity,)).iloc[0] for rows in a):
        label = f"exponent of {TABLE[check.quantity].name} of {row['series']}, {row['mode']}"
        ends, at = row[["exponent", "low", "high"]], (int(row["from_len"]), int(row["to_len"]))
        one = _placed(label, Unit.EXPONENT, ends, check.value, *at)
        if row["tail"] != Tail.STRAIGHT and one.answer is not Answer.REPRODUCED:
            answer = Answer.CANNOT_TELL if row["lengths"] else Answer.NOT_MEASURED
            one = Finding(answer, f"{label}: {row['tail']}", at)
        yield one


def _crossover(analysis: Analysis, check: Check, a: Sides, b: Sides) -> Iterator[Finding]:
    """The length from which B takes less time than A, for good, is `value`."""
    label, curve = _log_ratio(analysis, check, b[0], a[0])
    crossing, at = find_crossover(curve), (*curve.whole[:1], *curve.whole[-1:])
    match crossing.answer:
        case CrossoverKind.FROM:
            low = crossing.low if crossing.low > at[0] else 0.0  # it may begin before
            said, ends = "below 1 from", (crossing.length, low, crossing.high)
        case CrossoverKind.ALWAYS:
            said, ends = "below 1 already at", (at[0], 0.0, at[0])
        case CrossoverKind.NEVER:
            said, ends = "not below 1 up to", (at[1], at[1], inf)
        case CrossoverKind.UNCLEAR:
            answer = Answer.CANNOT_TELL if at else Answer.NOT_MEASURED
            yield Finding(answer, f"{label}: cannot tell from which length below 1", at)
            return
    yield _placed(f"{label}: {said}", Unit.COUNT, ends, check.value, *at)


RELATIONS: Mapping[str, Callable[[Analysis, Check, Sides, Sides], Iterator[Finding]]]
RELATIONS = MappingProxyType(
    {"less": _ratios, "ratio": _ratios, "exponent": _exponent, "crossover": _crossover}
)


def _placed(
    label: str, unit: Unit, ends: Iterable[float], claimed: Range, *lengths: int
) -> Finding:
    """Whether a number with its interval lies where a claim says."""
    value, low, high = ends
    answer = Answer.CANNOT_TELL
    if claimed.low <= low and high <= claimed.high:
        answer = Answer.REPRODUCED
    elif high < claimed.low or low > claimed.high:
        answer = Answer.CONTRADICTED
    text = quantity(value, unit)
    if 0 < low < high < inf:
        text = units.interval(text, *(quantity(end, unit).removesuffix("×") for end in (low, high)))
    if unit is not Unit.COUNT:
        text += f" at {units.between(lengths[0], lengths[-1])}"
    return Finding(answer, f"{label} {text}", lengths)
