"""The bench that judges claims: a sweep, its measurements as predicates need them, and answers.

Costs are per sequence, so that batches that shrink with length can be compared. Memory is the
allocated peak above what was allocated before the iteration (parameters, inputs), or the whole peak
where a sweep has no other; it is exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import pandas as pd

from attnbench.claims.claim import (
    TIME,
    Answer,
    Check,
    Claim,
    ClaimedCost,
    Group,
    Judgement,
    OutOfScope,
)
from attnbench.metrics import MEMORY, NAMED
from attnbench.records import PASSES, CardFacts, Mode, Option, Outcome, Selection, Sweep
from attnbench.statistics.curves import LogCurve, cost_curve
from attnbench.statistics.ratios import Ratios

# the form that a claim names, and the forms here that may stand for it, best first: `flash` is a
# fused kernel that never stores the weights; torch's sdpa dispatches to one unless the sweep has
# recorded that it ran the plain kernel
FORMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"flash": ("sdpa", "flash_attn", "xformers", "flex")}
)

PLAIN = "math"  # the kernel that stores the weights


@dataclass(frozen=True, kw_only=True)
class CostCurve:
    """One series in one mode.

    `rows`: form, outcome and reason by length; `costs`: each quantity, where known.
    """

    series: str
    mechanism: str
    mode: Mode
    card: CardFacts | None  # as stored with the sweep
    options: Mapping[str, Option]
    kernels: frozenset[str]  # of attention, where the sweep recorded them
    rows: pd.DataFrame
    costs: Mapping[ClaimedCost, LogCurve]
    ratios: Ratios

    def over(
        self, other: "CostCurve", quantity: ClaimedCost, of_other: ClaimedCost | None = None
    ) -> LogCurve:
        """The log ratio of a cost to the same, or `of_other`, of another curve, at common lengths.

        Times of series that took turns are compared lap by lap.
        """
        independent = self.costs[quantity].minus(other.costs[of_other or quantity])
        if not quantity is (of_other or quantity) is TIME:
            return independent
        return self.ratios.in_turns(independent, self.series, other.series, self.mode)[0]

    @property
    def measured_lengths(self) -> list[int]:
        """The lengths that were measured."""
        return self.costs[TIME].whole

    @property
    def oom_lengths(self) -> list[int]:
        """The lengths at which memory ran out."""
        return [int(n) for n in self.rows.index[self.rows["outcome"] == Outcome.OOM]]


Curves: TypeAlias = tuple[CostCurve, ...]


@dataclass(frozen=True, kw_only=True)
class MeasuredSweep:
    """A sweep with its summary and the ratios of series that took turns."""

    sweep: Sweep
    cases: pd.DataFrame
    ratios: Ratios

    def modes(self, claimed: Mode | None) -> tuple[Mode, ...]:
        """The modes of the sweep that a claim is about. Raises `OutOfScope` if there are none."""
        measured = dict.fromkeys(planned.case.workload.mode for planned in self.sweep.plan)
        wanted = PASSES if claimed is None else (claimed,)
        if modes := tuple(mode for mode in measured if mode in wanted):
            return modes
        raise OutOfScope(f"the sweep has no case with --mode {' or '.join(wanted)}")

    def curve(self, subject: Selection, mode: Mode) -> CostCurve:
        """The best curve of a subject. Raises `OutOfScope` naming what the sweep has instead."""
        if curves := self.matching(subject, mode):
            return curves[0]
        others = [c.series for c in self.curves if (c.mechanism, c.mode) == (subject.name, mode)]
        missing = f"the sweep has {', '.join(others)}, not {subject}"
        raise OutOfScope(missing if others else f"{subject.name} is not in the sweep")

    def group(self, subjects: Group, mode: Mode) -> Curves:
        """The best curve of each subject in the sweep. Raises `OutOfScope` if it has none."""
        found = tuple(curve for s in subjects for curve in self.matching(s, mode)[:1])
        return found or (self.curve(subjects[0], mode),)

    def matching(self, subject: Selection, mode: Mode) -> list[CostCurve]:
        """Every curve of a subject in a mode, best first.

        The best is in the preferred form of the claim, then measured at the most lengths, then the
        first of the plan.
        """
        wanted = forms(subject)
        ranked = []
        for curve in self.curves:
            used = set(curve.rows["form"])
            plain = subject.form == "flash" and any(PLAIN in kernel for kernel in curve.kernels)
            same = (curve.mechanism, curve.mode) == (subject.name, mode)
            in_form = wanted is None or (used <= set(wanted) and not plain)
            fits = all(curve.options.get(name, ...) == value for name, value in subject.options)
            if same and in_form and fits:
                rank = 0 if wanted is None else max(map(wanted.index, used))
                ranked.append(((rank, -len(curve.measured_lengths)), curve))
        return [curve for _, curve in sorted(ranked, key=lambda pair: pair[0])]

    @cached_property
    def curves(self) -> tuple[CostCurve, ...]:
        """Every series in every mode, in the order of the plan."""
        if not self.sweep.plan:
            return ()
        cases = {planned.case.key: planned.case for planned in self.sweep.plan}
        cards = {card.mechanism: card for card in self.sweep.cards}
        curves = []
        for (mode, series), rows in self.cases.groupby(["mode", "series"], sort=False):
            case = cases[rows["key"].iloc[0]]
            card = cards.get(case.mechanism)
            rows = rows.sort_values("seq_len").drop_duplicates("seq_len")
            curves.append(
                CostCurve(
                    series=str(series),
                    mechanism=case.mechanism,
                    mode=Mode(str(mode)),
                    card=card,
                    options={**(card.options if card else {}), **dict(case.options)},
                    kernels=frozenset(rows["attention_kernel"]) - {""},
                    rows=rows.set_index("seq_len")[["form", "outcome", "reason"]],
                    costs=_costs(rows),
                    ratios=self.ratios,
                )
            )
        return tuple(curves)


def forms(subject: Selection) -> tuple[str, ...] | None:
    """The forms that a subject may be judged by, best first, or None for any."""
    return None if subject.form is None else FORMS.get(subject.form, (subject.form,))


def _costs(rows: pd.DataFrame) -> dict[ClaimedCost, LogCurve]:
    """Each quantity of one sequence by length."""
    delta = rows["allocated_delta_bytes"].where(rows["allocated_delta_bytes"] > 0)
    flops = ["core_flops", "projection_flops"]
    known = rows.assign(**{MEMORY: delta if delta.notna().any() else rows[MEMORY]})
    known[flops] = known[flops].div(rows["layers"], axis=0)
    return {cost: cost_curve(known, NAMED[cost].key) for cost in ClaimedCost}


class Judged(NamedTuple):
    """A claim with the judgement of a sweep."""

    claim: Claim
    judgement: Judgement


def judge(bench: MeasuredSweep, claims: Sequence[Claim]) -> tuple[Judged, ...]:
    """Each claim as reproduced, not reproduced, cannot tell, or out of scope, in their order."""
    return tuple(
        Judged(claim, all_hold([_judged(bench, check) for check in claim.checks]))
        for claim in claims
    )


def wanted(claims: Sequence[Claim]) -> tuple[str, ...]:
    """The mechanisms and forms that judging every claim needs, as `--models` takes them, sorted.

    Options that a check names are left out.
    """
    subjects = [s for claim in claims for check in claim.checks for s in check.subjects]
    names = {":".join((s.name, *(forms(s) or ())[:1])) for s in subjects}
    formed = {name.partition(":")[0] for name in names if ":" in name}
    return tuple(sorted(names - formed))


def all_hold(parts: Sequence[Judgement]) -> Judgement:
    """All parts must hold: one that is not reproduced decides.

    If every part has the same answer, that is the answer; any other mixture is "cannot tell".
    """
    answers = {part.answer for part in parts}
    if Answer.NOT_REPRODUCED in answers:
        return _merged(parts, Answer.NOT_REPRODUCED)
    return _merged(parts, answers.pop() if len(answers) == 1 else Answer.CANNOT_TELL)


def agreed(parts: Sequence[Judgement]) -> Judgement:
    """The answer of several modes that a source does not distinguish, if those in scope agree."""
    in_scope = [part for part in parts if part.answer is not Answer.OUT_OF_SCOPE] or parts
    answers = {part.answer for part in in_scope}
    if len(answers) == 1:
        return _merged(in_scope, answers.pop())
    merged = _merged(in_scope, Answer.CANNOT_TELL)
    return replace(merged, why="; ".join(["modes differ", *filter(None, [merged.why])]))


def _merged(parts: Sequence[Judgement], answer: Answer) -> Judgement:
    """The parts as one judgement; the parts that give the answer come first."""
    ordered = sorted(parts, key=lambda part: part.answer is not answer)
    reasons = dict.fromkeys(part.why for part in ordered if part.why)
    return Judgement(
        answer=answer,
        why="; ".join(reasons),
        numbers=tuple(number for part in ordered for number in part.numbers),
        lengths=tuple(sorted({n for part in parts for n in part.lengths})),
    )


def _judged(bench: MeasuredSweep, check: Check) -> Judgement:
    """One check, in every mode that it covers."""
    level = bench.sweep.request.level
    device = " and ".join(dict.fromkeys(session.device for session in bench.sweep.sessions))
    try:
        if check.level not in (None, level):
            raise OutOfScope(f"the claim is about level {check.level}, the sweep has {level}")
        if check.device.lower() not in device.lower():
            raise OutOfScope(f"the claim is about {check.device}, the sweep ran on {device}")
        modes = bench.modes(check.mode)
    except OutOfScope as reason:
        return Judgement(answer=Answer.OUT_OF_SCOPE, why=str(reason))
    # what is counted is the same in every mode
    return agreed([_in_mode(bench, check, m) for m in (modes[-1:] if check.counted else modes)])


def _in_mode(bench: MeasuredSweep, check: Check, mode: Mode) -> Judgement:
    arguments = dict(check.arguments)
    try:
        for name, value in check.arguments.items():
            match value:
                case Selection():
                    arguments[name] = bench.curve(value, mode)
                case (Selection(), *_):
                    arguments[name] = bench.group(value, mode)
        judgement = check.predicate(**arguments)
    except OutOfScope as reason:
        return Judgement(answer=Answer.OUT_OF_SCOPE, why=str(reason))
    missing = ", ".join(str(s) for s in check.subjects if not bench.matching(s, mode))
    if missing and judgement.answer is Answer.REPRODUCED:
        return replace(judgement, answer=Answer.CANNOT_TELL, why=f"not in the sweep: {missing}")
    return judgement
