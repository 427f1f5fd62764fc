"""What a model's layers cost as tables: a row for each kind and their sum; attention's share."""

from collections.abc import Iterator

from attnbench.analysis import Estimate
from attnbench.commands.model.costs import MeasuredAt, ModelCosts
from attnbench.records import units
from attnbench.records.metrics import TIME
from attnbench.records.modes import find
from attnbench.report import grid
from attnbench.report.cases import outcome_phrase
from attnbench.report.cost_tables import INTERVALS, measured_or_why, timed_by
from attnbench.report.grid import EMPTY, Cell, Table, bounded, number, words
from attnbench.report.phrases import faster_at

WHAT = (
    "All layers of a kind: one layer times their number, for one sequence. Where caches would hold"
    " one, several were measured in a row. ms are of the step that ends a context of so many"
    " tokens; 512 at 8K: of a step of 512 tokens, as a chunk of a prefill has; prefill: of all at"
    " once. The sum has the interval of its rounds, in which the kinds took turns. Left out:"
    " embeddings, positions, norms, the output's head, and what an engine fuses{also}."
)
ROUTED = (
    "Experts: a random router spreads tokens almost evenly; weights of all are in memory, and one"
    " token reads those of its own."
)
SHARE = (
    "The time of what layers do before their feed-forwards, attention and recurrences, over that of"
    " both. The interval is that of their ratio over rounds, in which they took turns."
)


def layer_table(costs: ModelCosts, title: str) -> Table:
    """Bytes, FLOPs, times and shares of all layers of each kind, and their sum."""
    kinds = costs.kinds
    every = range(len(kinds))
    unmeasured_layers = sum(kind.layers for kind in kinds if kind.reason)
    counted = sum(kind.layers for kind in kinds) - unmeasured_layers
    every_name = "all that can be measured" if unmeasured_layers else "all layers"
    columns = {
        "Kind of layer": [*(words(kind.words) for kind in kinds), words(every_name)],
        "Layers": [number(kind.layers, units.count) for kind in kinds],
    }
    feeds = any(kind.feeds for kind in kinds)  # whose layers are those of other rows
    columns["Layers"].append(EMPTY if feeds else number(counted, units.count))
    per_token = [kind.per_token for kind in kinds]
    bytes_per_token = sum(kind.per_token for kind in kinds if not kind.reason)
    columns["Bytes per token"] = [number(n, units.count) for n in (*per_token, bytes_per_token)]
    for place in costs.main_places[-1:]:
        flops = [*(costs.flops(i, place) for i in every), costs.all_flops(place)]
        heading = f"FLOPs at {units.tick(place.seq_len)}"
        columns[heading] = [number(one, units.flops) for one in flops]
    for place in costs.places:
        times = [time_cell(costs, i, place) for i in every]
        if place not in costs.steps and not costs.is_measured(place):
            continue
        heading = place_text(place)
        columns[f"{heading}, ms"] = [*times, estimate_cell(costs.times.sums.get(place))]
        shares = [costs.times.shares.get((kind.words, place)) for kind in kinds]
        if place in costs.main_places and any(shares) and costs.has_several_mechanisms:
            columns[f"{heading}, share"] = [*map(share_cell, shares), EMPTY]
    if costs.compares_steps:
        columns["Pays at"] = [*(faster_at(costs.pays_from(i)) for i in every), EMPTY]
    return Table(
        name="layers",
        title=f"Costs of the layers: {title}, {timed_by(costs.analysis.cases)}",
        columns=tuple(columns),
        rows=tuple(zip(*columns.values(), strict=True)),
        note=" ".join((what_text(costs), INTERVALS, *missing_texts(costs))),
    )


def what_text(costs: ModelCosts) -> str:
    """What the numbers are of, and what is in none of them."""
    feeds = [kind for kind in costs.kinds if kind.feeds]
    sentences = [WHAT.format(also="" if feeds else "; feed-forwards too")]
    if any(kind.mechanism.startswith("experts") for kind in feeds):
        sentences.append(ROUTED)
    return " ".join(sentences)


def share_table(costs: ModelCosts, title: str) -> Table | None:
    """Attention's share of a step and of a pass in each place; None where none is known."""
    shares = list(costs.attention_shares())
    if not shares:
        return None
    columns = (
        grid.Column("At", lambda one: words(place_text(one.place))),
        grid.Column("Attention, ms", lambda one: number(1e3 * one.attention)),
        grid.Column("Feed-forwards, ms", lambda one: number(1e3 * one.feed_forwards)),
        grid.Column("Attention's share", lambda one: percent_cell(one.share), "attention_share"),
    )
    timed = timed_by(costs.analysis.cases)
    return grid.table(
        shares, columns, name="shares", title=f"Attention's share: {title}, {timed}", note=SHARE
    )


def percent_cell(share: Estimate) -> Cell:
    """A share with its interval: `23.1 % [22.0, 24.3]`."""
    point, low, high = (f"{100 * end:.1f}" for end in (share.point, share.low, share.high))
    interval = f" [{low}, {high}]" if units.has_value(share.high) else "*"
    text = f"{point} %{interval}"
    return bounded(share.point, share.low, share.high)._replace(text=text)


def place_text(place: MeasuredAt) -> str:
    """`8K` of a step, `512 at 8K` of several tokens, `Prefill of 8K`."""
    length = units.tick(place.seq_len)
    if not find(place.mode).steps:
        return f"Prefill of {length}"
    return length if place.step == 1 else f"{units.tick(place.step)} at {length}"


def time_cell(costs: ModelCosts, index: int, place: MeasuredAt) -> Cell:
    """Milliseconds of all layers of a kind, or why they are unknown."""
    if seconds := costs.times.seconds.get((costs.kinds[index].words, place)):
        return estimate_cell(seconds)
    return measured_or_why(costs.case(index, place), TIME, lambda row: EMPTY)


def estimate_cell(estimate: Estimate | None) -> Cell:
    """Milliseconds with their interval, if there is one."""
    if estimate is None:
        return EMPTY
    return bounded(1e3 * estimate.point, 1e3 * estimate.low, 1e3 * estimate.high)


def share_cell(share: Estimate | None) -> Cell:
    """A share of the sum; its interval, from the ratios within rounds, is in the data alone."""
    if share is None:
        return EMPTY
    return bounded(share.point, share.low, share.high)._replace(text=units.percent(share.point))


def missing_texts(costs: ModelCosts) -> Iterator[str]:
    """With what steps are compared, and what was not measured, with the reasons."""
    if costs.compares_steps:
        base = costs.kinds[costs.largest_kind].words
        yield (
            f"Pays at: the contexts at which a step costs less than one of “{base}”, both of"
            " attnbench's forms; another library's layers may cross elsewhere. A context between"
            " measured ones is interpolated; its brackets are the measured one at which the kind"
            " is shown not to cost less, and the one from which on it does."
        )
    if costs.times.ratios and not costs.is_whole_model:
        yield "Attention's share is not known, since not all of the model is in the sum."
    for kind in costs.kinds:
        if kind.reason:
            layers = units.many(kind.layers, "layer")
            yield f"Not measured, and not in the sum: “{kind.words}”, {layers}: {kind.reason}."
    for kind in costs.kinds_without_case:
        yield (
            f"“{kind.words}” has no case in the journal, whose lines are missing, so no sum is"
            " known; --resume measures it."
        )
    for place in costs.places:
        if place not in costs.steps and not costs.is_measured(place):
            cases = [costs.case(i, place) for i in range(len(costs.kinds))]
            why = {outcome_phrase(row["outcome"], row["cause"]) for row in cases if row is not None}
            yield f"{place_text(place)}: {', '.join(sorted(why))}."
