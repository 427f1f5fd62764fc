"""A check as text, tables and a page: failures first, then what is uncertain, then the rest."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from attnbench.commands.check.finding import CheckAnswer, CheckQuestion, CheckReport, Finding
from attnbench.errors import clean
from attnbench.records.metrics import TABLE
from attnbench.records.units import NOTHING, change, count, few, interval, many, percent, seconds
from attnbench.report import markdown
from attnbench.report.grid import Cell, Column, Table, quantity, table, words
from attnbench.report.verdicts import verdict_label

# a case of a mechanism: its name, then sizes, level, mode, and what all cases of a check share
LABEL = re.compile(r"(.*)/B\d+-N(\d+)-[^/]*/\w+/(\w+)/.*")


def short(case: str) -> str:
    """`fastformer:eager N=128 training`: a label without what all cases of a check share."""
    return LABEL.sub(r"\1 N=\2 \3", case)


CASE = Column("case", lambda finding: words(short(finding.case)))
METRIC = Column("metric", lambda finding: words(TABLE[finding.metric].label))
REASON = Column("reason", lambda finding: words(finding.why))
BATCH = Column("batch timed", lambda f: words(count(f.batch) if f.batch else NOTHING))
COMPARED = (
    Column("base", lambda finding: words(_values(finding)[0])),
    Column("head", lambda finding: words(_values(finding)[1])),
    Column("change", lambda f: Cell(change_of(f) or NOTHING, f.ratio, f.low, f.high)),
    Column("verdict", lambda f: words(": ".join(filter(None, (label(f), f.why))))),
)


def headline(report: CheckReport) -> str:
    """The whole check in one line, with how many of its cases were compared."""
    verdict = _verdict(report)
    lost = report.not_compared
    if not lost or verdict.startswith("NOT CHECKED"):
        return verdict
    if not report.compared:
        return f"{verdict}: {_reasons(report.findings)}" if not report.failures else verdict
    # of others, no time was left
    shown = [finding for finding in lost if finding.question is not CheckQuestion.TIME]
    return f"{verdict}; {len(shown)} not compared: {_reasons(shown)}" if shown else verdict


def _verdict(report: CheckReport) -> str:
    """The verdict on what was compared."""
    cases = many(len(report.cases), "case")
    if report.failures:
        return f"FAILED: {_failed(report)} of {cases}"
    if not report.findings:
        return "nothing to check: no mechanism loads a changed file"
    if report.unchecked:
        return f"NOT CHECKED: {_first(report, report.unchecked)}"
    if suspects := report.answered(CheckAnswer.SUSPECTED):
        slower = [finding for finding in suspects if finding.probably_slower]
        shown = slower or suspects
        texts = few([f"{clean(short(finding.case))} {change_of(finding)}" for finding in shown], 3)
        return f"PROBABLY {'SLOWER' if slower else 'FASTER'}: {texts}; {clean(shown[0].why)}"
    if killed := report.answered(CheckAnswer.KILLED):
        return f"UNSURE: {_number(killed)} of {cases}" if report.compared else "UNSURE"
    if unsure := report.unsure:
        return f"UNSURE: {_number(unsure)} of {cases}{''.join(_late(unsure))}"
    if not report.compared:
        return "nothing to compare"
    compared = len(report.compared)
    some = f"{count(compared)} of " if compared < len(report.cases) else ""
    return f"OK: no regression in {some}{cases}"


def _late(unsure: Sequence[Finding]) -> Iterator[str]:
    """For how many of these no time was left, and what would probably decide how many, in words."""
    late = [f for f in unsure if f.question is CheckQuestion.TIME and f.ratio is None]
    if late:
        yield f"; for {_number(late)} {clean(late[0].reason)}"
    remedies = Counter(finding.decided_by for finding in unsure if finding.decided_by)
    for remedy, number in remedies.most_common(1):
        which = "" if number == len(unsure) else f"{count(number)} of them "
        yield f"; {which}{clean(remedy)}"


def _reasons(findings: Sequence[Finding]) -> str:
    """The first of these findings in a sentence each, and whether there are more."""
    return few([sentence(finding) for finding in findings], 2)


def _first(report: CheckReport, findings: Sequence[Finding]) -> str:
    """Of how many of the cases these are, and the first one."""
    cases = len(report.cases)
    which = f"{_number(findings)} of {many(cases, 'case')}: " if cases > 1 else ""
    return which + sentence(findings[0])


def sentence(finding: Finding) -> str:
    """One finding in one line."""
    if finding.metric not in TABLE:
        return f"{clean(finding.case)}: {clean(finding.why)}"
    metric = TABLE[finding.metric]
    values = " to ".join(_values(finding))
    parts = [f"{clean(finding.case)}: {metric.label} {label(finding)}"]
    if ratio := change_of(finding):
        parts.append(f"{ratio}, {values}" if finding.base is not None else ratio)
    elif finding.base is not None and finding.head is not None:
        parts.append(values)
    if finding.why:
        parts.append(clean(finding.why))
    return "; ".join(parts)


def lines(report: CheckReport) -> Iterator[str]:
    """What was compared with what, and remarks, one line each."""
    yield clean(f"{report.head} against {report.base}")
    yield from remarks(report)


def remarks(report: CheckReport) -> Iterator[str]:
    """What the tables do not show, one line each."""
    if report.uncovered:
        yield clean(f"not covered, as no mechanism loads them: {few(report.uncovered)}")
    yield from (clean(note) for note in report.notes)


def tables(report: CheckReport) -> tuple[Table, ...]:
    """Times of every case; counts that changed; what was not compared; failures first."""
    findings = sorted(report.findings, key=lambda finding: not finding.fails)
    by_question = {
        question: [f for f in findings if f.question is question] for question in CheckQuestion
    }
    counted = by_question[CheckQuestion.COUNTS]
    changed = [f for f in counted if f.answer is not CheckAnswer.SAME]
    not_run = by_question[CheckQuestion.RUNS]
    other_results = by_question[CheckQuestion.OUTPUTS]
    shown = [
        _times(report, by_question[CheckQuestion.TIME]),
        table(
            changed,
            (CASE, METRIC, *COMPARED),
            name="counts",
            title="Counted",
            note=f"{len(counted) - len(changed)} of {len(counted)} counted metrics are the same",
        ),
        table(other_results, (CASE, REASON), name="outputs", title="Outputs and gradients"),
        table(not_run, (CASE, REASON), name="runs", title="Not compared"),
    ]
    return tuple(one for one in shown if one.rows)


def _times(report: CheckReport, findings: Sequence[Finding]) -> Table:
    """The table of times; functions have no batch."""
    clock = report.conditions.clock if report.conditions else ""
    has_batch = any(finding.batch for finding in findings)
    once = "iteration, at a batch size suited to timing" if has_batch else "call"
    return table(
        findings,
        (CASE, *([BATCH] if has_batch else []), *COMPARED),
        name="times",
        title="Times",
        note=f"{clock or 'time'} of one {once}; 99 % confidence intervals over pairs of fresh"
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
    first = plan.looks[0]
    ignored = percent(plan.threshold)
    if any(finding.question is CheckQuestion.COUNTS for finding in report.findings):
        sizes = f"c = {count(plan.tokens)} tokens, D = {plan.width}, H = {plan.heads}"
        yield f"Counts, outputs and gradients are those at {sizes}, {plan.dtype}."
    if conditions.worst_floor is not None:
        yield (
            f"Timed by {conditions.clock} in up to {first} pairs of fresh processes, and in up to"
            f" {plan.most - first} more where that leaves doubt; changes below {ignored} are"
            f" ignored; base and base differed by up to {percent(conditions.worst_floor)}."
        )
    yield f"The check took {seconds(conditions.elapsed_s)}."


def data(report: CheckReport, strict: bool) -> dict[str, Any]:
    """The whole check as plain data."""
    lost = [{"case": f.case, "reason": f.why} for f in report.not_compared]
    return {
        "exit_code": report.exit_code(strict),
        "headline": headline(report),
        "compared": list(report.compared),
        "not_compared": lost,
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
    if finding.metric not in TABLE:
        return str(finding.verdict)
    return verdict_label(finding.verdict, TABLE[finding.metric])


def change_of(finding: Finding) -> str:
    """`+8.3 % [6.1 %, 11 %]`, or nothing."""
    if finding.ratio is None:
        return ""
    if finding.low is None or finding.high is None:
        return change(finding.ratio)
    return interval(change(finding.ratio), change(finding.low), change(finding.high))


def _values(finding: Finding) -> list[str]:
    """Base and head with their unit."""
    unit = TABLE[finding.metric].unit
    numbers = (finding.base, finding.head)
    return [NOTHING if number is None else quantity(number, unit) for number in numbers]


def _failed(report: CheckReport) -> str:
    """`2 slower, 1 larger`: cases of each kind."""
    kinds = ("slower", "larger", "different", "failing")
    cases_by_kind: dict[str, set[str]] = {kind: set() for kind in kinds}
    for finding in report.failures:
        cases_by_kind["failing" if finding.answer is CheckAnswer.BREAKS else label(finding)].add(
            finding.case
        )
    return ", ".join(f"{len(cases)} {kind}" for kind, cases in cases_by_kind.items() if cases)


def _number(findings: Iterable[Finding]) -> int:
    return len({finding.case for finding in findings})
