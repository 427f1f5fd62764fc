"""The cases of a plan, in words and tables: what they need, and why some were not measured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from attnbench import units
from attnbench.analysis.summary import MISSING, Frame
from attnbench.records import Cause, Outcome, Planned, Request, Run, Workload
from attnbench.render.grid import EMPTY, Cell, Table, number, worded, words

if TYPE_CHECKING:
    from attnbench.run.forecast import Forecast

FACTOR = 3  # by which first predictions are often too high or too low
# the predictions of a quantity, and the heading of their columns
PREDICTIONS = (("first", "first guess"), ("refined", "refined"))

# in the cell of a table, and after "5 cases"
ENDINGS: Mapping[str, tuple[str, str]] = MappingProxyType({
    Outcome.OK: ("not measured", "were not measured in full"),  # only the memory is missing
    Outcome.OOM: ("out of memory", "ran out of memory"),
    Outcome.TIMEOUT: ("timed out", "timed out"),
    Outcome.CRASHED: ("crashed", "crashed"),
    Outcome.FAILED: ("failed", "failed"),
    Outcome.UNSUPPORTED: ("cannot run", "cannot run here"),
    Outcome.SKIPPED: ("skipped", "did not start"),
    MISSING: ("not run", "did not run before the sweep ended"),
})  # fmt: skip
CAUSES: Mapping[str, tuple[str, str]] = MappingProxyType({
    Cause.BUDGET: ("over budget", "did not fit into the time budget"),
    Cause.CASE_TIMEOUT: ("over time limit", "would have exceeded the time limit of a case"),
    Cause.MEMORY_LIMIT: ("exceeds memory", "would have exceeded memory"),
    Cause.OOM: ("out of memory", "did not start, since a shorter length ran out of memory"),
    Cause.TIMEOUT: ("timed out", "did not start, since a shorter length timed out"),
    Cause.KILLED: ("killed", "died of SIGKILL twice, and will be tried again by --resume"),
})  # fmt: skip


def why(outcome: str, cause: str) -> str:
    """Why a case was not measured, in two or three words; never empty."""
    return (CAUSES.get(cause) or ENDINGS.get(outcome) or ENDINGS[MISSING])[0]


def happened(outcome: str, cause: str) -> str:
    """Why cases were not measured, as what they did: `ran out of memory`."""
    return (CAUSES.get(cause) or ENDINGS.get(outcome) or ENDINGS[MISSING])[1]


def apart(workloads: Sequence[Workload]) -> tuple[str, list[str]]:
    """`D256-H16/model/float32/cpu`, which all share, and of each what it does not share.

    Batch, length and mode are left out: they have columns.
    """
    parts = []
    for workload in workloads:
        sizes, level, _, *others = str(workload).split("/")
        parts.append([*sizes.split("-")[2:], level, *others])
    shared = [part for part in parts[0] if all(part in other for other in parts)] if parts else []
    own = [[part for part in one if part not in shared] for one in parts]
    return _joined(shared), [_joined(one) for one in own]


def _joined(parts: Sequence[str]) -> str:
    sizes = [part for part in parts if part[:1] in "DH" and part[1:].isdecimal()]
    return "/".join(filter(None, ["-".join(sizes), *(p for p in parts if p not in sizes)]))


def plan_tables(
    plan: Sequence[Planned], request: Request, found: "Forecast", memory_bytes: int | None
) -> list[Table]:
    """What a dry run shows: the cases, those left out if any, and the total.

    `memory_bytes` are available.
    """
    shared, own = apart([planned.case.workload for planned in plan])
    named = [
        ("/".join(filter(None, (planned.case.series, parts))), planned)
        for planned, parts in zip(plan, own, strict=True)
    ]
    cases = Table(
        name="plan",
        title=f"Plan ({shared})",
        columns=("Mechanism", "Mode", "N", "Time per iteration", "Peak memory", "Measured"),
        rows=tuple(_planned(name, planned, found) for name, planned in named),
        leading=3,
        kept=("Measured",) * any(planned.refusal for planned in plan),
    )
    missing = Table(
        name="left_out",
        title="Left out",
        columns=("Reason", "Mechanism", "Mode", "N"),
        rows=tuple(_left_out(named, found.left_out)),
        kept=("N",),
    )
    peaks = [planned.predicted_bytes for planned in plan if planned.case.key in found.rounds]
    of_memory = "" if memory_bytes is None else f" of {units.size(memory_bytes)} available"
    budget = "none" if request.budget_s is None else units.seconds(request.budget_s)
    counts = sorted(found.rounds.values()) or [0]
    rounds = units.between(counts[0], counts[-1])
    values = {
        "Total time": f"{units.seconds(found.total_s)}; budget: {budget}",
        "Cases measured": f"{len(found.rounds)} of {len(plan)}",
        "Rounds": f"{rounds}; {units.many(sum(counts), 'visit')}",
        "Largest peak memory": units.size(max(peaks, default=0)) + of_memory,
    }
    total = Table(
        name="forecast",
        title="Total",
        columns=("Prediction", "Value"),
        rows=tuple((words(name), words(value)) for name, value in values.items()),
        note="Predicted from FLOPs and bytes at assumed rates, before anything is measured: often"
        f" wrong by a factor of up to {FACTOR}. The total includes starting processes, building,"
        " warm-up and measuring memory, but not the report. A sweep refines its predictions as it"
        " goes and decides by those. Nothing was run.",
    )
    return [cases, *[missing] * bool(missing.rows), total]


def _planned(name: str, planned: Planned, found: "Forecast") -> tuple[Cell, ...]:
    key, workload = planned.case.key, planned.case.workload
    if key in found.rounds:
        measured = units.many(found.rounds[key], "round")
    elif key in found.left_out:
        measured = _reason(found.left_out[key])
    else:
        measured = planned.refusal or "in another shard"
    time = number(planned.predicted_s, units.seconds)
    memory = number(planned.predicted_bytes, units.size)
    if planned.refusal:
        time = memory = EMPTY
    length = number(workload.seq_len, units.length)
    return (words(name), words(workload.mode), length, time, memory, words(measured))


def _left_out(
    named: Sequence[tuple[str, Planned]], left_out: Mapping[str, Run]
) -> Iterator[tuple[Cell, ...]]:
    """One row for the lengths of a series that are left out for the same reason."""
    lengths: dict[str, dict[tuple[str, str], list[int]]] = {}
    for name, planned in named:
        if run := left_out.get(planned.case.key):
            workload = planned.case.workload
            of_reason = lengths.setdefault(_reason(run), {})
            of_reason.setdefault((name, workload.mode), []).append(workload.seq_len)
    for reason, every in lengths.items():
        for series, own in every.items():
            yield (*map(words, (reason, *series, ", ".join(map(units.length, own)))),)


def _reason(run: Run) -> str:
    return run.reason if run.outcome is Outcome.UNSUPPORTED else why(run.outcome, run.cause or "")


def outcomes(summary: Frame, plan: Iterable[Planned]) -> Table:
    """Every case that was not measured in full, with the reason and its predicted cost."""
    lost = summary[summary["outcome"] != Outcome.OK]
    keys = set(lost["key"])
    shared, _ = apart([planned.case.workload for planned in plan if planned.case.key in keys])
    return Table(
        name="outcomes",
        title="Cases not measured" + (f" ({shared})" if shared else ""),
        columns=(
            *("Mechanism", "Mode", "N", "Outcome", "Reason"),
            *("Predicted time", "Predicted memory"),
        ),
        keys=("series", "mode", "seq_len", "outcome", "reason", "predicted_s", "predicted_bytes"),
        rows=tuple(
            (
                *worded(row, "series", "mode"),
                number(row["seq_len"], units.length),
                *worded(row, "outcome", "reason"),
                number(row["refined_s"], units.seconds),
                number(row["refined_bytes"], units.size),
            )
            for _, row in lost.iterrows()
        ),
        note=f"{len(summary) - len(lost)} of {len(summary)} cases were measured in full."
        " Predictions are for one iteration.",
        leading=3,
    )


def predictions(errors: Frame) -> Table:
    """Prediction errors of seconds and bytes as factors, per mechanism."""
    quantities = list(dict.fromkeys(errors["quantity"]))
    columns = [
        (quantity, f"{kind}_{end}", f"{quantity.capitalize()}, {heading}, {end}")
        for quantity in quantities
        for kind, heading in PREDICTIONS
        for end in ("median", "worst")
    ]
    rows = []
    for name, own in errors.groupby("mechanism", sort=False):
        factors = own.set_index("quantity").reindex(quantities)
        cells = (number(factors.loc[quantity, key], units.ratio) for quantity, key, _ in columns)
        rows.append((words(name), number(int(own["cases"].max()), units.count), *cells))
    return Table(
        name="predictions",
        title="Prediction error (factor)",
        columns=("Mechanism", "Cases", *(heading for *_, heading in columns)),
        rows=tuple(rows),
        note="The first guess uses FLOPs alone. The refined prediction uses all that had run before"
        " the case first ran; the figures show it where nothing was measured. Memory is the"
        " allocated peak. 1 is exact; over- and underestimates count the same.",
    )
