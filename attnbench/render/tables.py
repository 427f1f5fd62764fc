"""The tables of a report: mechanisms down, lengths across, each number with its interval.

The columns are all lengths of the sweep; a series that lacks one has no number there.
"""

from collections.abc import Callable, Iterable, Iterator

from attnbench.analysis.crossover import speedups
from attnbench.analysis.ratios import Ratios
from attnbench.analysis.summary import Frame, Row
from attnbench.records import Mode
from attnbench.render import units
from attnbench.render.ends import ended, why
from attnbench.render.grid import Cell, Table, bare, words

OPENING = "Mechanism"
BOUNDS = "± is the larger half-width of the 95 % confidence interval"
WIDE = "a wide interval is written [low, high]."
MARK = f"{units.UNBOUNDED} marks too few samples for an interval."


def latency(summary: Frame, mode: str, tokens: int) -> Table:
    """Milliseconds per batch of `tokens` tokens, with the 95 % interval."""

    def cell(row: Row) -> Cell:
        scale = 1e3 * tokens / row["tokens"]
        return _bounded(*(scale * row[key] for key in ("time_s", "time_lo_s", "time_hi_s")))

    longer = summary["tokens"].max() > tokens
    return Table(
        name=f"latency_{mode}",
        title=f"{mode.capitalize()} time, ms per batch of {units.count(tokens)} tokens",
        columns=_columns(summary),
        keys=("series",),
        across="time_ms",
        rows=_rows(summary, summary, mode, "time_s", cell),
        note=_intervals(summary)
        + _scaled(tokens) * bool(longer)
        + "".join(f" {line}" for line in _forms(summary, mode)),
    )


def memory(summary: Frame, mode: str, metric: str = "allocated_peak_bytes") -> Table:
    """MiB at the peak, as measured with the batch of each length."""

    def cell(row: Row) -> Cell:
        return Cell(units.plain(row[metric] / units.MIB, 4), row[metric] / units.MIB)

    resident = " and optimiser state" if mode == "training" else ""
    return Table(
        name=f"memory_{mode}",
        title=f"Peak allocated memory, {mode}, MiB",
        columns=_columns(summary),
        keys=("series",),
        across="peak_mib",
        rows=_rows(summary, summary, mode, metric, cell),
        note=f"1 MiB = 2^20 bytes; parameters, inputs{', gradients' * bool(resident)}{resident}"
        " are in. Exact, so without an interval.",
    )


def speedup(summary: Frame, mode: str, baseline: str, ratios: Ratios) -> Table:
    """How many times faster than `baseline`, a series, at each length."""
    found = {
        (row["series"], row["seq_len"]): row
        for _, row in speedups(summary, baseline, ratios).query("mode == @mode").iterrows()
    }

    def cell(row: Row) -> Cell:
        pair = found.get((row["series"], row["seq_len"]))
        return Cell(units.NOTHING) if pair is None else _bounded(*pair[["ratio", "low", "high"]])

    return Table(
        name=f"speedup_{mode}",
        title=f"Speed-up over {baseline} in {mode}, ×",
        columns=_columns(summary),
        keys=("series",),
        across="speedup",
        rows=_rows(summary, summary[summary["series"] != baseline], mode, "time_s", cell),
        note=f"Above 1 is faster than {baseline}. {pairing(p['paired'] for p in found.values())}",
    )


def pairing(paired: Iterable[bool]) -> str:
    """How ratios were taken, in a sentence."""
    found = set(paired)
    if not found - {True}:
        return "Paired: the series took turns; 95 % confidence intervals over rounds."
    if not found - {False}:
        return "Not paired: series were timed apart, and a drift of the machine is in the ratios."
    return "Paired where series took turns, else of independent times."


def outcomes(summary: Frame) -> Table:
    """Every case that was not measured in full, with its reason and what was predicted for it."""
    lost = summary[summary["outcome"] != "ok"]
    shared = ", ".join(dict.fromkeys(map(_shared, lost["case"])))
    return Table(
        name="outcomes",
        title="Cases not measured" + (f" ({shared})" if shared else ""),
        columns=(OPENING, "Mode", "N", "Outcome", "Reason", "Predicted time", "Predicted memory"),
        keys=("series", "mode", "seq_len", "outcome", "reason", "predicted_s", "predicted_bytes"),
        rows=tuple(
            (
                words(row["series"]),
                words(row["mode"]),
                Cell(units.length(row["seq_len"]), int(row["seq_len"])),
                words(ended(row["outcome"], row["reason"])),
                words(row["reason"]),
                Cell(units.seconds(row["refined_s"]), bare(row["refined_s"])),
                Cell(units.size(row["refined_bytes"]), bare(row["refined_bytes"])),
            )
            for _, row in lost.iterrows()
        ),
        note=f"{len(summary) - len(lost)} of {len(summary)} cases were measured in full."
        " Predictions are of one iteration.",
    )


def _lengths(summary: Frame) -> list[int]:
    return sorted(set(summary["seq_len"]))


def _shared(case: str) -> str:
    """`D256-H16/model/float32/cpu`: of a case what all of its sweep have in common."""
    parts = case.rpartition("/B")[2].split("/")
    sizes = [size for size in parts[0].split("-") if size[:1] in "DH"]
    return "/".join(["-".join(sizes), *(part for part in parts[1:] if part not in set(Mode))])


def _scaled(tokens: int) -> str:
    limit = units.count(tokens)
    return f" For N > {limit} the batch is one sequence; its time is scaled to {limit} tokens."


def _columns(summary: Frame) -> tuple[str, ...]:
    return (OPENING, *map(units.length, _lengths(summary)))


def _rows(
    summary: Frame, shown: Frame, mode: str, metric: str, cell: Callable[[Row], Cell]
) -> tuple[tuple[Cell, ...], ...]:
    """One row per series of `shown`, under the columns of the whole summary.

    What was not measured says why in words.
    """
    lengths = _lengths(summary)
    rows = []
    for series, cases in shown[shown["mode"] == mode].groupby("series", sort=False):
        found = {row["seq_len"]: row for _, row in cases.iterrows()}
        cells = [_cell(found.get(n), metric, cell) for n in lengths]
        rows.append((words(series), *cells))
    return tuple(rows)


def _cell(row: Row | None, metric: str, cell: Callable[[Row], Cell]) -> Cell:
    if row is None:
        return Cell(units.NOTHING)
    if units.known(row[metric]):
        return cell(row)
    return Cell(why(row["outcome"], row["reason"]) if row["outcome"] != "ok" else units.NOTHING)


def _bounded(point: float, low: float, high: float) -> Cell:
    return Cell(units.estimate(point, low, high), float(point), bare(low), bare(high))


def _forms(summary: Frame, mode: str) -> Iterator[str]:
    """Which form ran from which length, for each curve on which the form changes."""
    cases = summary[summary["mode"] == mode].sort_values("seq_len")
    for series, rows in cases.groupby("series", sort=False):
        starts = rows[rows["form"] != rows["form"].shift()]
        if len(starts) > 1:
            parts = [
                f"{form} from {units.length(length)}"
                for form, length in zip(starts["form"], starts["seq_len"], strict=True)
            ]
            yield f"Forms of {series}: {', '.join(parts)}."


def _intervals(summary: Frame) -> str:
    """What the intervals of a table speak of."""
    kinds = set(summary.loc[summary["time_s"].notna(), "interval_kind"])
    if "rounds" in kinds:
        return f"{BOUNDS} over rounds; {WIDE} {MARK}"
    if "within one process" in kinds:
        return f"{BOUNDS} within one process, without restart variance; {WIDE} {MARK}"
    return MARK
