"""Tables of what cases cost: times, speed-ups, memory, precision, and what was not measured.

Most have mechanisms down and all lengths of the sweep across; a series that lacks a length has no
number there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf, log10
from types import MappingProxyType

from attnbench import units
from attnbench.analysis.estimate import Kind
from attnbench.analysis.summary import Frame, Row
from attnbench.records import Cause, Mode, Outcome
from attnbench.render.grid import Cell, Table, bare, bounded, words

OPENING = "Mechanism"
BOUNDS = "± is the larger half-width of the 95 % confidence interval"
WIDE = "a wide interval is written [low, high]."
WITHIN = "within one process, without the variation between processes"
MARK = f"{units.UNBOUNDED} marks too few samples for an interval."

ENDINGS: Mapping[str, str] = MappingProxyType(
    {
        Outcome.OK: "not measured",  # only its memory was not
        Outcome.OOM: "out of memory",
        Outcome.TIMEOUT: "timed out",
        Outcome.CRASHED: "crashed",
        Outcome.FAILED: "failed",
        Outcome.UNSUPPORTED: "cannot run",
        Outcome.SKIPPED: "skipped",
    }
)
CAUSES: Mapping[str, str] = MappingProxyType(
    {
        Cause.BUDGET: "over budget",
        Cause.CASE_TIMEOUT: "over time limit",
        Cause.MEMORY_LIMIT: "exceeds memory",
        Cause.OOM: "out of memory",
        Cause.TIMEOUT: "timed out",
    }
)


def latency(summary: Frame, mode: str, tokens: int) -> Table:
    """Milliseconds per batch of `tokens` tokens, with the 95 % confidence interval."""

    def cell(row: Row) -> Cell:
        scale = 1e3 * tokens / row["tokens"]
        return bounded(*(scale * row[key] for key in ("time_s", "time_lo_s", "time_hi_s")))

    notes = [_intervals(summary), *_forms(summary, mode)]
    if summary["tokens"].max() > tokens:
        limit = units.count(tokens)
        scaled = f"For N > {limit} the batch is one sequence; the time is scaled to {limit} tokens."
        notes.insert(1, scaled)
    return by_length(
        summary[summary["mode"] == mode],
        "time_s",
        cell,
        lengths=summary["seq_len"],
        name=f"latency_{mode}",
        title=f"{mode.capitalize()} time, ms per batch of {units.count(tokens)} tokens",
        across="time_ms",
        note=" ".join(notes),
    )


def memory(summary: Frame, mode: str) -> Table:
    """MiB at the peak, as measured with the batch of each length."""

    def cell(row: Row) -> Cell:
        peak = row["allocated_peak_bytes"] / units.MIB
        return Cell(units.plain(peak, 4), peak)

    training = mode == Mode.TRAINING
    parts = ", inputs, gradients and optimiser state" if training else " and inputs"
    return by_length(
        summary[summary["mode"] == mode],
        "allocated_peak_bytes",
        cell,
        lengths=summary["seq_len"],
        name=f"memory_{mode}",
        title=f"Peak allocated memory, {mode}, MiB",
        across="peak_mib",
        note=f"1 MiB = 2^20 bytes; includes parameters{parts}. Exact, so without a"
        " confidence interval.",
    )


def speedup(summary: Frame, mode: str, baseline: str, speedups: Frame) -> Table:
    """How many times faster than `baseline`, a series, at each length."""
    cases = summary[(summary["mode"] == mode) & (summary["series"] != baseline)]
    pairs = cases.merge(speedups, on=["series", "mode", "seq_len"], how="left")
    paired = pairing(pairs["paired"].dropna())
    return by_length(
        pairs,
        "ratio",
        lambda row: bounded(row["ratio"], row["low"], row["high"]),
        lengths=summary["seq_len"],
        name=f"speedup_{mode}",
        title=f"Speed-up over {baseline} in {mode}, ×",
        across="speedup",
        note=f"Above 1 is faster than {baseline}. {paired}",
    )


def by_length(
    cases: Frame,
    metric: str,
    cell: Callable[[Row], Cell],
    *,
    lengths: Iterable[int],
    name: str,
    title: str,
    across: str,
    note: str,
) -> Table:
    """Series down and lengths across; where `metric` was not measured, why in words."""
    columns = sorted(set(lengths))
    rows = []
    for series, known in cases.groupby("series", sort=False):
        at = {row["seq_len"]: row for _, row in known.iterrows()}
        cells = (_cell(at[n], metric, cell) if n in at else Cell(units.NOTHING) for n in columns)
        rows.append((words(series), *cells))
    return Table(
        name=name,
        title=title,
        columns=(OPENING, *map(units.length, columns)),
        rows=tuple(rows),
        note=note,
        keys=("series",),
        across=across,
    )


def pairing(paired: Iterable[bool]) -> str:
    """How ratios were taken, in a sentence."""
    found = set(paired)
    if not found - {True}:
        return "Paired: the series took turns; 95 % confidence intervals over rounds."
    if not found - {False}:
        return "Not paired: series were timed apart, so the ratios include a drift of the machine."
    return "Paired where series took turns, elsewhere ratios of independent times."


def precision(errors: Frame, dtype: str) -> Table:
    """The digits that each form keeps, fewest first, so that a fast one shows what it costs."""
    return Table(
        name="digits",
        title=f"Digits that hold in {dtype}",
        columns=("Mechanism", "Form", "Options", "Digits"),
        keys=("mechanism", "form", "options", "relative_error"),
        rows=tuple(
            (
                *(words(row[name]) for name in ("mechanism", "form", "options")),
                Cell(f"{-log10(row['error']) if row['error'] else inf:.1f}", float(row["error"])),
            )
            for _, row in errors.iterrows()
        ),
        note="−log10 of ‖y − y₆₄‖ / ‖y₆₄‖, the output of one short sequence against the equations"
        " as written, in float64 with the same parameters, input and draws. Where rounding changes"
        " a hash or another discrete choice, that is in it. The CSV file has the relative error.",
    )


def outcomes(summary: Frame) -> Table:
    """Every case that was not measured in full, with its reason and what was predicted for it."""
    lost = summary[summary["outcome"] != Outcome.OK]
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
                words(row["outcome"]),
                words(row["reason"]),
                Cell(units.seconds(row["refined_s"]), bare(row["refined_s"])),
                Cell(units.size(row["refined_bytes"]), bare(row["refined_bytes"])),
            )
            for _, row in lost.iterrows()
        ),
        note=f"{len(summary) - len(lost)} of {len(summary)} cases were measured in full."
        " Predictions are of one iteration.",
    )


def why(outcome: str, cause: str) -> str:
    """Why a case has no number, in two or three words; never empty."""
    return CAUSES.get(cause) or ENDINGS.get(outcome, "not run")


def _shared(case: str) -> str:
    """`D256-H16/model/float32/cpu`: of a case what all of its sweep have in common."""
    parts = case.rpartition("/B")[2].split("/")
    sizes = [size for size in parts[0].split("-") if size[:1] in "DH"]
    return "/".join(["-".join(sizes), *(part for part in parts[1:] if part not in set(Mode))])


def _cell(row: Row, metric: str, cell: Callable[[Row], Cell]) -> Cell:
    if units.known(row[metric]):
        return cell(row)
    ended_well = row["outcome"] == Outcome.OK
    return Cell(units.NOTHING if ended_well else why(row["outcome"], row["cause"]))


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
    """Which variation the intervals of a table include."""
    kinds = set(summary.loc[summary["time_s"].notna(), "interval_kind"])
    if Kind.ROUNDS in kinds:
        return f"{BOUNDS} over rounds; {WIDE} {MARK}"
    if Kind.WITHIN in kinds:
        return f"{BOUNDS} {WITHIN}; {WIDE} {MARK}"
    return MARK
