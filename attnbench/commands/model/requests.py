"""How many requests of each length fit on cards, beside the weights."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from attnbench.commands.model.cards import CardLayer, card_layers
from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.context import ContextQuery, Layer

NEEDED = "as the layers need"
PAGES = "if sliding layers keep full pages"
BITS_8 = ", 8 bits"
MOST_CARDS = 1024


class RequestsRow(NamedTuple):
    """Requests of each length asked for: the bytes of one on the fullest card, and how many fit.

    Infinitely many fit where nothing is kept.
    """

    caches: str
    bytes_on_card: tuple[int, ...]
    requests: tuple[float, ...]


def requests(layers: Sequence[CardLayer], query: ContextQuery, weights: int) -> list[RequestsRow]:
    """What fits into the memory of each card beside so many bytes of weights on it.

    As the equations need it, and with numbers of 8 bits; both also if layers with a window keep
    all tokens, where there are any.
    """
    needed_layers = [layer.layer for layer in layers]
    pages = [layer.pages for layer in layers]
    kinds = [(NEEDED, needed_layers)] + ([(PAGES, pages)] if pages != needed_layers else [])
    left_bytes = (query.memory or 0) - weights
    request_rows = []
    for words, kept_layers in kinds:
        for name, item_bytes in ((words, query.item_bytes), (words + BITS_8, 1)):
            sizes = tuple(_peak_bytes(kept_layers, item_bytes, length) for length in query.lengths)
            request_rows.append(
                RequestsRow(
                    name, sizes, tuple(_number_that_fit(left_bytes, size) for size in sizes)
                )
            )
    return request_rows


def fewest_cards(
    config: ConfigurationFields,
    query: ContextQuery,
    weights_on: Callable[[int], int | None],
) -> int | None:
    """The fewest cards, of powers of 2, on which a request of the shortest length fits.

    `weights_on` gives the bytes of the weights on each of some cards. None if that is not found.
    """
    shortest = replace(query, lengths=(min(query.lengths),))
    for cards in (1 << power for power in range(MOST_CARDS.bit_length())):
        held = weights_on(cards)
        if held is not None and requests(card_layers(config, cards), shortest, held)[0].requests[0]:
            return cards
    return None


def _number_that_fit(left_bytes: int, size: int) -> float:
    """How many of a size fit into the bytes that are left."""
    if left_bytes < 0:
        return 0
    return left_bytes // size if size else inf


def _peak_bytes(layers: Iterable[Layer], item_bytes: int, length: int) -> int:
    """The most bytes that layers keep up to a length."""
    parts = Counter(part for layer in layers for part in layer.parts)
    return sum(
        many * part.numbers * (part.item_bytes or item_bytes) * part.entries(length, peak=True)
        for part, many in parts.items()
    )
