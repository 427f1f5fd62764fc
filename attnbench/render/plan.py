"""What `sweep --dry-run` shows: the cost of every case, what is left out, and the sweep in all."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from attnbench import units
from attnbench.records import Outcome, Planned, Request, Run
from attnbench.render.grid import Cell, Table, words
from attnbench.render.labels import apart, why

FACTOR = 3  # by which first predictions are often too high or too low


def plan_tables(
    plan: Sequence[Planned],
    request: Request,
    *,
    total_s: float,
    rounds: Mapping[str, int],
    left_out: Mapping[str, Run],
    memory_bytes: int | None,
) -> list[Table]:
    """The cases, those left out if any, and the total.

    `total_s`, `rounds` and `left_out` are those of `run.forecast`; `memory_bytes` are available.
    """
    shared, own = apart([planned.case.workload for planned in plan])
    names = [
        "/".join([planned.case.series, *filter(None, [parts])])
        for planned, parts in zip(plan, own, strict=True)
    ]
    rows = tuple(
        _row(name, planned, rounds, left_out) for name, planned in zip(names, plan, strict=True)
    )
    cases = Table(
        name="plan",
        title=f"Plan ({shared})",
        columns=("Mechanism", "Mode", "N", "Time per iteration", "Peak memory", "Measured"),
        rows=rows,
        leading=3,
        kept=("Measured",) * any(planned.refusal for planned in plan),
    )
    lost = [(name, p) for name, p in zip(names, plan, strict=True) if p.case.key in left_out]
    missing = Table(
        name="left_out",
        title="Left out",
        columns=("Reason", "Mechanism", "Mode", "N"),
        rows=tuple(_lost(lost, left_out)),
        kept=("N",),
    )
    peaks = [planned.predicted_bytes for planned in plan if planned.case.key in rounds]
    of_memory = "" if memory_bytes is None else f" of {units.size(memory_bytes)} available"
    budget = "none" if request.budget_s is None else units.seconds(request.budget_s)
    visits = sum(rounds.values())
    total = Table(
        name="forecast",
        title="Total",
        columns=("Prediction", "Value"),
        rows=(
            (words("Total time"), words(f"{units.seconds(total_s)}; budget: {budget}")),
            (words("Cases measured"), words(f"{len(rounds)} of {len(plan)}")),
            (words("Rounds"), words(f"{_span(rounds.values())}; {units.many(visits, 'visit')}")),
            (words("Largest peak memory"), words(units.size(max(peaks, default=0)) + of_memory)),
        ),
        note="Predicted from FLOPs and bytes at assumed rates, before anything is measured: often"
        f" wrong by a factor of up to {FACTOR}. The total includes starting processes, building,"
        " warm-up and measuring memory, but not the report. A sweep refines its predictions as it"
        " goes and decides by those. Nothing was run.",
    )
    return [cases, *[missing] * bool(lost), total]


def _row(
    name: str, planned: Planned, rounds: Mapping[str, int], left_out: Mapping[str, Run]
) -> tuple[Cell, ...]:
    key, n = planned.case.key, planned.case.workload.seq_len
    if key in rounds:
        measured = units.many(rounds[key], "round")
    else:
        elsewhere = planned.refusal or "in another shard"
        measured = _why(left_out[key]) if key in left_out else elsewhere
    time = Cell(units.seconds(planned.predicted_s), planned.predicted_s)
    memory = Cell(units.size(planned.predicted_bytes), planned.predicted_bytes)
    if planned.refusal:
        time = memory = Cell(units.NOTHING)
    identity = (words(name), words(planned.case.workload.mode), Cell(units.length(n), n))
    return (*identity, time, memory, words(measured))


def _lost(
    lost: Sequence[tuple[str, Planned]], left_out: Mapping[str, Run]
) -> Iterator[tuple[Cell, ...]]:
    """One row for the lengths of a series that are left out for the same reason."""
    lengths: dict[tuple[str, str, str], list[int]] = {}
    for name, planned in lost:
        workload = planned.case.workload
        place = (_why(left_out[planned.case.key]), name, str(workload.mode))
        lengths.setdefault(place, []).append(workload.seq_len)
    reasons = list(dict.fromkeys(place[0] for place in lengths))
    for place in sorted(lengths, key=lambda place: reasons.index(place[0])):
        yield (*map(words, place), words(", ".join(map(units.length, lengths[place]))))


def _why(run: Run) -> str:
    return run.reason if run.outcome is Outcome.UNSUPPORTED else why(run.outcome, run.cause or "")


def _span(counts: Iterable[int]) -> str:
    """`3`, `1 to 3`; `0` without any."""
    found = sorted(counts) or [0]
    return " to ".join(dict.fromkeys(f"{count}" for count in (found[0], found[-1])))
