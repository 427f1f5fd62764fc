"""Tables of what cases cost, with a row for each series and a column for each length.

Also the accuracy of each form.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from math import log10
from types import MappingProxyType
from typing import Any

from attnbench.analysis import Conclusion, Frame, Row
from attnbench.errors import clean
from attnbench.records import Clock, Outcome, metrics, modes, units
from attnbench.report.cases import outcome_phrase
from attnbench.report.grid import EMPTY, Cell, Column, Table, bounded, number, table, words
from attnbench.report.machine import clock_text
from attnbench.report.names import MARK, baseline_label
from attnbench.report.styles import labels

INTERVALS = (
    "± is the larger half of the 95 % confidence interval: over rounds, where a case of one round"
    " is taken to vary as the others do, or within its process where no case was repeated. A wide"
    f" interval is written [low, high]; {units.UNBOUNDED} marks too few samples for one."
)
ALLOCATED = frozenset({metrics.MEMORY, "allocated_delta_bytes", "saved_bytes", "kept_bytes"})
UNCERTAIN = 1000  # an interval whose ends differ by a larger factor says nothing
SCALES = MappingProxyType(
    {metrics.Unit.SECONDS: ("ms", 1e3), metrics.Unit.BYTES: ("MiB", 1 / units.MIB)}
)
# what is marked, by the column that says so
MARKS = MappingProxyType({
    "launch_bound": (" l", "“l” marks cases whose launches take longer than the GPU's work."),
    "shows_launches": ("L", "“lL” marks those whose times include launches: they are not ranked."),
    "filled": (" f", "“f” marks steps from states filled with random numbers, without a prompt."),
})  # fmt: skip
# the same in tables of memory
MISSED = MappingProxyType({
    "uncounted": (" m", "“m” marks peaks that miss memory outside of torch, as the warnings say."),
})  # fmt: skip
# the same in tables of speed-ups
APART = MappingProxyType({
    "apart": (" i", "“i” marks ratios of times that were not taken in turns."),
})  # fmt: skip


def batch(cases: Frame, tokens: int | None) -> str:
    """The batch that times refer to: its tokens, or the sequences of a fixed batch.

    Several fixed batches are part of the names of series.
    """
    if tokens is not None:
        return units.many(tokens, "token")
    batches = {*cases["batch"]}
    return units.many(int(batches.pop()), "sequence") if len(batches) == 1 else "B sequences"


def batch_at(cases: Frame, tokens: int | None, seq_len: int) -> str:
    """The batch of one length, to which its peaks refer: `64 sequences of 128 tokens`.

    Where it has not all tokens of a batch, times are scaled to those, which is added.
    """
    if tokens is None:
        return f"{batch(cases, tokens)} of {units.many(seq_len, 'token')}"
    sequences = max(1, tokens // seq_len)
    ran = f"{units.many(sequences, 'sequence')} of {units.many(seq_len, 'token')}"
    if sequences * seq_len == tokens:
        return ran
    return f"{ran}, times scaled to {units.many(tokens, 'token')}"


def per_step(cases: Frame, token: str = "output token") -> str:
    """What a time in decode is per: a `token`, or a step of several."""
    counts = {*map(int, cases["step"])}
    tokens = f"{counts.pop()}" if len(counts) == 1 else "S"
    return token if tokens == "1" else f"step of {tokens} tokens"


def per_layer(cases: Frame) -> str:
    """` per layer`, where the costs of a stack are those of one of its layers."""
    return " per layer" if (cases["depth"] > 1).any() else ""


def timed_by(cases: Frame) -> str:
    """What times are: `CPU time on one core`; just `time` on a device or for several sweeps."""
    clocks = {*zip(cases["clock"], cases["threads"], strict=True)}
    clock, threads = clocks.pop() if len(clocks) == 1 else ("", 0)
    if clock in (Clock.CPU, Clock.WALL):
        return clock_text(Clock(clock), int(threads))
    return "time"


def latency(
    cases: Frame, mode: str, tokens: int | None, leaders: Sequence[Conclusion] = ()
) -> Table:
    """Milliseconds per batch; in decode, of one step.

    cases: `summary`.
    mode: of the table.
    tokens: of a batch; None: those of the sweep.
    leaders: the conclusions on the fastest at each length, whose cells are bold.
    """
    facts = modes.find(mode)
    clock = timed_by(cases)
    of_mode = cases[cases["mode"] == mode]
    step = per_step(of_mode, "output token (TPOT)")
    title = facts.time.format(title=facts.title, batch=batch(cases, tokens), step=step)
    notes = [INTERVALS, *_forms(of_mode)]
    scaled = of_mode[of_mode[metrics.TIME].notna() & (of_mode["batch_scale"] != 1)]
    if tokens and not facts.steps and len(scaled):
        most = units.count(tokens)
        where = f"N > {most}" if scaled["seq_len"].min() > tokens else f"N does not divide {most}"
        notes.append(f"Where {where}, times are scaled to {most} tokens.")
    return by_length(
        cases,
        mode,
        metrics.TIME,
        lambda row: milliseconds(row, row["batch_scale"]),
        name=f"latency_{mode}",
        title=f"{title}{f' ({clock})' if clock != 'time' else ''}{per_layer(cases)}",
        across="time_ms",
        note=" ".join(notes),
        leaders=leaders,
    )


def per_token(cases: Frame, mode: str) -> Table:
    """Milliseconds per token of each sequence, in steps of several."""
    return by_length(
        cases,
        mode,
        metrics.TIME,
        of_token,
        name=f"latency_{mode}_token",
        title=f"Time per output token (TPOT) in steps of S tokens, ms{per_layer(cases)}",
        across="time_ms",
        note=INTERVALS,
    )


def measured(
    cases: Frame, mode: str, metric: metrics.Metric, leaders: Sequence[Conclusion] = ()
) -> Table:
    """The values of a metric, with the 95 % interval if it has one.

    cases: `summary`.
    mode: of the table.
    metric: a row of the table of metrics.
    leaders: the conclusions on the cheapest at each length, whose cells are bold.
    """
    unit, scale = SCALES.get(metric.unit, (str(metric.unit), 1.0))
    more = f", with parameters{modes.find(mode).peak}" if metric.key == metrics.MEMORY else ""
    return by_length(
        cases,
        mode,
        metric.key,
        lambda row: _value(row, metric, scale),
        name=f"{metric.name}_{mode}",
        title=f"{metric.heading}, {mode}, {unit}{per_layer(cases)}",
        across=f"{metric.name}_{unit.lower()}",
        note=f"{units.capitalised(metric.description)}{more}."
        + (f" {INTERVALS}" if metric.interval else "")
        + (" 1 MiB = 2^20 bytes." if metric.unit is metrics.Unit.BYTES else ""),
        leaders=leaders,
    )


def speedup(
    cases: Frame,
    mode: str,
    baselines: Sequence[str],
    speedups: Frame,
    suspects: Collection[str] = (),
) -> Table:
    """How many times faster than the baseline of its sizes each other series is.

    cases: `summary`.
    mode: of the table.
    baselines: the series to compare with.
    speedups: of `scaling.speedups`.
    suspects: series that are not ranked; one may be compared with.
    """
    base = baseline_label(cases["series"], baselines, suspects)
    suspect = f" {MARK}" if {*baselines} & {*suspects} else ""
    alike = " of the same sizes" if len(baselines) > 1 else ""
    others = cases[~cases["series"].isin(baselines)]
    frame = others.merge(speedups, on=["series", "mode", "seq_len"], how="left")
    return by_length(
        frame.assign(apart=frame["paired"].eq(False)),
        mode,
        "ratio",
        lambda row: speedup_cell(row["ratio"], row["low"], row["high"]),
        name=f"speedup_{mode}",
        title=f"Speed-up over {base} in {mode}{per_layer(cases)}",
        across="speedup",
        note=f"How many times as fast as {base}{alike}, or as slow, with 95 % confidence intervals,"
        f" paired where the two took turns.{suspect}",
    )


def by_length(
    frame: Frame,
    mode: str,
    metric: str,
    cell: Callable[[Row], Cell],
    leaders: Sequence[Conclusion] = (),
    *,
    note: str,
    **further: Any,
) -> Table:
    """A row per series and a column per length of the frame, of whatever mode.

    frame: cases with a column of the metric.
    mode: of the rows.
    metric: where it was not measured, the cell says why.
    cell: of a row.
    leaders: the conclusions on the cheapest at each length; what they call the best is bold.
    note: below the table.
    further: fields of the table: its name, title and `across`.
    """
    of_table = {**MARKS, **(MISSED if metric in ALLOCATED else APART)}
    best = {(series, n) for one in leaders for series in one.best for n in one.scope.lengths}

    def marked(row: Row) -> Cell:
        plain = cell(row)
        of = (row["series"], row["seq_len"])
        marks = "".join(of_table[key][0] for key in of_table if row.get(key))
        return plain._replace(text=plain.text + marks, best=of in best)

    lengths = sorted(set(frame["seq_len"]))
    of_mode = frame[frame["mode"] == mode]
    rows: dict[str, dict[int, Any]] = {}
    for case in of_mode.to_dict("records"):
        rows.setdefault(case["series"], {})[case["seq_len"]] = case
    return Table(
        columns=("Mechanism", *map(units.count, lengths)),
        rows=tuple(
            (words(series), *(measured_or_why(cases.get(n), metric, marked) for n in lengths))
            for series, cases in rows.items()
        ),
        keys=("series",),
        note=" ".join(
            [note, *(text for key, (_, text) in of_table.items() if any(of_mode.get(key, ())))]
        ),
        **further,
    )


def measured_or_why(row: Row | None, metric: str, cell: Callable[[Row], Cell]) -> Cell:
    """The cell of a case in which the metric was measured, else why it was not."""
    if row is not None and units.has_value(row[metric]):
        return cell(row)
    if row is None or row["outcome"] == Outcome.OK:
        return EMPTY
    return Cell(outcome_phrase(row["outcome"], row["cause"]), reason=clean(str(row["reason"])))


def milliseconds(row: Row, scale: float = 1.0) -> Cell:
    """The time of a case with its 95 % confidence interval."""
    return _value(row, metrics.TABLE[metrics.TIME], 1e3 * scale)


def of_token(row: Row) -> Cell:
    """The time of a step per token of a sequence."""
    return milliseconds(row, 1 / row["step"])


def counted(value: float) -> Cell:
    """A number without an error."""
    return number(value, lambda value: units.plain(value, 4))


def _value(row: Row, metric: metrics.Metric, scale: float) -> Cell:
    if not metric.interval:
        return counted(row[metric.key] * scale)
    return bounded(*(row[column] * scale for column in metric.estimate[:3]))


def speedup_cell(point: float, low: float, high: float) -> Cell:
    """A speed-up; one below 1 is written as how many times slower: `2.80× slower [2.30, 3.30]`."""
    slower = factor(1 / point, 1 / high, 1 / low).replace("×", "× slower")
    shown = factor(point, low, high) if point >= 1 else slower
    return bounded(point, low, high)._replace(text=shown)


def factor(point: float, low: float, high: float) -> str:
    """`1.18× [1.02, 1.36]`; without the interval where it is unknown, exact or says nothing."""
    if not (units.has_value(low) and units.has_value(high)) or high > UNCERTAIN * low:
        return units.ratio(point)
    if low == high:
        return units.ratio(point)
    return units.interval(units.ratio(point), units.plain(low), units.plain(high))


def _forms(cases: Frame) -> Iterator[str]:
    """The form that ran from each length on, for the curves along which the form changes."""
    names = labels(cases["series"])
    parts = []
    for series, rows in cases.sort_values("seq_len").groupby("series", sort=False):
        starts = rows[rows["form"] != rows["form"].shift()]
        if len(starts) > 1:
            pairs = zip(starts["form"], starts["seq_len"], strict=True)
            forms = (f"{form} from {units.count(length)}" for form, length in pairs)
            parts.append(f"{names[str(series)]} {', '.join(forms)}")
    if parts:
        yield f"Forms: {'; '.join(parts)}."


def precision(errors: Frame, dtype: str) -> Table:
    """The correct digits of each form, fewest first: what a fast form costs in accuracy."""

    def digits(row: Row) -> Cell:
        return number(row["error"], lambda error: f"{-log10(error):.1f}" if error else "exact")

    return table(
        errors.to_dict("records"),
        [
            Column.words("Mechanism", "mechanism"),
            *(
                Column.words(name.capitalize(), name)
                for name in ("form", "options", "sizes")
                if errors[name].any()
            ),
            Column("Digits", digits, "relative_error"),
        ],
        name="digits",
        title=f"Numerical accuracy, correct digits in {dtype}",
        note="−log10 of ‖y − y₆₄‖ / ‖y₆₄‖: the output for one short sequence compared with the"
        " equations as written, in float64 with the same parameters, input and random draws. It"
        " includes changes of a hash or another discrete choice by rounding. The CSV file has the"
        " relative error.",
    )
