"""The tables of a model's context, of its weights, and of the requests that fit beside them."""

from collections.abc import Iterator, Sequence
from math import inf

from attnbench.commands.model.context import ALL, INSTEAD, BytesRow, ContextQuery
from attnbench.commands.model.plan import CardPlan
from attnbench.commands.model.sizing import COUNTED, FILES, bits_text, size_of
from attnbench.commands.model.weights import HEAD, PARTS
from attnbench.records import units
from attnbench.report.grid import EMPTY, Cell, Table, number, words

NOT_COUNTED = (
    "Not counted: activations, workspace, fragmentation, half-filled pages, the CUDA context, and"
    " whatever else an engine keeps."
)


def context_table(
    rows: Sequence[BytesRow], query: ContextQuery, plan: CardPlan, title: str
) -> Table:
    """One row per kind of layer, and those of the whole model.

    rows: of the whole model, with the longest context that its cards hold.
    query: what was asked.
    plan: the model on its cards.
    title: the model and its number type.
    """
    columns = {
        "Kind of layer": [words(row.kind) for row in rows],
        "Layers": [number(row.layers, units.count) for row in rows],
        "Per token": [Cell(f"{row.per_token:,.10g} B", row.per_token) for row in rows],
    }
    for index, length in enumerate(query.lengths):
        columns[units.tick(length)] = [number(row.at[index], units.size) for row in rows]
    if query.memory is not None:
        limit = units.round_tick(units.size(query.memory))
        columns[f"Longest in {_cards(plan, limit)}"] = [_length_cell(row.longest) for row in rows]
    sizes = {row.kind: row.at for row in rows}
    full = sizes.get(INSTEAD, sizes[ALL])
    times = [
        f"{units.ratio(more / needed if needed else inf)} at {units.tick(length)}"
        for length, needed, more in zip(query.lengths, sizes[ALL], full, strict=True)
    ]
    needs = (
        f"Full attention in each layer would need {', '.join(times)}. " if INSTEAD in sizes else ""
    )
    return Table(
        name="bytes",
        title=f"Bytes of the context: {title}",
        columns=tuple(columns),
        rows=tuple(zip(*columns.values(), strict=True)),
        note=(needs + " ".join([*plan.cache_remarks, *_weights_notes(plan)])).strip(),
    )


def _length_cell(longest: float | None) -> Cell:
    if longest is None:
        return EMPTY
    return Cell("any", inf) if longest == inf else number(longest, units.count)


def _cards(plan: CardPlan, memory: str) -> str:
    """`80 GiB`, `8 × 80 GiB`."""
    return memory if plan.cards == 1 else f"{plan.cards} × {memory}"


def _weights_notes(plan: CardPlan) -> Iterator[str]:
    """Whether the memory holds the weights, and what would tell their bytes."""
    if plan.weights.total is not None:
        if plan.memory is not None:
            yield "The memory holds the weights too."
        if plan.weights.source == FILES:
            yield "The weights' bytes are those of the safetensors files beside the configuration."
        if not plan.counted and plan.cards > 1:
            yield "Parameters are not counted, so each card is taken to hold an equal part of them."
        return
    yield "Weights are extra."
    if not plan.counted:
        yield f"Parameters are not counted: {plan.reason}."
    if plan.memory is not None:
        yield "How many requests fit follows from their bytes: --weights 60GiB" + (
            ", or bits of each: --weights 8." if plan.counted else "."
        )


def weights_table(plan: CardPlan, name: str) -> Table:
    """Parameters, those that one token passes through, and bytes, by part of the model."""
    bits = plan.weights.bits
    parts = [part for part in PARTS if any(weights.part == part for weights in plan.counted)]
    rows = []
    for part in (*parts, ""):
        part_weights = [weights for weights in plan.counted if part in ("", weights.part)]
        numbers = sum(weights.numbers for weights in part_weights)
        row = [
            words(part or "all parameters"),
            number(numbers, units.count),
            number(sum(weights.active for weights in part_weights), units.count),
            number(size_of(numbers, bits), units.size) if bits else EMPTY,
        ]
        on_card = sum(weights.on_card(plan.cards) for weights in part_weights)
        if plan.cards > 1:
            row.append(number(size_of(on_card, bits), units.size) if bits else EMPTY)
        rows.append(tuple(row))
    if plan.weights.source != COUNTED:
        source = "files beside it" if plan.weights.source == FILES else "as --weights says"
        sizes = [plan.weights.total, plan.weights.on_card][: 1 + (plan.cards > 1)]
        rows.append((words(source), EMPTY, EMPTY, *(number(size, units.size) for size in sizes)))
    columns = ["Weights", "Parameters", "Active", "Bytes"]
    if plan.cards > 1:
        columns.append(f"On each of {plan.cards} cards")
    return Table(
        name="weights",
        title=f"Weights: {name}",
        columns=tuple(columns),
        rows=tuple(rows),
        note=" ".join(_parameters_notes(plan)),
    )


def _parameters_notes(plan: CardPlan) -> Iterator[str]:
    """How parameters are counted, and what is not."""
    bits = plan.weights.bits
    yield "Active: what one token passes through, and the whole embedding."
    if bits is None:
        yield (
            "The file does not say how wide all weights are (quantized, or another number type), so"
            " their bytes are not counted; --weights 8 or --weights 60GiB says it."
        )
    else:
        given = ", without scales and what a checkpoint keeps wider" if plan.bits_given else ""
        yield f"Bytes by part: {bits_text(bits)} for each parameter{given}."
    if not any(one.part == HEAD for one in plan.counted):
        yield "The output's head is the embedding."
    if plan.cards > 1:
        yield (
            "Tensor parallelism divides heads and the rows of vocabularies, feed-forwards and"
            " experts; what belongs to none (norms, routers, positions, maps to latents, an index,"
            " biases of outputs) is on each card. Of the cards the fullest is shown."
        )
    if plan.copied_weights:
        yield f"Not divided: {'; '.join(plan.copied_weights)}."
    yield from plan.remarks


def requests_table(plan: CardPlan, query: ContextQuery, title: str) -> Table:
    """How many requests of each length fit beside the weights, and what one keeps on a card."""
    columns = {"Caches": [words(row.caches) for row in plan.requests]}
    for index, length in enumerate(query.lengths):
        tick = units.tick(length)
        columns[f"One of {tick}"] = [
            number(row.bytes_on_card[index], units.size) for row in plan.requests
        ]
        columns[f"{tick} that fit"] = [_length_cell(row.requests[index]) for row in plan.requests]
    limit = _cards(plan, units.round_tick(units.size(plan.memory or 0)))
    return Table(
        name="requests",
        title=f"Requests that fit in {limit} beside the weights: {title} in caches",
        columns=tuple(columns),
        rows=tuple(zip(*columns.values(), strict=True)),
        note=" ".join(_requests_notes(plan, query)),
    )


def _requests_notes(plan: CardPlan, query: ContextQuery) -> Iterator[str]:
    """What several cards keep, from how many cards on a request fits, and what is not counted."""
    if plan.cards > 1:
        yield "One: the bytes of a request on the fullest card."
    if plan.copied_caches:
        yield f"Not divided among the cards: {'; '.join(plan.copied_caches)}."
    if not max(plan.requests[0].requests):
        shortest = units.tick(min(query.lengths))
        remedy = f"; {plan.fewest} such cards hold one" if plan.fewest is not None else ""
        held = units.size(plan.weights.on_card or 0)
        card = "each card" if plan.cards > 1 else "the card"
        yield f"No request of {shortest} fits: the weights need {held} of {card}{remedy}."
    yield NOT_COUNTED
