"""The findings of a check, one for each case and metric, and the report that holds them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from attnbench.analysis.verdict import Verdict, of_count
from attnbench.gate.cases import MISSING, CheckPlan, Counted
from attnbench.metrics import COUNTED, TABLE
from attnbench.records import Outcome

TIME, RUNS = "time", "runs"  # metrics of findings, in addition to the keys of `metrics.TABLE`


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One metric of one case, head against base; `ratio` is head over base.

    Times are seconds of one iteration of `batch` sequences; the batch in the label of the case is
    the counted one. `cases` is the number of cases in a mean; `fails` says whether the finding
    fails the check.
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
    batch: int | None = None
    cases: int = 1


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """How a check measured; what does not apply is None or empty."""

    plan: CheckPlan
    clock: str = ""  # that took the times
    worst_floor: float | None = None  # the largest noise of base against base, a log ratio
    elapsed_s: float | None = None
    selftest: str = ""  # result of the last selftest of this machine
    other_machine: tuple[str, ...] | None = None  # differences of the baseline's machine, if any


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole check. `contaminated` names the cases where base differed from base."""

    base: str
    head: str
    findings: tuple[Finding, ...]
    contaminated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    conditions: Conditions | None = None

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that fail the check."""
        return tuple(finding for finding in self.findings if finding.fails)

    @property
    def traded(self) -> tuple[Finding, ...]:
        """Counts that grew where time fell, which is not a failure."""
        return tuple(
            finding
            for finding in self.findings
            if finding.metric in COUNTED and finding.verdict is Verdict.SLOWER and not finding.fails
        )

    @property
    def unsure(self) -> tuple[Finding, ...]:
        """The findings that could not be decided."""
        return tuple(finding for finding in self.findings if finding.verdict is Verdict.UNSURE)

    @property
    def cases(self) -> tuple[str, ...]:
        """The names of all cases, each once, without means over several."""
        return tuple(dict.fromkeys(f.case for f in self.findings if f.cases == 1))

    def exit_code(self, strict: bool) -> int:
        """1 if something fails, 3 if `strict` and something is uncertain, else 0."""
        if self.failures:
            return 1
        return 3 if strict and (self.contaminated or self.unsure) else 0


def counts(
    mechanism: str, case: str, base: Mapping[str, float], head: Mapping[str, float]
) -> Iterator[Finding]:
    """One finding for each counted metric that either side has."""
    for name in COUNTED:
        a, b = base.get(name), head.get(name)
        if a is None and b is None:
            continue
        verdict = of_count(a, b, TABLE[name])
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


def runs(mechanism: str, case: str, base: Counted, head: Counted) -> Finding | None:
    """The finding for a case that did not run on both sides; None where it did."""
    if base.ran and head.ran:
        return None
    verdict, fails = Verdict.MISSING, False
    if base.outcome == head.outcome == MISSING:
        reason = f"in neither: {head.reason}"
    elif head.outcome == MISSING:
        reason = f"removed: {head.reason}"
    elif base.ran:
        reason, fails = f"{head.outcome} on head only: {head.reason}", True
    elif base.outcome == MISSING and head.ran:
        reason = f"added: {base.reason} on base"
    elif base.outcome == MISSING:
        # a new mechanism that does not run fails
        reason, fails = f"added, but {head.outcome}: {head.reason}", True
    elif head.ran:
        reason = f"{base.outcome} on base only: {base.reason}"
    elif base.outcome == head.outcome == Outcome.UNSUPPORTED:
        reason = f"unsupported on both: {head.reason}"
    else:
        verdict = Verdict.UNSURE
        reason = f"{base.outcome} on base, {head.outcome} on head: {head.reason}"
    return Finding(
        mechanism=mechanism, case=case, metric=RUNS, verdict=verdict, reason=reason, fails=fails
    )
