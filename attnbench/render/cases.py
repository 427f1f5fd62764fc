"""The cases of a plan, in words and tables: what they need, and why some were not measured."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from attnbench import units
from attnbench.records import MISSING, Cause, Outcome, Planned, Request
from attnbench.render.grid import EMPTY, Cell, Column, Table, number, table, words

if TYPE_CHECKING:
    from attnbench.analysis.summary import Frame
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
    """What a dry run shows: the cases, and the total.

    `memory_bytes` are available; `sizes` are those that differ, by the key of each case.
    """
    w = plan[0].case.workload
    common = "" if request.variants else f" (D{w.width}-H{w.heads}/{w.level}/{w.dtype}/{w.device})"

    def series(planned: Planned) -> Cell:
        return words(f"{planned.case.series} {sizes[planned.case.key]}".strip())

    def time(planned: Planned) -> Cell:
        return _cost(planned, foreseen.seconds.get(planned.case.key), units.seconds)

    cases = table(
        plan,
        [
            Column("Mechanism", series),
            Column("Mode", lambda planned: words(planned.case.workload.mode)),
            Column("N", lambda planned: number(planned.case.workload.seq_len, units.count)),
            Column("Time per iteration", time),
            Column("Peak memory", lambda p: _cost(p, p.predicted_bytes, units.size)),
            Column("Measured", lambda planned: words(_measured(planned, foreseen))),
        ],
        name="plan",
        title=f"Plan{common}",
        leading=3,
    )
    return [cases, _total(plan, request, foreseen, memory_bytes)]


def _total(
    plan: Sequence[Planned], request: Request, foreseen: "Foreseen", memory_bytes: int | None
) -> Table:
    peaks = [p.predicted_bytes for p in plan if p.case.key in foreseen.rounds and p.declared]
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
    return table(
        values.items(),
        [
            Column("Prediction", lambda row: words(row[0])),
            Column("Value", lambda row: words(row[1])),
        ],
        name="total",
        title="Total",
        note="Predicted from FLOPs and bytes at assumed rates, before anything is measured: often"
        f" wrong by a factor of up to {FACTOR}. The total includes starting processes, building,"
        " warm-up and measuring memory, but not the report. Nothing was run.",
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
    run = foreseen.left_out.get(key)
    if run and run.outcome is not Outcome.UNSUPPORTED:
        return outcome_phrase(run.outcome, run.cause or "")
    return run.reason if run else planned.refusal or "in another shard"


def outcomes(summary: "Frame") -> "Frame":
    """Every case that was not measured in full, with the reason and its predicted cost."""
    lost = summary[summary["outcome"] != Outcome.OK]
    return lost[[*OUTCOMES]]
