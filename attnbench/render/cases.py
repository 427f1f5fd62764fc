"""The cases of a plan, in words and tables: what they need, and why some were not measured."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from attnbench import units
from attnbench.analysis.summary import MISSING, Frame
from attnbench.records import Cause, Outcome, Planned, Request, Run
from attnbench.render.grid import EMPTY, Cell, Column, Table, number, table, words

if TYPE_CHECKING:
    from attnbench.run.order import Foreseen

# the columns of what was not measured
OUTCOMES = (
    *("series", "mode", "seq_len", "outcome", "reason"),
    *("predicted_s", "predicted_lo_s", "predicted_hi_s", "predicted_bytes"),
)
FACTOR = 3  # by which first predictions are often too high or too low

# why a case was not measured, in the cell of a table
ENDINGS: Mapping[str, str] = MappingProxyType({
    Outcome.OK: "not measured",  # only the memory is missing
    Outcome.OOM: "out of memory",
    Outcome.TIMEOUT: "timed out",
    Outcome.CRASHED: "crashed",
    Outcome.FAILED: "failed",
    Outcome.UNSUPPORTED: "cannot run",
    Outcome.SKIPPED: "skipped",
    MISSING: "not run",
})  # fmt: skip
CAUSES: Mapping[str, str] = MappingProxyType({
    Cause.BUDGET: "over budget",
    Cause.CASE_TIMEOUT: "over time limit",
    Cause.MEMORY_LIMIT: "over memory",
    Cause.OOM: "out of memory",
    Cause.TIMEOUT: "timed out",
    Cause.KILLED: "killed",
})  # fmt: skip


def outcome_phrase(outcome: str, cause: str) -> str:
    """Why a case was not measured, in two or three words; never empty."""
    return CAUSES.get(cause) or ENDINGS.get(outcome) or ENDINGS[MISSING]


def plan_tables(
    plan: Sequence[Planned],
    request: Request,
    foreseen: "Foreseen",
    memory_bytes: int | None,
    sizes: Mapping[str, str],
) -> list[Table]:
    """What a dry run shows: the cases, those left out if any, and the total.

    `memory_bytes` are available; `sizes` are those that differ, by the key of each case.
    """
    w = plan[0].case.workload
    named = [(f"{p.case.series} {sizes[p.case.key]}".strip(), p) for p in plan]
    common = "" if request.variants else f" (D{w.width}-H{w.heads}/{w.level}/{w.dtype}/{w.device})"
    cases = table(
        named,
        [
            Column("Mechanism", lambda row: words(row[0])),
            Column("Mode", lambda row: words(row[1].case.workload.mode)),
            Column("N", lambda row: number(row[1].case.workload.seq_len, units.count)),
            Column(
                "Time per iteration",
                lambda row: _cost(row[1], foreseen.seconds.get(row[1].case.key), units.seconds),
            ),
            Column("Peak memory", lambda row: _cost(row[1], row[1].predicted_bytes, units.size)),
            Column("Measured", lambda row: words(_measured(row[1], foreseen))),
        ],
        name="plan",
        title=f"Plan{common}",
        leading=3,
    )
    missing = Table(
        name="left_out",
        title="Left out",
        columns=("Reason", "Mechanism", "Mode", "N"),
        rows=tuple(tuple(map(words, row)) for row in _left_out(named, foreseen.left_out)),
    )
    return [cases, *[missing] * bool(missing.rows), _total(plan, request, foreseen, memory_bytes)]


def _total(
    plan: Sequence[Planned], request: Request, foreseen: "Foreseen", memory_bytes: int | None
) -> Table:
    measured = [p for p in plan if p.case.key in foreseen.rounds and p.declared]
    peaks = [planned.predicted_bytes for planned in measured]
    available = "" if memory_bytes is None else f" of {units.size(memory_bytes)} available"
    budget = "none" if request.budget_s is None else units.seconds(request.budget_s)
    counts = sorted(foreseen.rounds.values()) or [0]
    rounds = units.between(counts[0], counts[-1])
    values = {
        "Total time": f"{units.seconds(foreseen.total_s)}; budget: {budget}",
        "Cases measured": f"{len(foreseen.rounds)} of {len(plan)}",
        "Rounds": f"{rounds}; {units.many(sum(counts), 'visit')}",
        "Largest peak memory": units.size(max(peaks, default=0)) + available,
    }
    return Table(
        name="total",
        title="Total",
        columns=("Prediction", "Value"),
        rows=tuple((words(name), words(value)) for name, value in values.items()),
        note="Predicted from FLOPs and bytes at assumed rates, before anything is measured: often"
        f" wrong by a factor of up to {FACTOR}. The total includes starting processes, building,"
        " warm-up and measuring memory, but not the report. A sweep refines its predictions as it"
        " goes and decides by those. Nothing was run.",
    )


def _cost(planned: Planned, cost: float | None, text: Callable[[float], str]) -> Cell:
    if planned.refusal or not planned.declared or cost is None:
        return EMPTY if planned.refusal else words("unknown")
    return number(cost, text)


def _measured(planned: Planned, foreseen: "Foreseen") -> str:
    """`3 rounds`, or why a case is not measured."""
    key = planned.case.key
    if key in foreseen.rounds:
        return units.many(foreseen.rounds[key], "round")
    if key in foreseen.left_out:
        return _reason(foreseen.left_out[key])
    return planned.refusal or "in another shard"


def _left_out(
    named: Sequence[tuple[str, Planned]], left_out: Mapping[str, Run]
) -> Iterator[tuple[str, ...]]:
    """Reason, series, mode and lengths that are left out for the same reason."""
    lengths: dict[str, dict[tuple[str, str], list[int]]] = {}
    for name, planned in named:
        if run := left_out.get(planned.case.key):
            workload = planned.case.workload
            by_series = lengths.setdefault(_reason(run), {})
            by_series.setdefault((name, workload.mode), []).append(workload.seq_len)
    for reason, by_series in lengths.items():
        for series, omitted in by_series.items():
            yield reason, *series, ", ".join(map(units.count, omitted))


def _reason(run: Run) -> str:
    return (
        run.reason
        if run.outcome is Outcome.UNSUPPORTED
        else outcome_phrase(run.outcome, run.cause or "")
    )


def outcomes(summary: Frame) -> Frame:
    """Every case that was not measured in full, with the reason and its predicted cost."""
    lost = summary[summary["outcome"] != Outcome.OK]
    return lost[[*OUTCOMES]]
