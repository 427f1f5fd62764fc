"""The findings of a check, one for each case and metric, and the report that holds them."""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, starmap
from types import MappingProxyType
from typing import Any

from attnbench.analysis import Verdict
from attnbench.analysis.statistics.verdict import count_verdict
from attnbench.commands.check import rule
from attnbench.commands.check.cases import (
    AGAIN,
    BASE,
    HEAD,
    MISSING,
    CheckedCase,
    CheckPlan,
    Counted,
)
from attnbench.commands.check.measuring import Looks
from attnbench.devices import find
from attnbench.devices.cgroups import Stops, quota_cores
from attnbench.records import Cause, Outcome, messages, units
from attnbench.records.metrics import COUNTED, TABLE, TIME

# metrics of findings, besides the keys of `records.metrics.TABLE`; outputs only where they differ
RUNS = "runs"
OUTPUTS = "outputs"

RARELY = 0.05  # of the periods of a quota
LEAST_MINUTES_S = 150.0  # from which a budget is advised in whole minutes

TESTS = re.compile(r"(^|/)(tests?/|test_|conftest\.py)")


class CheckQuestion(StrEnum):
    """What is asked of a case, head against base."""

    RUNS = "does it run on both sides"
    OUTPUTS = "does it compute the same"
    COUNTS = "does it count more"
    TIME = "does it take longer"


class CheckAnswer(StrEnum):
    """All answers to these questions."""

    # both sides were compared
    SLOWER = "slower"  # or larger
    FASTER = "faster"  # or smaller
    SAME = "same"
    DIFFERENT = "different"  # of what is computed, or of a count of which neither is better
    # both sides ran, and what was measured does not decide
    SUSPECTED = "suspected"  # seems slower or faster; there was no time to confirm it
    NOT_KNOWN = "not known"
    # not both sides ran, so that nothing was compared
    ADDED = "added"  # base has no such case, and head runs
    GONE = "gone"  # head has no such case
    BREAKS = "breaks"  # head fails, and base does not, or has no such case
    LOST = "lost"  # base alone fails, or a side ran what is not its own
    UNSUPPORTED = "unsupported"  # on both sides
    NEITHER = "neither"  # it fails on both sides, or neither has it
    KILLED = "killed"  # a side was killed, perhaps by no fault of its code

    @property
    def is_known(self) -> bool:
        """Whether it says how the two sides differ."""
        return self in COMPARED

    @property
    def verdict(self) -> Verdict:
        """The verdict that this answer amounts to."""
        return VERDICTS[self]


COMPARED = frozenset(
    {CheckAnswer.SLOWER, CheckAnswer.FASTER, CheckAnswer.SAME, CheckAnswer.DIFFERENT}
)
FAILING = frozenset({CheckAnswer.SLOWER, CheckAnswer.DIFFERENT, CheckAnswer.BREAKS})
VERDICTS: Mapping[CheckAnswer, Verdict] = MappingProxyType({
    **dict.fromkeys(CheckAnswer, Verdict.MISSING),
    **{answer: Verdict(answer.value) for answer in COMPARED},
    CheckAnswer.SUSPECTED: Verdict.UNSURE,
    CheckAnswer.NOT_KNOWN: Verdict.UNSURE,
    CheckAnswer.KILLED: Verdict.UNSURE,
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The answer to one question about one case, head against base; `ratio` is head over base.

    Its scope is the `case`: times are seconds of one iteration of `batch` sequences, compared in
    `pairs` pairs of processes; the batch in the label of the case is the counted one. `reason` says
    why, and `decided_by` what would probably decide what is not known. What is `excused` does not
    fail. `file` holds the mechanism or function.
    """

    mechanism: str
    case: str
    metric: str
    base: float | None = None
    head: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    answer: CheckAnswer
    reason: str = ""
    decided_by: str = ""
    excused: bool = False
    file: str = ""
    batch: int | None = None
    pairs: int | None = None

    @property
    def question(self) -> CheckQuestion:
        """What it answers."""
        return QUESTIONS.get(self.metric, CheckQuestion.COUNTS)

    @property
    def verdict(self) -> Verdict:
        """The answer as a verdict on the two sides."""
        return self.answer.verdict

    @property
    def fails(self) -> bool:
        """Whether it fails the check."""
        return self.answer in FAILING and not self.excused

    @property
    def is_decided(self) -> bool:
        """Whether the answer says how the two sides differ."""
        return self.answer.is_known

    @property
    def compares(self) -> bool:
        """Whether it compares base and head, however sure it is."""
        return self.question is not CheckQuestion.RUNS and (
            self.is_decided or self.ratio is not None
        )

    @property
    def is_probably_slower(self) -> bool:
        """Whether it is suspected to be slower."""
        return self.answer is CheckAnswer.SUSPECTED and self.ratio is not None and self.ratio > 1

    @property
    def reasons(self) -> str:
        """The reason, and what would probably decide what is not known."""
        return "; ".join(filter(None, (self.reason, self.decided_by)))


QUESTIONS: Mapping[str, CheckQuestion] = MappingProxyType(
    {RUNS: CheckQuestion.RUNS, OUTPUTS: CheckQuestion.OUTPUTS, TIME: CheckQuestion.TIME}
)


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """How a check measured; what does not apply is None or empty."""

    plan: CheckPlan
    clock: str = ""  # that took the times
    worst_floor: float | None = None  # the largest noise of base against base, a log ratio
    elapsed_s: float


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """A whole check; `uncovered` are changed files that no checked mechanism loads.

    `named` says whether someone named what is checked, so that it must be there.
    """

    base: str
    head: str
    named: bool = False
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    conditions: Conditions | None = None

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that fail the check."""
        return tuple(finding for finding in self.findings if finding.fails)

    @property
    def unsure_findings(self) -> tuple[Finding, ...]:
        """The findings that could not be decided."""
        return tuple(finding for finding in self.findings if finding.verdict is Verdict.UNSURE)

    def findings_with(self, *answers: CheckAnswer) -> tuple[Finding, ...]:
        """The findings with one of these answers."""
        return tuple(finding for finding in self.findings if finding.answer in answers)

    @property
    def cases(self) -> tuple[str, ...]:
        """The names of all cases, each once."""
        return tuple(dict.fromkeys(f.case for f in self.findings))

    @property
    def compared_cases(self) -> tuple[str, ...]:
        """The names of the cases of which base and head were compared, each once."""
        return tuple(dict.fromkeys(f.case for f in self.findings if f.compares))

    @property
    def uncompared_findings(self) -> tuple[Finding, ...]:
        """The first finding of each other case, which says why it was not compared."""
        compared = {*self.compared_cases}
        others = {f.case: f for f in reversed(self.findings) if f.case not in compared}
        return tuple(others[case] for case in self.cases if case in others)

    @property
    def lost_findings(self) -> tuple[Finding, ...]:
        """What should have been compared and could not be, or was named and is gone."""
        gone = (CheckAnswer.GONE,) if self.named else ()
        return self.findings_with(CheckAnswer.LOST, *gone)

    @property
    def unchecked_findings(self) -> tuple[Finding, ...]:
        """What ran on neither side; if nothing was compared or no time taken, what is undecided.

        What only one side can run, or neither can, counts only if nothing was compared; what a
        change adds or removes, only if it was named.
        """
        neither = self.findings_with(CheckAnswer.NEITHER)
        times = tuple(f for f in self.findings if f.question is CheckQuestion.TIME)
        untimed = () if any(f.ratio or f.is_decided for f in times) else times
        if neither or untimed or self.compared_cases:
            return neither or untimed
        if undecided := self.findings_with(CheckAnswer.SUSPECTED, CheckAnswer.NOT_KNOWN):
            return undecided
        uncompared = self.findings_with(CheckAnswer.UNSUPPORTED, CheckAnswer.LOST)
        own_fault = tuple(f for f in self.findings if f.answer is not CheckAnswer.KILLED)
        return uncompared or (own_fault if self.named else ())

    def exit_code(self, strict: bool) -> int:
        """1 if something fails, 2 if something was not checked or nothing was compared.

        3 if something was killed, or if `strict` and something is uncertain or lost; else 0.
        """
        if self.failures:
            return 1
        if self.unchecked_findings:
            return 2
        if self.findings_with(CheckAnswer.KILLED):
            return 3
        # what pytest collects is not expected to be covered
        untested = [path for path in self.uncovered if not TESTS.search(path)]
        return 3 if strict and (self.unsure_findings or self.lost_findings or untested) else 0


def with_results(report: CheckReport, looks: Looks) -> CheckReport:
    """The report with the findings and conditions of what was measured."""
    plan = looks.plan
    timed_cases = looks.timed_cases
    times = [case.views(plan.threshold) for case in timed_cases]
    floors = [typical.floor for typical, _ in times if len(typical.again) >= rule.FEWEST]
    sides = ((case, *map(case.counted.__getitem__, (BASE, HEAD))) for case in looks.cases)
    raced = zip(timed_cases, times, rule.rulings(times), strict=True)
    conditions = Conditions(
        plan=plan,
        clock=clock_of(timed_cases, find(plan.device).clock),
        worst_floor=max(floors, default=None),
        elapsed_s=time.monotonic() - looks.begun,
    )
    findings = (
        *chain.from_iterable(starmap(count_findings, sides)),
        *(time_finding(looks, *r) for r in raced),
    )
    notes = (
        *report.notes,
        *return_notes(looks.cases),
        *quota_notes(looks.quota_stops, quota_cores()),
    )
    return replace(report, findings=findings, notes=notes, conditions=conditions)


def quota_notes(stopped: Stops, quota: float | None) -> Iterator[str]:
    """What a CPU quota has done to a check, in words; nothing if it rarely stopped a process."""
    if quota is not None and stopped.share > RARELY:
        yield (
            f"a CPU quota of {quota:g} cores (of this container or service) stopped these processes"
            f" in {units.percent(stopped.share)} of its periods: CPU time does not count that, and"
            " the check takes longer; raise the quota, or --budget"
        )


def clock_of(cases: Sequence[CheckedCase], clock: str) -> str:
    """What the times of these cases are, in words; empty without any."""
    waiting = sum(case.waits for case in cases)
    if not waiting:
        return clock if cases else ""
    if waiting == len(cases):
        return f"{clock} and waiting time"
    return f"{clock}, and waiting time where a case waits,"


def count_findings(case: CheckedCase, base: Counted, head: Counted) -> Iterator[Finding]:
    """One finding for each metric that either side counted, or that not both ran."""
    if not_both := run_finding(case.name, case.label, base, head, case.apart):
        yield not_both
        return
    yield from output_findings(case)
    for name in COUNTED:
        a = base.values.get(name)
        b = head.values.get(name)
        if a is not None or b is not None:
            verdict = count_verdict(a, b, TABLE[name])
            yield Finding(
                mechanism=case.name,
                case=case.label,
                metric=name,
                base=a,
                head=b,
                ratio=b / a if a and b is not None else None,
                answer=CheckAnswer.ADDED if a is None else answer_of(verdict),
            )


def answer_of(verdict: Verdict) -> CheckAnswer:
    """The answer that a verdict on a count or a time is."""
    if verdict in (Verdict.UNSURE, Verdict.MISSING):
        return CheckAnswer.NOT_KNOWN
    return CheckAnswer(verdict.value)


def output_findings(case: CheckedCase) -> Iterator[Finding]:
    """The finding where the outputs or gradients of the two sides differ, or were not compared."""
    base = case.comparison(BASE)
    head = case.comparison(HEAD)
    about: dict[str, Any] = {"mechanism": case.name, "case": case.label, "metric": OUTPUTS}
    if case.workload is None:
        yield from return_findings(case, head, about)
    elif why := case.reason_uncompared(BASE, HEAD):
        reason = f"outputs were not compared: {why}"
        yield Finding(answer=CheckAnswer.NOT_KNOWN, reason=reason, **about)
    elif base and head and head.differs:
        reason = f"{head.what} differs by {head.error:.2g} of its largest value"
        reason += f"; {head.allowed:.2g} is allowed"
        if base.drawn > head.allowed:
            reason += ", but random draws may have come in another order"
            yield Finding(answer=CheckAnswer.NOT_KNOWN, reason=reason, **about)
        else:
            yield Finding(answer=CheckAnswer.DIFFERENT, reason=reason, **about)


def return_findings(
    case: CheckedCase, head: messages.Compared | None, about: Mapping[str, Any]
) -> Iterator[Finding]:
    """The finding where a function returns something else than base, which is always the same."""
    repeat = case.comparison(AGAIN)
    if head and head.differs and repeat and not repeat.error:
        reason = f"it returns something else: {head.what}"
        yield Finding(answer=CheckAnswer.DIFFERENT, reason=reason, **about)


def return_notes(cases: Sequence[CheckedCase]) -> Iterator[str]:
    """Why what functions return was not compared, in words."""
    for case in cases:
        if case.workload is not None:
            continue
        repeat = case.comparison(AGAIN)
        reason = case.reason_uncompared(BASE, HEAD, AGAIN)
        if not reason and repeat and repeat.error:
            reason = "base returns something else each time"
        if reason:
            yield f"what {case.label} returns was not compared: {reason}"


def time_finding(
    looks: Looks, case: CheckedCase, views: Sequence[rule.View], ruling: rule.Ruling
) -> Finding:
    """The verdict on the time of a case; what is unsure says what would probably decide it.

    looks: of the check.
    case: with its pairs of processes.
    views: both statistics of the pairs.
    ruling: of the rule, on the case among all.
    """
    verdict, effect, reason, statistic = ruling
    evident_verdict = rule.evident_verdict(case.pairs) if verdict is Verdict.UNSURE else None
    answer = answer_of(evident_verdict or verdict)
    if answer is CheckAnswer.NOT_KNOWN and views[0].lacks_second and rule.is_suspected(views):
        answer = CheckAnswer.SUSPECTED
    bounded = effect.low > -math.inf
    ratio, low, high = (math.exp(log) if bounded else None for log in effect[:3])
    if evident_verdict is not None:
        # the interval of so few pairs would say nothing
        logs = views[0].first + views[0].second
        ratio = math.exp(sum(logs) / len(logs))
        low = None
        high = None
        reason = f"in each sample of {units.many(len(logs), 'pair')}; {rule.UNCONFIRMED}"
    elif answer is CheckAnswer.NOT_KNOWN and len(views[0].first) < rule.FEWEST:
        reason = "no time was left"
    return Finding(
        mechanism=case.name,
        case=case.label,
        metric=TIME,
        base=case.seconds(BASE, statistic),
        head=case.seconds(HEAD, statistic),
        ratio=ratio,
        low=low,
        high=high,
        answer=answer,
        reason=reason,
        decided_by="" if answer.is_known else what_decides(looks, case),
        batch=case.batch,
        pairs=len(case.visits),
    )


def what_decides(looks: Looks, case: CheckedCase) -> str:
    """What would probably decide a case that is unsure, in words; empty where nothing is known to.

    The budget is an estimate for all cases of the check, from how noisy each was.
    """
    need = looks.needs[case]
    if need.is_met:
        return ""
    if math.isinf(need.pairs):
        return (
            f"as noisy as it is so far, it needs more than {looks.plan.most} pairs of processes:"
            " measure when less else runs, or let one call do more"
        )
    return f"needs about --budget {budget(looks.enough_s)}"


def budget(seconds: float) -> str:
    """A time as `--budget` takes it, rounded up: `90s`, `6m`."""
    if seconds < LEAST_MINUTES_S:
        return f"{10 * math.ceil(seconds / 10)}s"
    return f"{math.ceil(seconds / 60)}m"


def run_finding(
    mechanism: str, case: str, base: Counted, head: Counted, apart: str = ""
) -> Finding | None:
    """The finding for a case that did not run on both sides, or not by the code of its own side.

    None where it did. What is new and does not run fails, as does what no longer runs.

    mechanism: its name in the report.
    case: the case in words.
    base, head: how it ended on each side.
    apart: why the sides cannot be compared, though both may have run.
    """
    if base.ran and head.ran and not apart:
        return None
    answer, sides, why = answer_of_sides(base, head, apart)
    return Finding(
        mechanism=mechanism,
        case=case,
        metric=RUNS,
        answer=answer,
        reason="; ".join(filter(None, (sides + why, apart))),
    )


def answer_of_sides(base: Counted, head: Counted, apart: str) -> tuple[CheckAnswer, str, str]:
    """What a case is that was not compared: the answer, the sides in words, and the reason."""
    sides = (base.outcome, head.outcome)
    added = base.outcome == MISSING
    if Outcome.SKIPPED in sides:
        is_killed = Cause.KILLED in (base.cause, head.cause)
        answer = CheckAnswer.KILLED if is_killed else CheckAnswer.NOT_KNOWN
        return answer, "", head.reason or base.reason
    if added and head.outcome == MISSING:
        return CheckAnswer.NEITHER, "on neither side: ", head.reason
    if head.outcome == MISSING:
        return CheckAnswer.GONE, "gone from head: ", head.reason
    if base.ran and head.ran:
        return CheckAnswer.LOST, "", ""
    if head.ran and added and not apart:
        return CheckAnswer.ADDED, "added: ", base.reason
    if head.ran:
        return CheckAnswer.LOST, f"{base.outcome} on base only: ", base.reason
    if base.ran or added:
        sides_text = f"added, but {head.outcome}: " if added else f"{head.outcome} on head only: "
        return CheckAnswer.BREAKS, sides_text, head.reason
    if sides == (Outcome.UNSUPPORTED, Outcome.UNSUPPORTED):
        return CheckAnswer.UNSUPPORTED, "unsupported on both: ", head.reason
    return CheckAnswer.NEITHER, f"{base.outcome} on base, {head.outcome} on head: ", head.reason


def excuse_counts(report: CheckReport) -> CheckReport:
    """The report in which counts do not fail where the time of their case fell.

    Counts stand in for time; where both are known and disagree, time decides.
    """
    times = (f for f in report.findings if f.question is CheckQuestion.TIME)
    fell = {f.case for f in times if f.answer is CheckAnswer.FASTER}
    reason = "not a failure, since the time of this case fell"
    findings = tuple(
        replace(f, excused=True, reason=reason)
        if f.fails and f.metric in COUNTED and f.case in fell
        else f
        for f in report.findings
    )
    return replace(report, findings=findings)
