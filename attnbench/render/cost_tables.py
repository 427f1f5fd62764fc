"""Tables of what cases cost: times, speed-ups, memory and precision; and the kernels that ran.

Most have a row for each series and a column for each length of the sweep.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import log10
from types import MappingProxyType
from typing import Any

from attnbench import units
from attnbench.analysis.extrapolation import UNCERTAIN
from attnbench.analysis.summary import Frame, Row
from attnbench.metrics import MEMORY, TABLE, TIME, Metric, Unit
from attnbench.modes import find
from attnbench.records import Cause, Clock, Outcome
from attnbench.render.cases import outcome_phrase
from attnbench.render.grid import (
    EMPTY,
    Cell,
    Column,
    Table,
    bounded,
    none_if_nan,
    number,
    table,
    words,
)
from attnbench.render.names import compared_with
from attnbench.render.styles import labels
from attnbench.statistics.estimate import IntervalKind

BOUNDS = "± is the larger half-width of the 95 % confidence interval"
WIDE = "a wide interval is written [low, high]."
WITHIN = "within one process, without the variation between processes"
MARK = f"{units.UNBOUNDED} marks too few samples for a confidence interval."
SCALES = MappingProxyType({Unit.SECONDS: ("ms", 1e3), Unit.BYTES: ("MiB", 1 / units.MIB)})
LAUNCHES = " l"  # marks a launch-bound case
FILLED = " f"  # marks a step from a filled state
SDPA = "scaled_dot_product_"  # prefix of torch's attention operators


def batch(summary: Frame, tokens: int | None) -> str:
    """The batch that times refer to: its tokens, or the sequences of a fixed batch.

    Several fixed batches are part of the names of series.
    """
    if tokens is not None:
        return units.many(tokens, "token")
    batches = {*summary["batch"]}
    return units.many(int(batches.pop()), "sequence") if len(batches) == 1 else "B sequences"


def per_layer(summary: Frame) -> str:
    """` per layer`, where the costs of a stack are those of one of its layers."""
    return " per layer" if (summary["depth"] > 1).any() else ""


def timed_by(summary: Frame) -> str:
    """What times are: `CPU time on one core`; just `time` on a device or for several sweeps."""
    clocks = {*zip(summary["clock"], summary["threads"], strict=True)}
    clock, threads = clocks.pop() if len(clocks) == 1 else ("", 0)
    match clock:
        case Clock.CPU:
            return f"{clock} on one core"
        case Clock.WALL:
            return f"{clock} on {units.many(int(threads), 'thread')}"
    return "time"


def latency(summary: Frame, mode: str, tokens: int | None) -> Table:
    """Milliseconds per batch of `tokens` tokens, or of the sweep's, with the 95 % interval.

    In decode, milliseconds of a step of the batch: the time per output token.
    """
    facts, clock = find(mode), timed_by(summary)
    by = f" ({clock})" * (clock != "time")

    def cell(row: Row) -> Cell:
        mark = LAUNCHES * bool(row["launch_bound"]) + FILLED * bool(row["filled"])
        return milliseconds(row, scale=row["batch_scale"], mark=mark)

    cases = summary[summary["mode"] == mode]
    notes = [intervals(summary, mode)]
    if tokens and not facts.steps and cases.loc[cases[TIME].notna(), "tokens"].max() > tokens:
        limit = units.count(tokens)
        scaled = f"For N > {limit} the batch is one sequence; the time is scaled to {limit} tokens."
        notes.append(scaled)
    if cases["launch_bound"].any():
        notes.append(
            f"“{LAUNCHES.strip()}” marks launch-bound cases: the host enqueues an iteration more"
            " slowly than the GPU runs it."
        )
    notes += [*_forms(cases), *_filled(cases)]
    return by_length(
        summary,
        mode,
        TIME,
        cell,
        name=f"latency_{mode}",
        title=facts.time.format(title=facts.title, batch=batch(summary, tokens))
        + by
        + per_layer(summary),
        across="time_ms",
        note=" ".join(notes),
    )


def measured(summary: Frame, mode: str, metric: Metric) -> Table:
    """The values of a metric by length, with the 95 % interval if it has one."""
    unit, scale = SCALES.get(metric.unit, (str(metric.unit), 1.0))
    what = metric.description

    def cell(row: Row) -> Cell:
        mark = FILLED * bool(row["filled"])
        if not metric.interval:
            return counted(row[metric.key] * scale, mark)
        point, low, high = (row[column] * scale for column in metric.estimate[:3])
        return bounded(point, low, high, mark)

    return by_length(
        summary,
        mode,
        metric.key,
        cell,
        name=f"{metric.name}_{mode}",
        title=f"{metric.heading}, {mode}, {unit}{per_layer(summary)}",
        across=f"{metric.name}_{unit.lower()}",
        note=f"{units.capitalised(what)}." + f" {intervals(summary, mode)}" * metric.interval,
    )


def memory(summary: Frame, mode: str) -> Table:
    """Peak allocated memory in MiB, with the batch of each length."""
    cases = summary[summary["mode"] == mode]
    notes = [
        f"1 MiB = 2^20 bytes; includes parameters{find(mode).peak}. Exact, so without a confidence"
        " interval."
    ]
    if cases.loc[cases[MEMORY].isna(), "cause"].eq(Cause.BUDGET).any():
        notes.append("“Over budget” is the time budget of the sweep.")
    found = measured(summary, mode, TABLE[MEMORY])
    return replace(found, across="peak_mib", note=" ".join([*notes, *_filled(cases)]))


def speedup(summary: Frame, mode: str, baselines: Sequence[str], speedups: Frame) -> Table:
    """How many times faster than the baseline of its sizes each other series is, by length."""
    others = summary[~summary["series"].isin(baselines)]
    base = compared_with(summary["series"], baselines)
    alike = " of the same sizes" * (len(baselines) > 1)
    pairs = others.merge(speedups, on=["series", "mode", "seq_len"], how="left")
    paired = pairing(pairs.loc[pairs["mode"] == mode, "paired"].dropna())
    return by_length(
        pairs,
        mode,
        "ratio",
        lambda row: speedup_cell(row["ratio"], row["low"], row["high"], units.estimate),
        name=f"speedup_{mode}",
        title=f"Speed-up over {base} in {mode}, ×{per_layer(summary)}",
        across="speedup",
        note=f"Times as fast as {base}{alike}, or as slow. {paired}",
    )


def by_length(
    frame: Frame,
    mode: str,
    metric: str,
    cell: Callable[[Row], Cell],
    *,
    name: str,
    title: str,
    across: str,
    note: str,
) -> Table:
    """A row per series and a column per length of the frame, of whatever mode.

    Where `metric` was not measured, the cell says why.
    """
    lengths = sorted(set(frame["seq_len"]))
    rows: dict[str, dict[int, Any]] = {}
    for case in frame[frame["mode"] == mode].to_dict("records"):
        rows.setdefault(case["series"], {})[case["seq_len"]] = case
    return Table(
        name=name,
        title=title,
        columns=("Mechanism", *map(units.count, lengths)),
        rows=tuple(
            (words(series), *(measured_or_why(cases.get(n), metric, cell) for n in lengths))
            for series, cases in rows.items()
        ),
        note=note,
        keys=("series",),
        across=across,
    )


def milliseconds(row: Row, key: str = TIME, scale: float = 1.0, mark: str = "") -> Cell:
    """A time of a case with its 95 % confidence interval."""
    point, low, high = (1e3 * scale * row[column] for column in TABLE[key].estimate[:3])
    return bounded(point, low, high, mark)


def speedup_cell(
    point: float, low: float, high: float, text: Callable[[float, float, float], str]
) -> Cell:
    """A speed-up; one below 1 is written as how many times slower: `2.80× slower [2.30, 3.30]`."""
    shown = factor(1 / point, 1 / high, 1 / low).replace("×", "× slower")
    if point >= 1:
        shown = text(point, low, high)
    return Cell(shown, point, none_if_nan(low), none_if_nan(high))


def factor(point: float, low: float, high: float) -> str:
    """`1.18× [1.02, 1.36]`; without the interval where it is unknown or says nothing."""
    if not (units.has_value(low) and units.has_value(high)) or high > UNCERTAIN * low:
        return units.ratio(point)
    return units.interval(units.ratio(point), units.plain(low), units.plain(high))


def counted(value: float, mark: str = "") -> Cell:
    """A number without an error."""
    return number(value, lambda value: units.plain(value, 4) + mark)


def pairing(paired: Iterable[bool]) -> str:
    """How ratios were taken, in a sentence."""
    kinds = set(paired)
    if not kinds - {True}:
        return "Paired: the series took turns; 95 % confidence intervals over rounds."
    if not kinds - {False}:
        return "Not paired: series were not timed in turns, so drift of the machine is included."
    return "Paired where the series took turns; elsewhere ratios of independent times."


def precision(errors: Frame, dtype: str) -> Table:
    """The correct digits of each form, fewest first: what a fast form costs in accuracy."""
    return table(
        errors.to_dict("records"),
        [
            Column.words("Mechanism", "mechanism"),
            Column.words("Form", "form"),
            Column.words("Options", "options"),
            *([Column.words("Sizes", "sizes")] if errors["sizes"].any() else []),
            Column("Digits", _digits, "relative_error"),
        ],
        name="digits",
        title=f"Numerical accuracy, correct digits in {dtype}",
        note="−log10 of ‖y − y₆₄‖ / ‖y₆₄‖: the output for one short sequence compared with the"
        " equations as written, in float64 with the same parameters, input and random draws. It"
        " includes changes of a hash or another discrete choice by rounding. The CSV file has the"
        " relative error.",
    )


def _digits(row: Row) -> Cell:
    return Cell(f"{-log10(row['error']):.1f}" if row["error"] else "exact", float(row["error"]))


def kernels(used: Frame) -> Table:
    """The kernels of fused attention that ran, a row for each that a series used in a mode."""

    def operator(row: Row) -> Cell:
        return words(row["attention_kernel"].replace(SDPA, ""))

    return table(
        used.to_dict("records"),
        [
            Column.words("Mechanism", "series"),
            Column.words("Form", "form"),
            Column.words("Mode", "mode"),
            Column("N", _span, "lengths"),
            Column("Operator", operator),
        ],
        name="kernels",
        title="Kernels of fused attention",
        note="As torch's profiler recorded them: flash, efficient and cudnn never store the"
        " weights, math does. Forms that are not listed call no fused attention, or run it in"
        " code that torch compiled.",
    )


def _span(row: Row) -> Cell:
    """`128`, or `128 to 8,192 (7 lengths)`."""
    ends = units.between(row["shortest"], row["longest"])
    several = f" ({units.many(row['lengths'], 'length')})" * (row["lengths"] > 1)
    return words(ends + several)


def measured_or_why(row: Row | None, metric: str, cell: Callable[[Row], Cell]) -> Cell:
    """The cell of a case in which the metric was measured, else why it was not."""
    if row is not None and units.has_value(row[metric]):
        return cell(row)
    if row is None or row["outcome"] == Outcome.OK:
        return EMPTY
    return Cell(outcome_phrase(row["outcome"], row["cause"]))


def _forms(cases: Frame) -> Iterator[str]:
    """The form that ran from each length on, for the curves along which the form changes."""
    names, parts = labels(cases["series"]), []
    for series, rows in cases.sort_values("seq_len").groupby("series", sort=False):
        starts = rows[rows["form"] != rows["form"].shift()]
        if len(starts) > 1:
            pairs = zip(starts["form"], starts["seq_len"], strict=True)
            first, *later = (f"{form} from {units.count(length)}" for form, length in pairs)
            parts.append(f"{names[str(series)]} {', '.join([first.partition(' ')[0], *later])}")
    if parts:
        yield f"Forms: {'; '.join(parts)}."


def _filled(cases: Frame) -> Iterator[str]:
    """What the mark of filled states means, where there are any."""
    if cases["filled"].any():
        yield (
            f"“{FILLED.strip()}” marks steps from states filled with random numbers, without a"
            " prompt."
        )


def intervals(summary: Frame, mode: str) -> str:
    """The variation that the confidence intervals of a table include."""
    timed = summary[summary[TIME].notna()]
    kinds, own = set(timed["interval_kind"]), timed[timed["mode"] == mode]
    point, low, high = (own[column] for column in TABLE[TIME].estimate[:3])
    wide = bool((high - point > units.NARROW * point).any())
    ends = (f"; {WIDE}" if wide else ".") + f" {MARK}" * bool(low.isna().any())
    if IntervalKind.ROUNDS in kinds:
        return f"{BOUNDS} over rounds{ends}"
    return f"{BOUNDS} {WITHIN}{ends}" if IntervalKind.WITHIN in kinds else MARK
