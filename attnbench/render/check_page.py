"""A check as text, tables and pages: failures first, then what is uncertain, then the rest."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from attnbench.gate.finding import RUNS, Finding, Report
from attnbench.gate.selftest import Detection
from attnbench.metrics import COUNTED, RACED, TABLE, TIME, Better, Metric, Unit
from attnbench.render import html, markdown
from attnbench.render.grid import Cell, Table, clean, quantity, words
from attnbench.statistics.verdict import Verdict
from attnbench.units import NOTHING, change, count, few, interval, many, percent, seconds

# a case of a mechanism: its name, then sizes, level, mode and so on
LABEL = re.compile(r"(?P<name>.*)/(?P<sizes>B\d+-N\d+-.*)")


def verdict_label(verdict: Verdict, metric: Metric) -> str:
    """The verdict in the words of the metric: bytes are larger, not slower."""
    if metric.unit is Unit.SECONDS or verdict not in (Verdict.SLOWER, Verdict.FASTER):
        return str(verdict)
    grew = (verdict is Verdict.SLOWER) == (metric.better is Better.LOWER)
    return "larger" if grew else "smaller"


def headline(report: Report) -> str:
    """The whole check in one line; a mean over lengths is not counted as a case."""
    against = f"{clean(report.head)} against {clean(report.base)}"
    cases = many(len(report.cases), "case")
    if report.failures:
        return f"FAILED: {_failed(report)} of {cases}; {against}"
    if not report.findings:
        return f"nothing to check: no mechanism loads a changed file; {against}"
    if report.unchecked:
        first, number = sentence(report.unchecked[0]), _number(report.unchecked)
        return f"NOT CHECKED: {number} of {cases}: {first}; {against}"
    if report.contaminated:
        return f"CONTAMINATED: base differs from base, so no time can be trusted; {against}"
    if report.unsure:
        number = _number(finding for finding in report.unsure if finding.cases == 1)
        subject = f"{number} of {cases}" if number else f"a mean over lengths, of {cases}"
        if suspects := _number(finding for finding in report.unsure if finding.suspected):
            subject += f", {suspects} suspected of a change"
        return f"UNSURE: {subject}; {against}"
    if report.traded:
        number = _number(report.traded)
        return f"OK: no regression in {cases}, {number} faster with a larger count; {against}"
    return f"OK: no regression in {cases}; {against}"


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
    """Uncertain findings, then remarks; all cases of one kind share a line."""
    yield from (sentence(finding) for finding in report.unsure if finding.suspected)
    unsure = [finding for finding in report.unsure if not finding.suspected]
    for kind, findings in (("larger, but faster", report.traded), ("unsure", unsure)):
        if findings:
            more = len(findings) - 1
            yield f"{kind}: {sentence(findings[0])}" + (f"; and {more} more" if more else "")
    yield from remarks(report)


def in_common(cases: Iterable[str]) -> frozenset[str]:
    """The parts that the labels of all cases share: sizes, level, mode, type of numbers, device."""
    labels = [label for label in map(LABEL.fullmatch, cases) if label]
    parts = [frozenset(re.split("[-/]", label["sizes"])) for label in labels]
    return frozenset.intersection(*parts) if len(parts) > 1 else frozenset()


def parts_of(text: str, wanted: Callable[[str], bool]) -> str:
    """The wanted parts of the sizes in a label: `D256-H16/attention` of all of them."""
    kept = ("-".join(filter(wanted, part.split("-"))) for part in text.split("/"))
    return "/".join(filter(None, kept))


def tables(report: Report) -> tuple[Table, ...]:
    """Times of every case; counts that changed; cases that did not run on both sides.

    What fails comes first; what all cases have in common stands in the titles.
    """
    common = in_common(report.cases)
    labels = list(filter(None, map(LABEL.fullmatch, report.cases)))
    shared = f"; {parts_of(labels[0]['sizes'], common.__contains__)}" if common else ""

    def row(finding: Finding, second: str) -> tuple[Cell, ...]:
        return (words(short(finding.case)), *_row(finding, second))

    def short(case: str) -> str:
        if not (label := LABEL.fullmatch(case)):
            return case
        kept = parts_of(label["sizes"], lambda part: part not in common)
        return f"{label['name']}/{kept}" if kept else label["name"]

    findings = sorted(report.findings, key=lambda finding: not finding.fails)
    raced = {key: [f for f in findings if f.metric == key] for key in RACED}
    ran = [f for f in findings if f.metric == RUNS]
    counted = [f for f in findings if f.metric in COUNTED]
    changed = [f for f in counted if f.verdict is not Verdict.SAME]
    clock = report.conditions.clock if report.conditions else ""
    texts = {TIME: f"{clock or 'time'} of one iteration"}
    shown = [
        *(
            Table(
                name=f"{TABLE[key].name}s",
                title=f"{TABLE[key].heading}s{shared}",
                columns=("case", "batch timed", "base", "head", "change", "verdict"),
                rows=tuple(row(f, count(f.batch) if f.batch else NOTHING) for f in own),
                note=f"{texts.get(key, TABLE[key].description)}, at a batch size suited to timing;"
                " 99 % confidence intervals over pairs of fresh processes",
            )
            for key, own in raced.items()
        ),
        Table(
            name="counts",
            title=f"Counted{shared}",
            columns=("case", "metric", "base", "head", "change", "verdict"),
            rows=tuple(row(f, TABLE[f.metric].label) for f in changed),
            note=f"{len(counted) - len(changed)} of {len(counted)} counted metrics are the same; "
            + "; ".join(
                f"{metric.label}: {metric.description}"
                for metric in dict.fromkeys(TABLE[f.metric] for f in changed)
            ),
        ),
        Table(
            name="runs",
            title=f"Not on both sides{shared}",
            columns=("case", "reason"),
            rows=tuple((words(short(f.case)), words(f.reason)) for f in ran),
        ),
    ]
    return tuple(table for table in shown if table.rows)


def page(report: Report) -> str:
    """The check in Markdown, for a job summary or a comment."""
    lines = [f"# attnbench check: {markdown.escape(headline(report))}", ""]
    lines += [f"- {markdown.escape(line)}" for line in remarks(report)]
    lines += ["", *(markdown.table(table) for table in tables(report))]
    return "\n".join([*lines, markdown.escape(" ".join(method(report))), ""])


def web_page(report: Report) -> bytes:
    """The check as an HTML page."""
    return html.page(
        "attnbench check",
        tables(report),
        answers=[(headline(report), [*remarks(report)])],
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
            f"A case is timed in {plan.pairs} pairs of fresh processes, and in"
            f" {plan.confirm} more where that leaves doubt, by {how.clock}; each process gives"
            f" at most {2 * plan.rounds} samples of at least {seconds(plan.iteration_s)}."
        )
        yield (
            f"Changes of time below {percent(plan.threshold)} are ignored; noise, measured as base"
            f" against base, was at most {percent(how.worst_floor)}."
        )
    if how.other_machine is not None:
        differences = clean("; ".join(how.other_machine))
        machine = f"another machine ({differences})" if differences else "this machine"
        yield f"The baseline was saved on {machine}."
    if how.elapsed_s is not None:
        yield f"The check took {seconds(how.elapsed_s)}; seed {plan.seed}."
    if how.selftest:
        yield f"Reliability: {clean(how.selftest)}."


def reliability(detection: Detection) -> str:
    """The result of a selftest, as `check` quotes it."""
    wrong = detection.false_alarms
    alarms = f"{many(wrong.slower + wrong.faster, 'false alarm')} in {wrong.checks} checks"
    finds = "detects no slowdown of up to 20 % reliably"
    if detection.smallest is not None:
        finds = f"detects slowdowns of {percent(detection.smallest)} or more"
    return f"on this machine the gate {finds}; {alarms} of {detection.pairs} shared pairs"


def rates(detection: Detection) -> Table:
    """The verdicts of a selftest by the share of extra work."""
    return Table(
        name="selftest",
        title="Verdicts of the gate",
        columns=("extra work", "slower", "faster", "unsure"),
        rows=tuple(
            (
                words(f"+{percent(rate.share)}"),
                *(
                    Cell(percent(number / rate.checks), number / rate.checks)
                    for number in (rate.slower, rate.faster, rate.unsure)
                ),
            )
            for rate in detection.rates
        ),
        note="Shares of checks, each made of consecutive pairs; neighbouring checks share pairs.",
    )


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


def _number(findings: Iterable[Finding]) -> int:
    return len({finding.case for finding in findings})


def _row(finding: Finding, second: str) -> tuple[Cell, ...]:
    return (
        *map(words, (second, *_values(finding))),
        Cell(change_of(finding) or NOTHING, finding.ratio, finding.low, finding.high),
        words(": ".join(filter(None, (label(finding), finding.reason)))),
    )
