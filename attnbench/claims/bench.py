"""The bench that judges claims: a sweep, its measurements as predicates need them, and answers.

Costs are per sequence, so that batches that shrink with length can be compared. Memory is the
allocated peak above what was allocated before the iteration (parameters, inputs), or the whole peak
where a sweep has no other; it is exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from attnbench.claims.claim import (
    Answer,
    Call,
    Claim,
    ClaimedCost,
    ClaimedMode,
    ClaimedSeries,
    Judgement,
    OutOfScope,
)
from attnbench.records import PASSES, CardFacts, Level, Mode, Option, Outcome, Sweep
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

    `rows`: form, outcome and reason by length; `costs`: each quantity where it is known.
    """

    series: str
    mechanism: str
    mode: Mode
    options: Mapping[str, Option]
    kernels: frozenset[str]  # of attention, where the sweep recorded them
    rows: pd.DataFrame
    costs: Mapping[ClaimedCost, LogCurve]
    ratios: Ratios

    def over(self, other: "CostCurve", quantity: ClaimedCost) -> LogCurve:
        """The log ratio to another curve at the lengths of both.

        Times of series that took turns are compared lap by lap.
        """
        independent = self.costs[quantity].minus(other.costs[quantity])
        if quantity is not ClaimedCost.TIME:
            return independent
        return self.ratios.in_turns(independent, self.series, other.series, self.mode)[0]

    @property
    def fitting(self) -> list[int]:
        """The lengths that were measured."""
        return self.costs[ClaimedCost.TIME].whole

    @property
    def lost(self) -> list[int]:
        """The lengths at which memory ran out."""
        return [int(n) for n in self.rows.index[self.rows["outcome"] == Outcome.OOM]]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A sweep with its summary and the ratios of series that took turns."""

    sweep: Sweep
    cases: pd.DataFrame
    ratios: Ratios

    @cached_property
    def cards(self) -> dict[str, CardFacts]:
        """The stored facts of each mechanism."""
        return {card.mechanism: card for card in self.sweep.cards}

    @property
    def device(self) -> str:
        """The device that the sweep ran on, or several."""
        return " and ".join(dict.fromkeys(session.device for session in self.sweep.sessions))

    @property
    def level(self) -> Level:
        """The level of the sweep."""
        return self.sweep.request.level

    def modes(self, claimed: ClaimedMode) -> tuple[Mode, ...]:
        """The modes of the sweep that a claim's mode stands for. Raises `OutOfScope`."""
        modes = tuple(dict.fromkeys(planned.case.workload.mode for planned in self.sweep.plan))
        if not modes:
            raise OutOfScope("the sweep has no cases")
        if claimed is ClaimedMode.UNPRINTED:
            if passes := tuple(mode for mode in modes if mode in PASSES):
                return passes
            raise OutOfScope("the sweep has only steps of decoding")
        mode = Mode.DECODE if claimed is ClaimedMode.GENERATION else Mode(claimed)
        if mode not in modes:
            raise OutOfScope(f"the sweep has no {claimed} (--mode {mode})")
        return (mode,)

    def curve(self, subject: ClaimedSeries, mode: Mode) -> CostCurve:
        """The best curve of a subject. Raises `OutOfScope` naming what the sweep has instead."""
        if curves := self.matching(subject, mode):
            return curves[0]
        others = [
            c.series for c in self.curves if (c.mechanism, c.mode) == (subject.mechanism, mode)
        ]
        if not others:
            raise OutOfScope(f"{subject.mechanism} is not in the sweep")
        raise OutOfScope(f"the sweep has {', '.join(others)}, not {subject}")

    def matching(self, subject: ClaimedSeries, mode: Mode) -> list[CostCurve]:
        """Every curve of a subject in a mode, best first.

        The best is in the preferred form of the claim, then measured at the most lengths, then the
        first of the plan.
        """
        wanted = forms(subject)
        ranked = []
        for curve in self.curves:
            used = set(curve.rows["form"])
            plain = subject.form == "flash" and any(PLAIN in kernel for kernel in curve.kernels)
            same = (curve.mechanism, curve.mode) == (subject.mechanism, mode)
            in_form = wanted is None or (used <= set(wanted) and not plain)
            fits = all(curve.options.get(name, ...) in values for name, values in subject.options)
            if same and in_form and fits:
                rank = 0 if wanted is None else max(map(wanted.index, used))
                ranked.append(((rank, -len(curve.fitting)), curve))
        return [curve for _, curve in sorted(ranked, key=lambda pair: pair[0])]

    @cached_property
    def curves(self) -> tuple[CostCurve, ...]:
        """Every series in every mode, in the order of the plan."""
        if not self.sweep.plan:
            return ()
        cases = {planned.case.key: planned.case for planned in self.sweep.plan}
        groups = self.cases.groupby(["mode", "series"], sort=False)
        curves = []
        for (mode, series), rows in groups:
            case = cases[rows["key"].iloc[0]]
            card = self.cards.get(case.mechanism)
            rows = rows.sort_values("seq_len").drop_duplicates("seq_len")
            curves.append(
                CostCurve(
                    series=str(series),
                    mechanism=case.mechanism,
                    mode=Mode(str(mode)),
                    options={**(card.options if card else {}), **dict(case.options)},
                    kernels=frozenset(rows["attention_kernel"]) - {""},
                    rows=rows.set_index("seq_len")[["form", "outcome", "reason"]],
                    costs=_costs(rows),
                    ratios=self.ratios,
                )
            )
        return tuple(curves)


def forms(subject: ClaimedSeries) -> tuple[str, ...] | None:
    """The forms that a subject may be judged by, best first, or None for any."""
    return None if subject.form is None else FORMS.get(subject.form, (subject.form,))


def _costs(rows: pd.DataFrame) -> dict[ClaimedCost, LogCurve]:
    """Each quantity of one sequence by length."""
    delta = rows["allocated_delta_bytes"].where(rows["allocated_delta_bytes"] > 0)
    known = rows.assign(
        memory=delta if delta.notna().any() else rows["allocated_peak_bytes"],
        core=rows["core_flops"] / rows["layers"],
        projections=rows["projection_flops"] / rows["layers"],
    )
    columns = {
        ClaimedCost.TIME: "time_s",
        ClaimedCost.MEMORY: "memory",
        ClaimedCost.STATE: "state_bytes",
        ClaimedCost.CORE_FLOPS: "core",
        ClaimedCost.PROJECTION_FLOPS: "projections",
    }
    if "ttft_s" in rows:
        columns[ClaimedCost.FIRST_TOKEN] = "ttft_s"
    nothing = dict.fromkeys(ClaimedCost, LogCurve.of([], []))
    return nothing | {cost: cost_curve(known, column) for cost, column in columns.items()}


class Judged(NamedTuple):
    """A claim with the judgement of a sweep."""

    claim: Claim
    judgement: Judgement


def judge(bench: Bench, claims: Sequence[Claim]) -> tuple[Judged, ...]:
    """Each claim as reproduced, not reproduced, cannot tell, or out of scope, in their order."""
    return tuple(
        Judged(claim=claim, judgement=joined([_judged(bench, call) for call in claim.check]))
        for claim in claims
    )


def wanted(claims: Sequence[Claim]) -> tuple[str, ...]:
    """The mechanisms and forms that judging every claim needs, as `--models` takes them, sorted.

    Options that a check names are left out.
    """
    subjects = [s for claim in claims for call in claim.check for s in call.subjects]
    names = {":".join((s.mechanism, *(forms(s) or ())[:1])) for s in subjects}
    formed = {name.partition(":")[0] for name in names if ":" in name}
    return tuple(sorted(names - formed))


def joined(parts: Sequence[Judgement]) -> Judgement:
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


def _judged(bench: Bench, call: Call) -> Judgement:
    """One call of a check, in every mode that it covers."""
    try:
        if call.level not in (None, bench.level):
            raise OutOfScope(f"the claim is about level {call.level}, the sweep has {bench.level}")
        if call.device is not None and call.device.lower() not in bench.device.lower():
            raise OutOfScope(f"the claim is about {call.device}, the sweep ran on {bench.device}")
        modes = bench.modes(call.mode or ClaimedMode.UNPRINTED)
    except OutOfScope as reason:
        return Judgement(answer=Answer.OUT_OF_SCOPE, why=str(reason))
    # counts and facts stored with the sweep are the same in every mode
    costs = (ClaimedCost.TIME, ClaimedCost.MEMORY)
    exact = call.mode is None and not any(cost in call.arguments.values() for cost in costs)
    return agreed([_in_mode(bench, call, mode) for mode in (modes[-1:] if exact else modes)])


def _in_mode(bench: Bench, call: Call, mode: Mode) -> Judgement:
    try:
        judgement: Judgement = _value(bench, call, mode)
        return judgement
    except OutOfScope as reason:
        return Judgement(answer=Answer.OUT_OF_SCOPE, why=str(reason))


def _value(bench: Bench, call: Call, mode: Mode) -> Any:
    """The result of the call's function; every function takes the bench and the mode."""
    arguments = {
        name: _value(bench, value, mode) if isinstance(value, Call) else value
        for name, value in call.arguments.items()
    }
    return call.function(bench, **{**arguments, "mode": mode})
