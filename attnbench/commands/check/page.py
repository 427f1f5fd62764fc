"""A check as text, tables and a page: failures first, then what is uncertain, then the rest."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from attnbench.commands.check.finding import CheckAnswer, CheckQuestion, CheckReport, Finding
from attnbench.commands.check.rule import MAX_USABLE_LIMIT
from attnbench.errors import clean
from attnbench.records import metrics, units
from attnbench.report import grid, markdown, phrases

# a case of a mechanism: its name, then sizes, level, mode, and what all cases of a check share
LABEL = re.compile(r"(.*)/B\d+-N(\d+)-[^/]*/\w+/(\w+)/.*")


def short_label(case: str) -> str:
    """`fastformer:eager N=128 training`: a label without what all cases of a check share."""
    return LABEL.sub(r"\1 N=\2 \3", case)


CASE = grid.Column("case", lambda finding: grid.words(short_label(finding.case)))
METRIC = grid.Column("metric", lambda finding: grid.words(metrics.TABLE[finding.metric].label))
REASON = grid.Column("reason", lambda finding: grid.words(finding.reasons))
BATCH = grid.Column(
    "batch timed", lambda f: grid.words(units.count(f.batch) if f.batch else units.NOTHING)
)
COMPARED = (
    grid.Column("base", lambda finding: grid.words(_values(finding)[0])),
    grid.Column("head", lambda finding: grid.words(_values(finding)[1])),
    grid.Column(
        "change", lambda f: grid.Cell(change_of(f) or units.NOTHING, f.ratio, f.low, f.high)
    ),
    grid.Column("verdict", lambda f: grid.words(": ".join(filter(None, (label(f), f.reasons))))),
)


def headline(report: CheckReport) -> str:
    """The whole check in one line, with how many of its cases were compared."""
    verdict = _verdict(report)
    uncompared = report.uncompared_findings
    if not uncompared or verdict.startswith("NOT CHECKED"):
        return verdict
    if not report.compared_cases:
        return f"{verdict}: {_reasons_text(report.findings)}" if not report.failures else verdict
    # of others, no time was left
    others = [finding for finding in uncompared if finding.question is not CheckQuestion.TIME]
    return f"{verdict}; {len(others)} not compared: {_reasons_text(others)}" if others else verdict


def _verdict(report: CheckReport) -> str:
    """The verdict on what was compared."""
    cases = units.many(len(report.cases), "case")
    if report.failures:
        return f"FAILED: {_failures_text(report)} of {cases}"
    if not report.findings:
        return "nothing to check: no mechanism loads a changed file"
    if report.unchecked_findings:
        return f"NOT CHECKED: {_first_of(report, report.unchecked_findings)}"
    if suspects := report.findings_with(CheckAnswer.SUSPECTED):
        slower = [finding for finding in suspects if finding.is_probably_slower]
        named = slower or suspects
        texts = units.few(
            [f"{clean(short_label(finding.case))} {change_of(finding)}" for finding in named], 3
        )
        return f"PROBABLY {'SLOWER' if slower else 'FASTER'}: {texts}; {clean(named[0].reasons)}"
    if killed := report.findings_with(CheckAnswer.KILLED):
        return f"UNSURE: {_case_count(killed)} of {cases}" if report.compared_cases else "UNSURE"
    if unsure := report.unsure_findings:
        return f"UNSURE: {_case_count(unsure)} of {cases}{''.join(_undecided_text(unsure))}"
    if not report.compared_cases:
        return "nothing to compare"
    compared = len(report.compared_cases)
    some = f"{units.count(compared)} of " if compared < len(report.cases) else ""
    return f"OK: no regression in {some}{cases}"


def _undecided_text(unsure: Sequence[Finding]) -> Iterator[str]:
    """For how many of these no time was left, and what would probably decide how many, in words."""
    untimed = [f for f in unsure if f.question is CheckQuestion.TIME and f.ratio is None]
    if untimed:
        yield f"; for {_case_count(untimed)} {clean(untimed[0].reason)}"
    remedies = Counter(finding.decided_by for finding in unsure if finding.decided_by)
    for remedy, number in remedies.most_common(1):
        which = "" if number == len(unsure) else f"{units.count(number)} of them "
        yield f"; {which}{clean(remedy)}"


def _reasons_text(findings: Sequence[Finding]) -> str:
    """The first of these findings in a sentence each, and whether there are more."""
    return units.few([sentence(finding) for finding in findings], 2)


def _first_of(report: CheckReport, findings: Sequence[Finding]) -> str:
    """Of how many of the cases these are, and the first one."""
    cases = len(report.cases)
    which = f"{_case_count(findings)} of {units.many(cases, 'case')}: " if cases > 1 else ""
    return which + sentence(findings[0])


def sentence(finding: Finding) -> str:
    """One finding in one line."""
    if finding.metric not in metrics.TABLE:
        return f"{clean(finding.case)}: {clean(finding.reasons)}"
    metric = metrics.TABLE[finding.metric]
    values = " to ".join(_values(finding))
    parts = [f"{clean(finding.case)}: {metric.label} {label(finding)}"]
    if ratio := change_of(finding):
        parts.append(f"{ratio}, {values}" if finding.base is not None else ratio)
    elif finding.base is not None and finding.head is not None:
        parts.append(values)
    if finding.reasons:
        parts.append(clean(finding.reasons))
    return "; ".join(parts)


def lines(report: CheckReport) -> Iterator[str]:
    """What was compared with what, and remarks, one line each."""
    yield clean(f"{report.head} against {report.base}")
    yield from remarks(report)


def remarks(report: CheckReport) -> Iterator[str]:
    """What the tables do not show, one line each."""
    if report.uncovered:
        yield clean(f"not covered, as no mechanism loads them: {units.few(report.uncovered)}")
    yield from (clean(note) for note in report.notes)


def tables(report: CheckReport) -> tuple[grid.Table, ...]:
    """Times of every case; counts that changed; what was not compared; failures first."""
    findings = sorted(report.findings, key=lambda finding: not finding.fails)
    by_question = {
        question: [f for f in findings if f.question is question] for question in CheckQuestion
    }
    counted = by_question[CheckQuestion.COUNTS]
    changed = [f for f in counted if f.answer is not CheckAnswer.SAME]
    not_run = by_question[CheckQuestion.RUNS]
    other_results = by_question[CheckQuestion.OUTPUTS]
    all_tables = [
        _times(report, by_question[CheckQuestion.TIME]),
        grid.table(
            changed,
            (CASE, METRIC, *COMPARED),
            name="counts",
            title="Counted",
            note=f"{len(counted) - len(changed)} of {len(counted)} counted metrics are the same",
        ),
        grid.table(other_results, (CASE, REASON), name="outputs", title="Outputs and gradients"),
        grid.table(not_run, (CASE, REASON), name="runs", title="Not compared"),
    ]
    return tuple(one for one in all_tables if one.rows)


def _times(report: CheckReport, findings: Sequence[Finding]) -> grid.Table:
    """The table of times; functions have no batch."""
    clock = report.conditions.clock if report.conditions else ""
    has_batch = any(finding.batch for finding in findings)
    timed_unit = "iteration, at a batch size suited to timing" if has_batch else "call"
    return grid.table(
        findings,
        (CASE, *([BATCH] if has_batch else []), *COMPARED),
        name="times",
        title="Times",
        note=f"{clock or 'time'} of one {timed_unit}; 99 % confidence intervals over pairs of fresh"
        " processes",
    )


def page(report: CheckReport) -> str:
    """The check in Markdown, for a job summary or a comment."""
    head = [f"# attnbench check: {markdown.escape(headline(report))}", ""]
    head += [f"- {markdown.escape(line)}" for line in lines(report)]
    method_text = markdown.escape(" ".join(method(report)))
    return "\n".join([*head, "", *map(markdown.table, tables(report)), method_text, ""])


def method(report: CheckReport) -> Iterator[str]:
    """How the check measured, in sentences; as far as its conditions are known."""
    if (conditions := report.conditions) is None:
        return
    plan = conditions.plan
    most_pairs = plan.looks[0]
    ignored = units.percent(plan.threshold)
    on_average = max(plan.threshold, MAX_USABLE_LIMIT)
    if any(finding.question is CheckQuestion.COUNTS for finding in report.findings):
        sizes = f"c = {units.count(plan.tokens)} tokens, D = {plan.width}, H = {plan.heads}"
        yield f"Counts, outputs and gradients are those at {sizes}, {plan.dtype}."
    if conditions.worst_floor is not None:
        yield (
            f"Timed by {conditions.clock} in up to {most_pairs} pairs of fresh processes, and in"
            f" up to {plan.most - most_pairs} more where that leaves doubt; changes below"
            f" {ignored} are ignored, and below the limit that a case states where its noise hides"
            f" more; that a case is the same excludes a change of the mean of all calls from"
            f" {units.percent(on_average)} on; base and base differed by up to"
            f" {units.percent(conditions.worst_floor)}."
        )
    yield f"The check took {units.seconds(conditions.elapsed_s)}."


def data(report: CheckReport, strict: bool) -> dict[str, Any]:
    """The whole check as plain data."""
    uncompared = [{"case": f.case, "reason": f.reasons} for f in report.uncompared_findings]
    return {
        "exit_code": report.exit_code(strict),
        "headline": headline(report),
        "compared": list(report.compared_cases),
        "not_compared": uncompared,
        **asdict(report),
        "findings": [_finding(finding) for finding in report.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    """A finding as plain data, with what follows from its answer."""
    answer = finding.answer
    return {
        **asdict(finding),
        "question": finding.question,
        "verdict": finding.verdict,
        "fails": finding.fails,
        "suspected": answer is CheckAnswer.SUSPECTED,
        "unchecked": answer is CheckAnswer.NEITHER,
        "unsupported": answer is CheckAnswer.UNSUPPORTED,
        "unmeasured": answer is CheckAnswer.KILLED,
        "lost": answer is CheckAnswer.LOST,
        "gone": answer is CheckAnswer.GONE,
    }


def label(finding: Finding) -> str:
    """The verdict in words; what is suspected is not just unsure."""
    if finding.answer is CheckAnswer.SUSPECTED:
        return str(finding.answer)
    if finding.metric not in metrics.TABLE:
        return str(finding.verdict)
    return phrases.verdict_label(finding.verdict, metrics.TABLE[finding.metric])


def change_of(finding: Finding) -> str:
    """`+8.3 % [6.1 %, 11 %]`, or nothing."""
    if finding.ratio is None:
        return ""
    if finding.low is None or finding.high is None:
        return units.change(finding.ratio)
    return units.interval(
        units.change(finding.ratio), units.change(finding.low), units.change(finding.high)
    )


def _values(finding: Finding) -> list[str]:
    """Base and head with their unit."""
    unit = metrics.TABLE[finding.metric].unit
    numbers = (finding.base, finding.head)
    return [units.NOTHING if number is None else grid.quantity(number, unit) for number in numbers]


def _failures_text(report: CheckReport) -> str:
    """`2 slower, 1 larger`: cases of each kind."""
    kinds = ("slower", "larger", "different", "failing")
    cases_by_kind: dict[str, set[str]] = {kind: set() for kind in kinds}
    for finding in report.failures:
        cases_by_kind["failing" if finding.answer is CheckAnswer.BREAKS else label(finding)].add(
            finding.case
        )
    return ", ".join(f"{len(cases)} {kind}" for kind, cases in cases_by_kind.items() if cases)


def _case_count(findings: Iterable[Finding]) -> int:
    return len({finding.case for finding in findings})
