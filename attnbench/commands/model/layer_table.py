"""The table of what a model's layers cost: a row for each kind of layer, and their sum."""

from collections.abc import Iterator

from attnbench.analysis.statistics.estimate import Estimate
from attnbench.commands.model.costs import MeasuredAt, ModelCosts
from attnbench.records import units
from attnbench.records.metrics import TIME
from attnbench.records.modes import find
from attnbench.report.cases import outcome_phrase
from attnbench.report.conclusions import faster_at
from attnbench.report.cost_tables import INTERVALS, measured_or_why, timed_by
from attnbench.report.grid import EMPTY, Cell, Table, bounded, number, words

WHAT = (
    "All layers of a kind: one layer times their number, for one sequence. Where caches would hold"
    " one, several were measured in a row. ms are of the step that ends a context of so many"
    " tokens; 512 at 8K: of a step of 512 tokens, as a chunk of a prefill has; prefill: of all at"
    " once. The sum has the interval of its rounds, in which the kinds took turns. Left out:"
    " positions, norms of queries and keys, feed-forwards."
)


def layer_table(costs: ModelCosts, title: str) -> Table:
    """Bytes, FLOPs, times and shares of all layers of each kind, and their sum."""
    kinds = costs.kinds
    every = range(len(kinds))
    lost = sum(kind.layers for kind in kinds if kind.reason)
    counted = sum(kind.layers for kind in kinds) - lost
    every_name = "all that can be measured" if lost else "all layers"
    columns = {
        "Kind of layer": [*(words(kind.words) for kind in kinds), words(every_name)],
        "Layers": [number(n, units.count) for n in (*(kind.layers for kind in kinds), counted)],
    }
    per_token = [kind.per_token for kind in kinds]
    whole = sum(kind.per_token for kind in kinds if not kind.reason)
    columns["Bytes per token"] = [number(n, units.count) for n in (*per_token, whole)]
    for place in costs.main[-1:]:
        flops = [*(costs.flops(i, place) for i in every), costs.all_flops(place)]
        heading = f"FLOPs at {units.tick(place.seq_len)}"
        columns[heading] = [number(one, units.flops) for one in flops]
    for place in costs.places:
        times = [time_cell(costs, i, place) for i in every]
        if place not in costs.steps and not costs.measured(place):
            continue
        heading = where(place)
        columns[f"{heading}, ms"] = [*times, estimated(costs.times.sums.get(place))]
        shares = [costs.times.shares.get((kind.words, place)) for kind in kinds]
        if place in costs.main and any(shares) and costs.several:
            columns[f"{heading}, share"] = [*map(share_cell, shares), EMPTY]
    if costs.several and costs.steps:
        columns["Pays at"] = [*(faster_at(costs.pays_from(i)) for i in every), EMPTY]
    return Table(
        name="layers",
        title=f"Costs of the layers: {title}, {timed_by(costs.analysis.cases)}",
        columns=tuple(columns),
        rows=tuple(zip(*columns.values(), strict=True)),
        note=" ".join((WHAT, INTERVALS, *missing(costs))),
    )


def where(place: MeasuredAt) -> str:
    """`8K` of a step, `512 at 8K` of several tokens, `Prefill of 8K`."""
    length = units.tick(place.seq_len)
    if not find(place.mode).steps:
        return f"Prefill of {length}"
    return length if place.step == 1 else f"{units.tick(place.step)} at {length}"


def time_cell(costs: ModelCosts, index: int, place: MeasuredAt) -> Cell:
    """Milliseconds of all layers of a kind, or why they are unknown."""
    if found := costs.times.seconds.get((costs.kinds[index].words, place)):
        return estimated(found)
    return measured_or_why(costs.case(index, place), TIME, lambda row: EMPTY)


def estimated(estimate: Estimate | None) -> Cell:
    """Milliseconds with their interval, if there is one."""
    if estimate is None:
        return EMPTY
    return bounded(1e3 * estimate.point, 1e3 * estimate.low, 1e3 * estimate.high)


def share_cell(share: Estimate | None) -> Cell:
    """A share of the sum; its interval, from the ratios within rounds, is in the data alone."""
    if share is None:
        return EMPTY
    return bounded(share.point, share.low, share.high)._replace(text=units.percent(share.point))


def missing(costs: ModelCosts) -> Iterator[str]:
    """With what steps are compared, and what was not measured, with the reasons."""
    if costs.several and costs.steps:
        base = costs.kinds[costs.largest].words
        yield (
            f"Pays at: the contexts at which a step costs less than one of “{base}”, both of"
            " attnbench's forms; another library's layers may cross elsewhere. A context between"
            " measured ones is interpolated; its brackets are the measured one at which the kind"
            " is shown not to cost less, and the one from which on it does."
        )
    for kind in costs.kinds:
        if kind.reason:
            layers = units.many(kind.layers, "layer")
            yield f"Not measured, and not in the sum: “{kind.words}”, {layers}: {kind.reason}."
    for kind in costs.lacking:
        yield (
            f"“{kind.words}” has no case in the journal, whose lines are missing, so no sum is"
            " known; --resume measures it."
        )
    for place in costs.places:
        if place not in costs.steps and not costs.measured(place):
            cases = [costs.case(i, place) for i in range(len(costs.kinds))]
            why = {outcome_phrase(row["outcome"], row["cause"]) for row in cases if row is not None}
            yield f"{where(place)}: {', '.join(sorted(why))}."
