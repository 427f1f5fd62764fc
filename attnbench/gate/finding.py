"""The findings of a check, one for each case and metric, and the report that holds them."""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from statistics import median

from attnbench.devices.finding import find
from attnbench.gate import rule
from attnbench.gate.cases import (
    BASE,
    HEAD,
    MISSING,
    CheckedCase,
    CheckPlan,
    Counted,
    raced,
)
from attnbench.gate.measuring import Looks
from attnbench.metrics import COUNTED, RACED, TABLE, TIME
from attnbench.records import Outcome
from attnbench.statistics.verdict import Verdict, count_verdict

RUNS = "runs"  # a metric of findings, in addition to the keys of `metrics.TABLE`

TESTS = re.compile(r"(^|/)(tests?/|test_|conftest\.py)")

Raced = Sequence[tuple[CheckedCase, rule.Evidence]]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One metric of one case, head against base; `ratio` is head over base.

    Times are seconds of one iteration of `batch` sequences; the batch in the label of the case is
    the counted one. `fails` says whether the finding fails the check. An `unchecked` case was asked
    for and ran on neither side; an `unsupported` one can run on neither; an `unmeasured` one was
    killed, perhaps by no fault of its code; a `suspected` one may be slower or faster, and was not
    measured again. `file` holds the mechanism or function.
    """

    mechanism: str
    case: str
    metric: str
    base: float | None = None
    head: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict
    reason: str = ""
    fails: bool = False
    unchecked: bool = False
    unsupported: bool = False
    unmeasured: bool = False
    suspected: bool = False
    file: str = ""
    batch: int | None = None

    @property
    def decided(self) -> bool:
        """Whether the verdict says how the two sides differ."""
        return self.verdict not in (Verdict.UNSURE, Verdict.MISSING)

    @property
    def probably_slower(self) -> bool:
        """Whether it is suspected to be slower."""
        return self.suspected and self.ratio is not None and self.ratio > 1


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """How a check measured; what does not apply is None or empty."""

    plan: CheckPlan
    clock: str = ""  # that took the times
    worst_floor: float | None = None  # the largest noise of base against base, a log ratio
    elapsed_s: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole check. `contaminated` names the cases where base differed from base.

    `uncovered` are changed files that no checked mechanism loads.
    """

    base: str
    head: str
    findings: tuple[Finding, ...]
    contaminated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    conditions: Conditions | None = None

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that fail the check."""
        return tuple(finding for finding in self.findings if finding.fails)

    @property
    def unsure(self) -> tuple[Finding, ...]:
        """The findings that could not be decided."""
        return tuple(finding for finding in self.findings if finding.verdict is Verdict.UNSURE)

    @property
    def cases(self) -> tuple[str, ...]:
        """The names of all cases, each once."""
        return tuple(dict.fromkeys(f.case for f in self.findings))

    @property
    def unchecked(self) -> tuple[Finding, ...]:
        """What ran on neither side; if nothing was compared or no time taken, what is undecided.

        What neither side can run counts as undecided only if nothing was compared.
        """
        compared = any(finding.decided or finding.ratio for finding in self.findings)
        times = tuple(f for f in self.findings if f.metric in RACED)
        untimed = () if any(f.ratio or f.verdict is not Verdict.UNSURE for f in times) else times
        neither = tuple(f for f in self.findings if f.unchecked)
        undecided = tuple(f for f in self.unsure if not f.unmeasured)
        unsupported = tuple(f for f in self.findings if f.unsupported)
        return neither or untimed or (() if compared else undecided or unsupported)

    def exit_code(self, strict: bool) -> int:
        """1 if something fails, 2 if something was not checked.

        3 if something was killed, or if `strict` and something is uncertain; else 0.
        """
        if self.failures:
            return 1
        if self.unchecked:
            return 2
        if any(finding.unmeasured for finding in self.findings):
            return 3
        # what pytest collects is not expected to be covered
        untested = [path for path in self.uncovered if not TESTS.search(path)]
        return 3 if strict and (self.contaminated or self.unsure or untested) else 0


def reported(report: Report, looks: Looks) -> Report:
    """The report with the findings and conditions of what was measured."""
    plan, cases = looks.plan, looks.cases
    found = list(raced(cases))
    contaminated = rule.contaminated([evidence for _, evidence in found], plan.threshold)
    times = [evidence for _, evidence in found if evidence.metric == TIME]
    views = [evidence.view(rule.Statistic.TYPICAL) for evidence in times]
    floors = [view.floor for view in views if len(view.again) >= rule.FEWEST]
    both = (counted(case, case.counted[BASE], case.counted[HEAD]) for case in cases)
    return replace(
        report,
        findings=(
            *chain.from_iterable(both),
            *chain.from_iterable(map(broken, cases)),
            *judged(plan, found, bool(contaminated), looks.enough),
        ),
        contaminated=contaminated,
        notes=(*report.notes, *changed_defaults(cases)),
        conditions=Conditions(
            plan=plan,
            clock=find(plan.device).clock if times else "",
            worst_floor=max(floors, default=None),
            elapsed_s=time.monotonic() - looks.begun,
        ),
    )


def counted(case: CheckedCase, base: Counted, head: Counted) -> Iterator[Finding]:
    """Findings on the counts of a case, or that it did not run on both sides."""
    if not_both := runs(case.name, case.label, base, head):
        yield not_both
    else:
        yield from counts(case.name, case.label, base.values, head.values)


def broken(case: CheckedCase) -> Iterator[Finding]:
    """That a case ran when it was counted but failed when it was timed."""
    if (failed := case.failed) is not None:
        side, ok = HEAD if failed.side == HEAD else BASE, Counted(outcome=Outcome.OK)
        sides = {BASE: ok, HEAD: ok, side: failed.counted.blamed(side)}
        yield from counted(case, sides[BASE], sides[HEAD])


def changed_defaults(cases: Sequence[CheckedCase]) -> Iterator[str]:
    """Cases whose default form is another on head than on base."""
    for case in cases:
        base, head = (case.counted[side].form for side in (BASE, HEAD))
        if base and head and base != head:
            yield f"{case.label}: the default form is {base} on base and {head} on head"


def judged(plan: CheckPlan, found: Raced, contaminated: bool, enough: str) -> Iterator[Finding]:
    """The verdicts on the raced metrics of each case.

    `enough` is the option that gives time to time all twice.
    """
    rulings = rule.judge([evidence for _, evidence in found], plan.threshold)
    for (case, evidence), (verdict, effect, reason, statistic) in zip(found, rulings, strict=True):
        suspect = verdict is Verdict.UNSURE and rule.unconfirmed(evidence, plan.threshold)
        known = effect.low > -math.inf
        ratio, low, high = (math.exp(log) if known else None for log in effect[:3])
        sides = (case.numbers(side, statistic, evidence.metric) for side in (BASE, HEAD))
        base, head = (median(numbers) if numbers else None for numbers in sides)
        if contaminated and verdict in (Verdict.SLOWER, Verdict.FASTER):
            reason = "the check is contaminated: base differs from base"
        elif verdict is Verdict.UNSURE and len(evidence.first.head) < rule.FEWEST:
            reason = f"no time was left ({enough})"
        elif suspect:
            reason = f"{reason} ({enough})"
        yield Finding(
            mechanism=case.name,
            case=evidence.name,
            metric=evidence.metric,
            base=base,
            head=head,
            ratio=ratio,
            low=low,
            high=high,
            verdict=verdict,
            reason=reason,
            fails=verdict is Verdict.SLOWER and not contaminated,
            suspected=suspect,
            batch=case.batch,
        )


def counts(
    mechanism: str, case: str, base: Mapping[str, float], head: Mapping[str, float]
) -> Iterator[Finding]:
    """One finding for each counted metric that either side has."""
    for name in COUNTED:
        a, b = base.get(name), head.get(name)
        if a is None and b is None:
            continue
        verdict = count_verdict(a, b, TABLE[name])
        yield Finding(
            mechanism=mechanism,
            case=case,
            metric=name,
            base=a,
            head=b,
            ratio=b / a if a and b is not None else None,
            verdict=verdict,
            fails=verdict is Verdict.SLOWER,
        )


def runs(mechanism: str, case: str, base: Counted, head: Counted) -> Finding | None:
    """The finding for a case that did not run on both sides; None where it did.

    What is new and does not run fails, as does what no longer runs.
    """
    if base.ran and head.ran:
        return None
    sides = (base.outcome, head.outcome)
    unsure = partial(Finding, mechanism=mechanism, case=case, metric=RUNS, verdict=Verdict.UNSURE)
    missing = partial(unsure, verdict=Verdict.MISSING)
    if Outcome.SKIPPED in sides:
        killed = any(one.outcome == Outcome.SKIPPED and one.killed for one in (base, head))
        return unsure(reason=head.reason or base.reason, unmeasured=killed)
    if sides == (MISSING, MISSING):
        return missing(reason=f"on neither side: {head.reason}", unchecked=True)
    if head.outcome == MISSING:
        return missing(reason=f"removed: {head.reason}")
    if head.ran:
        added = base.outcome == MISSING
        how = "added" if added else f"{base.outcome} on base only"
        return missing(reason=f"{how}: {base.reason}")
    if base.ran or base.outcome == MISSING:
        how = f"{head.outcome} on head only" if base.ran else f"added, but {head.outcome}"
        return missing(reason=f"{how}: {head.reason}", fails=True)
    if sides == (Outcome.UNSUPPORTED, Outcome.UNSUPPORTED):
        return missing(reason=f"unsupported on both: {head.reason}", unsupported=True)
    how = f"{base.outcome} on base, {head.outcome} on head"
    return unsure(reason=f"{how}: {head.reason}", unchecked=True)


def traded(report: Report) -> Report:
    """The report in which counts do not fail where the time of their case fell.

    Counts stand in for time; where both are known and disagree, time decides, unless the check is
    contaminated.
    """
    if report.contaminated:
        return report
    fell = {f.case for f in report.findings if f.metric == TIME and f.verdict is Verdict.FASTER}
    findings = tuple(
        replace(f, fails=False, reason="not a failure, since the time of this case fell")
        if f.fails and f.metric in COUNTED and f.case in fell
        else f
        for f in report.findings
    )
    return replace(report, findings=findings)
