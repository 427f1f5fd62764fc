"""A check as text, tables and pages: failures first, then what is uncertain, then the rest."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from attnbench.gate.finding import RUNS, Finding, Report
from attnbench.metrics import COUNTED, RACED, TABLE, TIME, Better, Metric, Unit
from attnbench.render import html, markdown
from attnbench.render.grid import Cell, Table, clean, quantity, words
from attnbench.statistics.verdict import Verdict
from attnbench.units import NOTHING, change, count, few, interval, many, percent, seconds

# a case of a mechanism: its name, then sizes, level, mode, and what all cases of a check share
LABEL = re.compile(r"(.*)/B\d+-N(\d+)-[^/]*/\w+/(\w+)/.*")


def verdict_label(verdict: Verdict, metric: Metric) -> str:
    """The verdict in the words of the metric: bytes are larger, not slower."""
    if metric.unit is Unit.SECONDS or verdict not in (Verdict.SLOWER, Verdict.FASTER):
        return str(verdict)
    grew = (verdict is Verdict.SLOWER) == (metric.better is Better.LOWER)
    return "larger" if grew else "smaller"


def headline(report: Report) -> str:
    """The whole check in one line; a mean over lengths is not counted as a case."""
    cases, unchecked = many(len(report.cases), "case"), report.unchecked
    if report.failures:
        return f"FAILED: {_failed(report)} of {cases}"
    if not report.findings:
        return "nothing to check: no mechanism loads a changed file"
    if unchecked:
        which = "" if len(report.cases) == 1 else f"{_number(unchecked)} of {cases}: "
        return f"NOT CHECKED: {which}{sentence(unchecked[0])}"
    if report.contaminated:
        return "CONTAMINATED: base differs from base, so no time can be trusted"
    if suspects := [finding for finding in report.unsure if finding.suspected]:
        return _probably(suspects)
    if lost := [finding for finding in report.unsure if finding.unmeasured]:
        return f"UNSURE: {_number(lost)} of {cases}: {sentence(lost[0])}"
    if report.unsure:
        return _unsure(report, cases)
    return f"OK: no regression in {cases}"


def compared(report: Report) -> str:
    """What was compared with what."""
    return clean(f"{report.head} against {report.base}")


def sentence(finding: Finding) -> str:
    """One finding in one line."""
    if finding.metric == RUNS:
        return f"{clean(finding.case)}: {clean(finding.reason)}"
    metric, values = TABLE[finding.metric], " to ".join(_values(finding))
    parts = [f"{clean(finding.case)}: {metric.label} {label(finding)}"]
    if ratio := change_of(finding):
        parts.append(f"{ratio}, {values}" if finding.base is not None else ratio)
    elif finding.base is not None and finding.head is not None:
        parts.append(values)
    if finding.reason:
        parts.append(clean(finding.reason))
    return "; ".join(parts)


def remarks(report: Report) -> Iterator[str]:
    """What the tables do not show, one line each."""
    if report.contaminated:
        yield (
            "contaminated: base differs from base, so no time is judged:"
            f" {clean('; '.join(report.contaminated))}; run it again on a quieter machine"
        )
    if report.uncovered:
        yield clean(f"not covered, as no mechanism loads them: {few(report.uncovered)}")
    yield from (clean(note) for note in report.notes)


def uncertain_lines(report: Report) -> Iterator[str]:
    """Uncertain findings but those suspected, in one line, then remarks."""
    if unsure := [finding for finding in report.unsure if not finding.suspected]:
        more = f"; and {len(unsure) - 1} more" if len(unsure) > 1 else ""
        yield f"unsure: {sentence(unsure[0])}{more}"
    yield from remarks(report)


def short(case: str) -> str:
    """`fastformer:eager N=128 training`: a label without what all cases of a check share."""
    return LABEL.sub(r"\1 N=\2 \3", case)


def tables(report: Report) -> tuple[Table, ...]:
    """Times of every case; counts that changed; cases that were not compared; failures first."""
    findings = sorted(report.findings, key=lambda finding: not finding.fails)
    ran = [f for f in findings if f.metric == RUNS]
    counted = [f for f in findings if f.metric in COUNTED]
    changed = [f for f in counted if f.verdict is not Verdict.SAME]
    shown = [
        *(_raced(report, key, [f for f in findings if f.metric == key]) for key in RACED),
        Table(
            name="counts",
            title="Counted",
            columns=("case", "metric", "base", "head", "change", "verdict"),
            rows=tuple(
                (words(short(f.case)), words(TABLE[f.metric].label), *_values_and_verdict(f))
                for f in changed
            ),
            note=f"{len(counted) - len(changed)} of {len(counted)} counted metrics are the same; "
            + "; ".join(
                f"{metric.label}: {metric.description}"
                for metric in dict.fromkeys(TABLE[f.metric] for f in changed)
            ),
        ),
        Table(
            name="runs",
            title="Not compared",
            columns=("case", "reason"),
            rows=tuple((words(short(f.case)), words(f.reason)) for f in ran),
        ),
    ]
    return tuple(table for table in shown if table.rows)


def _raced(report: Report, key: str, findings: Sequence[Finding]) -> Table:
    """The table of a raced metric; functions have no batch."""
    clock = report.conditions.clock if report.conditions else ""
    batches = any(finding.batch for finding in findings)
    once = "iteration, at a batch size suited to timing" if batches else "call"
    text = f"{clock or 'time'} of one {once}" if key == TIME else TABLE[key].description
    batch = ("batch timed",) if batches else ()

    def row(finding: Finding) -> tuple[Cell, ...]:
        timed = (words(count(finding.batch) if finding.batch else NOTHING),) if batches else ()
        return (words(short(finding.case)), *timed, *_values_and_verdict(finding))

    return Table(
        name=f"{TABLE[key].name}s",
        title=f"{TABLE[key].heading}s",
        columns=("case", *batch, "base", "head", "change", "verdict"),
        rows=tuple(map(row, findings)),
        note=f"{text}; 99 % confidence intervals over pairs of fresh processes",
    )


def page(report: Report) -> str:
    """The check in Markdown, for a job summary or a comment."""
    lines = [f"# attnbench check: {markdown.escape(headline(report))}", ""]
    lines += [f"- {markdown.escape(line)}" for line in (compared(report), *remarks(report))]
    lines += ["", *(markdown.table(table) for table in tables(report))]
    return "\n".join([*lines, markdown.escape(" ".join(method(report))), ""])


def web_page(report: Report) -> bytes:
    """The check as an HTML page."""
    return html.page(
        "attnbench check",
        tables(report),
        answers=[(headline(report), [compared(report), *remarks(report)])],
        conditions=[*method(report)],
        conditions_title="Method",
    )


def method(report: Report) -> Iterator[str]:
    """How the check measured, in sentences; as far as its conditions are known."""
    if (how := report.conditions) is None:
        return
    plan = how.plan
    if any(finding.metric in COUNTED for finding in report.findings):
        yield (
            f"Counted at c = {count(plan.tokens)} tokens, D = {plan.width}, H = {plan.heads},"
            f" {plan.dtype}."
        )
    if how.worst_floor is not None:
        yield (
            f"A case is timed in up to {plan.pairs} pairs of fresh processes, and in up to"
            f" {plan.confirm} more where that leaves doubt, by {how.clock}; each process gives"
            f" at most {2 * plan.rounds} samples of at least {seconds(plan.iteration_s)}."
        )
        yield (
            f"Changes of time below {percent(plan.threshold)} are ignored; noise, measured as base"
            f" against base, was at most {percent(how.worst_floor)}."
        )
    if how.elapsed_s is not None:
        yield f"The check took {seconds(how.elapsed_s)}; seed {plan.seed}."


def data(report: Report, strict: bool) -> dict[str, Any]:
    """The whole check as plain data."""
    return {"exit_code": report.exit_code(strict), "headline": headline(report), **asdict(report)}


def label(finding: Finding) -> str:
    """The verdict in words; what is suspected is not just unsure."""
    if finding.suspected:
        return "suspected"
    if finding.metric == RUNS:
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


def _failed(report: Report) -> str:
    """`2 slower, 1 larger`: cases of each kind; a mean counts only if no case is slower."""
    times = [f for f in report.failures if label(f) == Verdict.SLOWER]
    means = {f.case for f in times if f.cases > 1}
    single = [f for f in times if f.cases == 1]
    kinds = (
        ("slower", _number(single)),
        ("slower only as a mean over lengths", 0 if single else len(means)),
        ("larger", _number(f for f in report.failures if label(f) == "larger")),
        ("failing", _number(f for f in report.failures if f.metric == RUNS)),
    )
    return ", ".join(f"{number} {kind}" for kind, number in kinds if number)


def _probably(suspects: Sequence[Finding]) -> str:
    """`PROBABLY SLOWER: index +13 % [+12 %, +14 %]`, with what the suspects still need."""
    slower = [finding for finding in suspects if finding.probably_slower]
    shown = slower or suspects
    single = [finding for finding in shown if finding.cases == 1] or shown
    texts = few([f"{clean(short(finding.case))} {change_of(finding)}" for finding in single], 3)
    return f"PROBABLY {'SLOWER' if slower else 'FASTER'}: {texts}; {clean(single[0].reason)}"


def _unsure(report: Report, cases: str) -> str:
    """`UNSURE: 3 of 4 cases; for 2 no time was left (--budget 450s)`."""
    single = [finding for finding in report.unsure if finding.cases == 1]
    text = f"UNSURE: {_number(single)} of {cases}" if single else f"UNSURE: a mean over {cases}"
    late = [finding for finding in single if finding.metric in RACED and finding.ratio is None]
    return f"{text}; for {_number(late)} {clean(late[0].reason)}" if late else text


def _number(findings: Iterable[Finding]) -> int:
    return len({finding.case for finding in findings})


def _values_and_verdict(finding: Finding) -> tuple[Cell, ...]:
    return (
        *map(words, _values(finding)),
        Cell(change_of(finding) or NOTHING, finding.ratio, finding.low, finding.high),
        words(": ".join(filter(None, (label(finding), finding.reason)))),
    )
