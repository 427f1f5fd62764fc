"""What a check found: one row for each case and metric, and what follows from all of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attnbench.analysis.verdict import Verdict, of_count
from attnbench.metrics import COUNTED, TABLE

TIME, RUNS = "time", "runs"  # beside the keys of `metrics`


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One metric of one case, head against base; `ratio` is head over base.

    Times are seconds of one iteration of `batch` sequences, which is not the batch in the name of
    the case: that one is counted. `cases`: of how many cases it is the mean. `fails` says whether
    it fails the check.
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
class Report:
    """A whole check. `contaminated` names the cases where base differed from base."""

    base: str
    head: str
    findings: tuple[Finding, ...]
    contaminated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    conditions: Mapping[str, str | float] = field(default_factory=dict)

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
        """What could not be told."""
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


def counted(
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


def runs(
    mechanism: str, case: str, base: Mapping[str, Any], head: Mapping[str, Any]
) -> Finding | None:
    """What to say where a side did not run; each has `outcome` and `reason`. None if both did."""
    ran = {name: side["outcome"] == "ok" for name, side in (("base", base), ("head", head))}
    absent = {name: s["outcome"] == "missing" for name, s in (("base", base), ("head", head))}
    if all(ran.values()):
        return None
    verdict, fails = Verdict.MISSING, False
    if absent["base"] and absent["head"]:
        reason = f"in neither: {head['reason']}"
    elif absent["head"]:
        reason = f"removed: {head['reason']}"
    elif ran["base"]:
        reason, fails = f"{head['outcome']} on head only: {head['reason']}", True
    elif absent["base"] and ran["head"]:
        reason = f"added: {base['reason']} on base"
    elif absent["base"]:
        # what is new and does not run was never fine
        reason, fails = f"added, but {head['outcome']}: {head['reason']}", True
    elif ran["head"]:
        reason = f"{base['outcome']} on base only: {base['reason']}"
    elif base["outcome"] == head["outcome"] == "unsupported":
        reason = f"unsupported on both: {head['reason']}"
    else:
        verdict = Verdict.UNSURE
        reason = f"{base['outcome']} on base, {head['outcome']} on head: {head['reason']}"
    return Finding(
        mechanism=mechanism, case=case, metric=RUNS, verdict=verdict, reason=reason, fails=fails
    )
