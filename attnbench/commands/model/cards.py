"""What each of several cards keeps of the context by tensor parallelism, in numbers and words."""

from collections.abc import Iterator
from typing import NamedTuple

from attnbench.commands.model import orders
from attnbench.commands.model.configuration import ConfigurationFields
from attnbench.commands.model.configured_layers import (
    KEYS_ARE_VALUES,
    head_counts,
    layers_with_fields,
)
from attnbench.commands.model.context import CachePart, Layer
from attnbench.commands.model.states import MAMBA_1, state_shape
from attnbench.commands.model.weights import copied, share

WINDOWS = (orders.SLIDING, orders.CHUNKED)
OF_HEADS = (orders.FULL, *WINDOWS)
KV_HEADS = "heads of keys and values"


class Shares(NamedTuple):
    """Equal shares of the numbers of an entry: how many, how wide, and what they are in words.

    Rows may be dealt out unevenly, heads not; `readers` are the heads that read them, 0 without
    any.
    """

    units: int
    width: int
    what: str
    rows: bool = False
    readers: int = 0

    def on_card(self, cards: int) -> int:
        """The numbers that the fullest card keeps."""
        part = share(self.units, cards, rows=self.rows, readers=self.readers)
        return int(self.units * self.width * part)

    def copied(self, cards: int) -> str:
        """In words what several cards keep, nothing if they divide it."""
        if self.units == 1 < cards:
            return f"{self.what} on each card"
        return copied(self.units, self.what, cards, rows=self.rows, readers=self.readers)


class CardLayer(NamedTuple):
    """A layer as the fullest card keeps it.

    layer: with the card's share of each part.
    pages: the same if a window keeps all tokens, as engines without pages for windows reserve.
    copied: what of it several cards keep, in words.
    """

    layer: Layer
    pages: Layer
    copied: tuple[str, ...]


def card_layers(config: ConfigurationFields, cards: int) -> list[CardLayer]:
    """Each layer of a model as the fullest of so many cards keeps it. Raises `UsageError`."""
    found = []
    for kind, layer, own in layers_with_fields(config):
        split = [_split(own, kind, layer, index) for index in range(len(layer.parts))]
        parts = tuple(
            part._replace(numbers=sum(shares.on_card(cards) for shares in of_part))
            for part, of_part in zip(layer.parts, split, strict=True)
        )
        card = layer._replace(parts=parts, full=_full_on_card(own, kind, layer.full, cards))
        pages = tuple(CachePart(part.numbers) for part in parts) if kind in WINDOWS else parts
        texts = [shares.copied(cards) for of_part in split for shares in of_part]
        found.append(
            CardLayer(card, card._replace(parts=pages), tuple(dict.fromkeys(filter(None, texts))))
        )
    return found


def _full_on_card(
    config: ConfigurationFields, kind: str, full: int | None, cards: int
) -> int | None:
    """The card's share of what full attention would keep of a token."""
    if not full or config.has("kv_lora_rank") or config.type in KEYS_ARE_VALUES:
        return full
    heads, _ = head_counts(config, kind)
    return int(full * share(heads, cards, readers=config.size("num_attention_heads")))


def _split(config: ConfigurationFields, kind: str, layer: Layer, index: int) -> list[Shares]:
    """How an entry of a part of a layer divides; it is whole where nothing here knows."""
    part = layer.parts[index]
    found = list(_divided(config, kind, part, index))
    if sum(shares.units * shares.width for shares in found) == part.numbers:
        return found
    if kind != orders.LINEAR and config.has("kv_lora_rank"):
        return [Shares(1, part.numbers, "keys of an index" if index else "latents")]
    if kind != orders.LINEAR and config.type in KEYS_ARE_VALUES:
        return [Shares(1, part.numbers, "windows, pools and keys of an index")]
    return [Shares(1, part.numbers, f"what a layer “{layer.kind}” keeps")]


def _divided(
    config: ConfigurationFields, kind: str, part: CachePart, index: int
) -> Iterator[Shares]:
    """The shares of an entry of a part, nothing where it does not divide."""
    if kind in OF_HEADS and not config.has("kv_lora_rank") and config.type not in KEYS_ARE_VALUES:
        heads, _ = head_counts(config, kind)
        readers = config.size("num_attention_heads")
        yield Shares(heads, part.numbers // heads, KV_HEADS, readers=readers)
    elif kind == orders.CONV:
        yield Shares(part.numbers, 1, "channels", rows=True)
    elif kind == orders.LINEAR:
        yield from (_state if index == 0 else _convolved)(config)


def _state(config: ConfigurationFields) -> Iterator[Shares]:
    """The heads of a recurrent state."""
    (first, *widths), _ = state_shape(config)
    if config.type in MAMBA_1:
        yield Shares(first, widths[0], "channels", rows=True)
        return
    heads = first
    if len(widths) == 1:  # channels of a Mamba-2
        heads = _mamba_heads(config)
    numbers = first
    for width in widths:
        numbers *= width
    yield Shares(heads, numbers // heads, "heads of states")


def _convolved(config: ConfigurationFields) -> Iterator[Shares]:
    """The channels of the convolution before a recurrence, by the heads that they belong to."""
    (first, *widths), channels = state_shape(config)
    if config.has("linear_num_value_heads"):
        key_width, value_width = widths
        heads = config.size("linear_num_key_heads")
        yield Shares(heads, 2 * key_width, "heads of keys of states", readers=first)
        yield Shares(first, value_width, "heads of states")
    elif config.has("linear_num_heads"):
        yield Shares(first, channels // first, "heads of states")
    elif config.type in MAMBA_1:
        yield Shares(first, 1, "channels", rows=True)
    else:
        heads = _mamba_heads(config)
        yield Shares(heads, first // heads, "heads of states")
        groups = config.size("mamba_n_groups", "n_groups")
        yield Shares(groups, 2 * widths[0], "groups of heads of states", readers=heads)


def _mamba_heads(config: ConfigurationFields) -> int:
    return config.size("mamba_num_heads", "mamba_n_heads", "num_heads")
