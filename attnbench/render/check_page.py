"""A check in words and tables: what fails first, then what is not certain, then the rest."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from attnbench.analysis.verdict import Verdict
from attnbench.gate.detection import Detection
from attnbench.gate.finding import RUNS, TIME, Finding, Report
from attnbench.metrics import TABLE, Better, Metric, Unit
from attnbench.render import markdown
from attnbench.render.grid import Cell, Table, clean, quantity, words
from attnbench.units import NOTHING, count, many, percent, seconds


def in_words(verdict: Verdict, metric: Metric) -> str:
    """The verdict as it reads of a metric: bytes become larger, not slower."""
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
        return f"nothing to check: {against}"
    if report.contaminated:
        return f"CONTAMINATED: base differs from base, times say nothing; {against}"
    if report.unsure:
        number = _number(found for found in report.unsure if found.cases == 1)
        said = f"{number} of {cases}" if number else f"a mean over lengths, of {cases}"
        return f"UNSURE: {said}; {against}"
    if report.traded:
        number = _number(report.traded)
        return f"OK: no regression in {cases}, {number} faster with a larger count; {against}"
    return f"OK: no regression in {cases}; {against}"


def sentence(found: Finding) -> str:
    """One finding in one line."""
    if found.metric == RUNS:
        return f"{clean(found.case)}: {clean(found.reason)}"
    values = f"{value(found, found.base)} to {value(found, found.head)}"
    parts = [f"{clean(found.case)}: {of(found).label} {in_words(found.verdict, of(found))}"]
    if ratio := change(found):
        parts.append(f"{ratio}, {values}" if found.base is not None else ratio)
    elif found.base is not None and found.head is not None:
        parts.append(values)
    if found.reason:
        parts.append(clean(found.reason))
    return "; ".join(parts)


def news(report: Report) -> Iterator[str]:
    """What fails, then what is not certain, one line each."""
    yield from map(sentence, report.failures)
    yield from doubts(report)


def doubts(report: Report) -> Iterator[str]:
    """What is not certain, one line each; all cases of one kind in one."""
    if report.contaminated:
        yield (
            "contaminated: base differs from itself here, so no time is called:"
            f" {clean('; '.join(report.contaminated))}; run it again on a quieter machine"
        )
    for word, found in (("larger, but faster", report.traded), ("unsure", report.unsure)):
        if found:
            more = len(found) - 1
            yield f"{word}: {sentence(found[0])}" + (f"; and {more} more" if more else "")
    yield from (clean(note) for note in report.notes)


def tables(report: Report) -> tuple[Table, ...]:
    """Times of every case; counted metrics that changed; what did not run on both sides."""
    times = [f for f in report.findings if f.metric == TIME]
    ran = [f for f in report.findings if f.metric == RUNS]
    counted = [f for f in report.findings if f.metric not in (TIME, RUNS)]
    changed = [f for f in counted if f.verdict is not Verdict.SAME]
    clock = report.conditions.clock if report.conditions else "time"
    found = [
        Table(
            name="times",
            title="Times",
            columns=("case", "batch timed", "base", "head", "change", "verdict"),
            rows=tuple(_row(f, count(f.batch) if f.batch else NOTHING) for f in times),
            note=f"{clock or 'time'} of one iteration, at a batch sized to be timed well;"
            " 99 % confidence intervals over pairs of fresh processes",
        ),
        Table(
            name="counts",
            title="Counted",
            columns=("case", "metric", "base", "head", "change", "verdict"),
            rows=tuple(_row(f, of(f).label) for f in changed),
            note=f"{len(counted) - len(changed)} of {len(counted)} counted metrics are the same; "
            + "; ".join(f"{m.label}: {m.description}" for m in dict.fromkeys(map(of, changed))),
        ),
        Table(
            name="runs",
            title="Not on both sides",
            columns=("case", "what"),
            rows=tuple((words(f.case), words(f.reason)) for f in ran),
        ),
    ]
    return tuple(table for table in found if table.rows)


def page(report: Report) -> str:
    """The check in Markdown, for a job's summary or a comment."""
    lines = [f"# attnbench check: {markdown.escape(headline(report))}", ""]
    lines += [f"- {markdown.escape(line)}" for line in news(report)]
    lines += ["", *(markdown.table(table, depth=2) for table in tables(report))]
    return "\n".join([*lines, markdown.escape(" ".join(method(report))), ""])


def method(report: Report) -> Iterator[str]:
    """How it was measured, in sentences; only what the conditions know."""
    if (how := report.conditions) is None:
        return
    plan = how.plan
    yield (
        f"Counted at c = {count(plan.tokens)} tokens, D = {plan.width}, H = {plan.heads},"
        f" {plan.dtype}."
    )
    if how.worst_floor is not None:
        yield (
            f"A case is timed in {plan.pairs} pairs of fresh processes, and in"
            f" {plan.confirm} more where that leaves a doubt, by {how.clock}; each process gives"
            f" at most {2 * plan.rounds} samples of at least {seconds(plan.iteration_s)}."
        )
        yield (
            f"Changes of time below {percent(plan.threshold)} are ignored; base against"
            f" base showed a noise of at most {percent(how.worst_floor)}."
        )
    if how.other_machine is not None:
        differs = clean("; ".join(how.other_machine))
        machine = f"another machine ({differs})" if differs else "this machine"
        yield f"The baseline was saved on {machine}."
    if how.elapsed_s is not None:
        yield f"The check took {seconds(how.elapsed_s)}; seed {plan.seed}."
    if how.selftest:
        yield f"Reliability: {clean(how.selftest)}."


def reliability(found: Detection) -> str:
    """What a selftest found, as `check` quotes it."""
    wrong = found.false_alarms
    alarms = f"{wrong.slower + wrong.faster} false alarms in {wrong.checks} checks"
    finds = "finds no slowdown of up to 20 % reliably"
    if found.smallest is not None:
        finds = f"finds a slowdown from {percent(found.smallest)}"
    return f"this machine {finds}; {alarms} ({found.pairs} pairs)"


def rates(found: Detection) -> Table:
    """The verdicts of a selftest by the share of extra work."""
    return Table(
        name="selftest",
        title="What the gate said",
        columns=("extra work", "slower", "faster", "unsure"),
        rows=tuple(
            (
                words(f"+{percent(rate.share)}"),
                *(
                    Cell(percent(number / rate.checks), number / rate.checks)
                    for number in (rate.slower, rate.faster, rate.unsure)
                ),
            )
            for rate in found.rates
        ),
        note="Shares of checks made of consecutive pairs; neighbouring checks share pairs.",
    )


def data(report: Report, strict: bool) -> dict[str, Any]:
    """The whole check as plain data."""
    return {"exit_code": report.exit_code(strict), "headline": headline(report), **asdict(report)}


def of(found: Finding) -> Metric:
    """The metric of a finding."""
    return TABLE["time_s" if found.metric == TIME else found.metric]


def value(found: Finding, number: float | None) -> str:
    """A number of a finding with its unit."""
    return NOTHING if number is None else quantity(number, of(found).unit)


def change(found: Finding) -> str:
    """`+8.3 % [6.1 %, 11 %]`, or nothing."""
    if found.ratio is None:
        return ""
    point = _signed(found.ratio)
    if found.low is None or found.high is None:
        return point
    return f"{point} [{_signed(found.low)}, {_signed(found.high)}]"


def _signed(ratio: float) -> str:
    return ("+" if ratio >= 1 else "") + percent(ratio - 1)


def _failed(report: Report) -> str:
    """`2 slower, 1 larger`: cases of each kind; a mean counts only where no case of it does."""
    times = [f for f in report.failures if f.metric == TIME]
    means = {f.case for f in times if f.cases > 1}
    single = [f for f in times if f.cases == 1]
    kinds = (
        ("slower", _number(single)),
        ("slower only as a mean of its lengths", 0 if single else len(means)),
        ("larger", _number(f for f in report.failures if f.metric not in (TIME, RUNS))),
        ("failing", _number(f for f in report.failures if f.metric == RUNS)),
    )
    return ", ".join(f"{number} {kind}" for kind, number in kinds if number)


def _number(findings: Iterable[Finding]) -> int:
    return len({found.case for found in findings})


def _row(found: Finding, second: str) -> tuple[Cell, ...]:
    return (
        words(found.case),
        words(second),
        words(value(found, found.base)),
        words(value(found, found.head)),
        Cell(change(found) or NOTHING, found.ratio, found.low, found.high),
        words(": ".join(filter(None, (in_words(found.verdict, of(found)), found.reason)))),
    )
