"""The cases of a plan, in words and tables: what they need, and why some were not measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from attnbench.records import Outcome, Planned, Request, outcomes, units
from attnbench.report.grid import EMPTY, Cell, Column, Table, number, table, words

if TYPE_CHECKING:
    from attnbench.running.foresee import Foreseen

FACTOR = 3  # by which first predictions are often too high or too low


def outcome_phrase(outcome: str, cause: str) -> str:
    """Why a case was not measured, in two or three words; never empty."""
    return outcomes.ending(outcome, cause).phrase


def plan_table(
    plan: Sequence[Planned], request: Request, foreseen: "Foreseen", sizes: Mapping[str, str]
) -> Table:
    """The cases of a dry run.

    plan: of the sweep.
    request: what is asked of it.
    foreseen: what it would do with each case, by its predicted costs.
    sizes: those that differ, by the key of each case.
    """
    w = plan[0].case.workload
    common = "" if request.variants else f" (D{w.width}-H{w.heads}/{w.level}/{w.dtype}/{w.device})"

    def time(planned: Planned) -> Cell:
        return _cost(planned, foreseen.seconds.get(planned.case.key), units.seconds)

    return table(
        plan,
        [
            Column("Mechanism", lambda p: words(f"{p.case.series} {sizes[p.case.key]}".strip())),
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


def plan_total(
    plan: Sequence[Planned], request: Request, foreseen: "Foreseen", memory_bytes: int | None
) -> str:
    """What a sweep needs in all.

    plan: of the sweep.
    request: what is asked of it.
    foreseen: what it would do with each case, by its predicted costs.
    memory_bytes: what is available; None where that is unknown.
    """
    peaks = [p.predicted_bytes for p in plan if p.case.key in foreseen.rounds and p.declared]
    available = "" if memory_bytes is None else f" of {units.size(memory_bytes)} available"
    budget = "none" if request.budget_s is None else units.seconds(request.budget_s)
    counts = sorted(foreseen.rounds.values()) or [0]
    return (
        f"Total time: {units.seconds(foreseen.total_s)}; budget: {budget}. Measured:"
        f" {len(foreseen.rounds)} of {units.many(len(plan), 'case')}, rounds:"
        f" {units.between(counts[0], counts[-1])}. {fronts(foreseen)} Largest peak memory:"
        f" {units.size(max(peaks, default=0))}{available}. Predicted from FLOPs and bytes at"
        f" assumed rates, before anything is measured: often wrong by a factor of up to {FACTOR}."
        f"{unknown(plan)} Includes starting processes and warm-up, but not the report. Nothing was"
        " run."
    )


def unknown(plan: Sequence[Planned]) -> str:
    """Of which series nothing is known before it runs, and what is assumed; empty if of none."""
    series = dict.fromkeys(
        planned.case.series for planned in plan if not (planned.declared or planned.refusal)
    )
    if not series:
        return ""
    return (
        f" What {units.few(series)} costs is not known before it runs: here it counts as four"
        " linear maps of its width."
    )


def fronts(foreseen: "Foreseen") -> str:
    """How far all series of each mode go, and how far the longest curve does: a sentence."""
    texts = []
    for front in foreseen.fronts:
        far = f"the longest curve ends at {units.count(front.far)}"
        if front.common is None:
            texts.append(f"in {front.mode} no length is timed for all series ({far})")
        else:
            texts.append(f"in {front.mode} to N = {units.count(front.common)} ({far})")
    return f"All series go {'; '.join(texts)}." if texts else "Nothing is timed."


def plan_data(
    plan: Sequence[Planned], request: Request, foreseen: "Foreseen", memory_bytes: int | None
) -> dict[str, object]:
    """What a dry run says, as data: the whole sweep, and a record for each case.

    `seconds` are of one iteration and `peak_bytes` at the peak, both predicted, or None where they
    are unknown. A case that is not timed has no `rounds`, and the `reason`.
    """
    return {
        "total_s": foreseen.total_s,
        "budget_s": request.budget_s,
        "memory_bytes": memory_bytes,
        "fronts": [asdict(front) for front in foreseen.fronts],
        "cases": [
            {
                "case": str(planned.case),
                "mechanism": planned.case.mechanism,
                "series": planned.case.series,
                "mode": planned.case.workload.mode,
                "seq_len": planned.case.workload.seq_len,
                "seconds": foreseen.seconds.get(planned.case.key) if planned.declared else None,
                "peak_bytes": planned.predicted_bytes if planned.declared else None,
                "rounds": foreseen.rounds.get(planned.case.key, 0),
                "reason": _reason(planned, foreseen),
            }
            for planned in plan
        ],
    }


def _reason(planned: Planned, foreseen: "Foreseen") -> str:
    """Why a case is not measured, in full; empty if it is."""
    run = foreseen.left_out.get(planned.case.key)
    return planned.refusal or (run.reason if run else "")


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
    return run.reason if run else planned.refusal
