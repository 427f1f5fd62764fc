"""What a check found: one row for each case and metric, and what follows from all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from attnbench.analysis.verdict import Verdict, of_count
from attnbench.gate.cases import MISSING, Counted, Plan
from attnbench.metrics import COUNTED, TABLE
from attnbench.records import Outcome

TIME, RUNS = "time", "runs"  # what a finding may be of besides the keys of `metrics.TABLE`


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One metric of one case, head against base; `ratio` is head over base.

    Times are seconds of one iteration of `batch` sequences, which is not the batch in the label of
    the case: that one is counted. `cases` is the number of cases that it is the mean of; `fails`
    says whether it fails the check.
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
    """How a check measured; what does not apply to it is None or empty."""

    plan: Plan
    clock: str = ""  # of what was timed
    worst_floor: float | None = None  # the largest noise of base against base, a log ratio
    elapsed_s: float | None = None
    selftest: str = ""  # what the last selftest of this machine found
    other_machine: tuple[str, ...] | None = None  # how the baseline's differs; empty: it does not


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
        """What fails the check."""
        return tuple(found for found in self.findings if found.fails)

    @property
    def traded(self) -> tuple[Finding, ...]:
        """Counts that grew where time fell, which is no failure."""
        return tuple(
            found
            for found in self.findings
            if found.metric in COUNTED and found.verdict is Verdict.SLOWER and not found.fails
        )

    @property
    def unsure(self) -> tuple[Finding, ...]:
        """What could not be decided."""
        return tuple(found for found in self.findings if found.verdict is Verdict.UNSURE)

    @property
    def cases(self) -> tuple[str, ...]:
        """The names of all cases, each once; a mean over several is none."""
        return tuple(dict.fromkeys(found.case for found in self.findings if found.cases == 1))

    def exit_code(self, strict: bool) -> int:
        """1 if something fails; 3 if asked to be strict and something is not certain; else 0."""
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
    """The report with counts that grew on a case whose time fell: said, but no failures.

    Time is what a count stands for; where both are known and disagree, time decides. It decides
    nothing in a contaminated job.
    """
    if report.contaminated:
        return report
    fell = {f.case for f in report.findings if f.metric == TIME and f.verdict is Verdict.FASTER}
    findings = tuple(
        replace(found, fails=False, reason="no failure, since the time of this case fell")
        if found.fails and found.metric in COUNTED and found.case in fell
        else found
        for found in report.findings
    )
    return replace(report, findings=findings)


def runs(mechanism: str, case: str, base: Counted, head: Counted) -> Finding | None:
    """What to say where a case did not run on both sides; None where it did."""
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
        # what is new and does not run was never fine
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
