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
from attnbench.commands.model.weights import copied_text, share

WINDOWS = (orders.SLIDING, orders.CHUNKED)
BOTH = (orders.BOTH, orders.BOTH_SLIDING)
OF_HEADS = (orders.FULL, *WINDOWS, *BOTH, orders.INDEXED)  # by their first part
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

    def copied_text(self, cards: int) -> str:
        """In words what several cards keep, nothing if they divide it."""
        if self.units == 1 < cards:
            return f"{self.what} on each card"
        return copied_text(self.units, self.what, cards, rows=self.rows, readers=self.readers)


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
    result = []
    for kind, layer, layer_fields in layers_with_fields(config):
        split_parts = [
            _split_entry(layer_fields, kind, layer, index) for index in range(len(layer.parts))
        ]
        parts = tuple(
            part._replace(numbers=sum(shares.on_card(cards) for shares in of_part))
            for part, of_part in zip(layer.parts, split_parts, strict=True)
        )
        card = layer._replace(
            parts=parts, full=_full_on_card(layer_fields, kind, layer.full, cards)
        )
        pages = _parts_with_pages(kind, parts)
        texts = [shares.copied_text(cards) for of_part in split_parts for shares in of_part]
        result.append(
            CardLayer(card, card._replace(parts=pages), tuple(dict.fromkeys(filter(None, texts))))
        )
    return result


def _parts_with_pages(kind: str, parts: tuple[CachePart, ...]) -> tuple[CachePart, ...]:
    """The parts of a layer whose window keeps all tokens; states beside it stay as they are."""
    if kind == orders.BOTH_SLIDING:
        return CachePart(parts[0].numbers), *parts[1:]
    return tuple(CachePart(part.numbers) for part in parts) if kind in WINDOWS else parts


def _full_on_card(
    config: ConfigurationFields, kind: str, full: int | None, cards: int
) -> int | None:
    """The card's share of what full attention would keep of a token."""
    if not full or config.has("kv_lora_rank") or config.type in KEYS_ARE_VALUES:
        return full
    heads, _ = head_counts(config, kind)
    return int(full * share(heads, cards, readers=config.size("num_attention_heads")))


def _split_entry(config: ConfigurationFields, kind: str, layer: Layer, index: int) -> list[Shares]:
    """How an entry of a part of a layer divides; it is whole where nothing here knows."""
    part = layer.parts[index]
    shares_of_part = list(_shares_of_entry(config, kind, part, index))
    if sum(shares.units * shares.width for shares in shares_of_part) == part.numbers:
        return shares_of_part
    if kind != orders.LINEAR and config.has("kv_lora_rank"):
        return [Shares(1, part.numbers, "keys of an index" if index else "latents")]
    if kind != orders.LINEAR and config.type in KEYS_ARE_VALUES:
        return [Shares(1, part.numbers, "windows, pools and keys of an index")]
    return [Shares(1, part.numbers, f"what a layer “{layer.kind}” keeps")]


def _shares_of_entry(
    config: ConfigurationFields, kind: str, part: CachePart, index: int
) -> Iterator[Shares]:
    """The shares of an entry of a part, nothing where it does not divide."""
    latent = config.has("kv_lora_rank") or config.type in KEYS_ARE_VALUES
    if kind in OF_HEADS and index == 0 and not latent:
        heads, _ = head_counts(config, kind)
        readers = config.size("num_attention_heads")
        yield Shares(heads, part.numbers // heads, KV_HEADS, readers=readers)
    elif kind == orders.INDEXED:
        yield Shares(1, part.numbers, "keys of an index" if index else "latents")
    elif kind in BOTH and config.has("cca_time0"):
        words = ("inputs of convolutions of queries and keys", "values of the last token")
        yield Shares(1, part.numbers, words[index - 1])
    elif kind in BOTH:
        yield from (_state_shares if index == 1 else _convolution_shares)(config)
    elif kind == orders.CONV:
        yield Shares(part.numbers, 1, "channels", rows=True)
    elif kind == orders.LINEAR:
        yield from (_state_shares if index == 0 else _convolution_shares)(config)


def _state_shares(config: ConfigurationFields) -> Iterator[Shares]:
    """The heads of a recurrent state."""
    (size, *widths), _ = state_shape(config)
    if config.type in MAMBA_1:
        yield Shares(size, widths[0], "channels", rows=True)
        return
    heads = size
    if len(widths) == 1:  # channels of a Mamba-2
        heads = _mamba_heads(config)
    numbers = size
    for width in widths:
        numbers *= width
    yield Shares(heads, numbers // heads, "heads of states")


def _convolution_shares(config: ConfigurationFields) -> Iterator[Shares]:
    """The channels of the convolution before a recurrence, by the heads that they belong to."""
    (size, *widths), channels = state_shape(config)
    if config.has("linear_num_value_heads"):
        key_width, value_width = widths
        heads = config.size("linear_num_key_heads")
        yield Shares(heads, 2 * key_width, "heads of keys of states", readers=size)
        yield Shares(size, value_width, "heads of states")
    elif config.has("linear_num_heads"):
        yield Shares(size, channels // size, "heads of states")
    elif config.type in MAMBA_1:
        yield Shares(size, 1, "channels", rows=True)
    else:
        heads = _mamba_heads(config)
        yield Shares(heads, size // heads, "heads of states")
        groups = config.size("mamba_n_groups", "n_groups")
        yield Shares(groups, 2 * widths[0], "groups of heads of states", readers=heads)


def _mamba_heads(config: ConfigurationFields) -> int:
    return config.size("mamba_num_heads", "mamba_n_heads", "num_heads")
