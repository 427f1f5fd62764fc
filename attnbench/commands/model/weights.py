"""The numbers of a model's parts, and what of them each card holds; loads no torch."""

from fractions import Fraction
from math import ceil
from typing import NamedTuple

EMBEDDING = "embedding"
ATTENTION = "attention"
STATES = "states and convolutions"
FEED_FORWARD = "feed-forward"
EXPERTS = "experts"
NORMS = "norms and routers"
HEAD = "output head"
PARTS = (EMBEDDING, ATTENTION, STATES, FEED_FORWARD, EXPERTS, NORMS, HEAD)


class Weights(NamedTuple):
    """Numbers of one part of a model.

    part: one of `PARTS`.
    numbers: how many they are.
    units: the equal shares, such as heads, that cards can divide among them; 1 if all is copied.
    rows: whether the shares may be dealt out unevenly, as those of a vocabulary.
    used: how many of the numbers one token passes through, None for all.
    readers: the heads that read the units, 0 without any; both are divided or none.
    """

    part: str
    numbers: int
    units: int = 1
    rows: bool = False
    used: int | None = None
    readers: int = 0

    @property
    def active(self) -> int:
        """How many of the numbers one token passes through."""
        return self.numbers if self.used is None else self.used

    def on_card(self, cards: int) -> Fraction:
        """The numbers that the fullest of so many cards holds."""
        return self.numbers * share(self.units, cards, rows=self.rows, readers=self.readers)


def divides(units: int, cards: int) -> bool:
    """Whether cards divide equal units, or else each unit is on equally many cards."""
    return units % cards == 0 or cards % units == 0


def share(units: int, cards: int, *, rows: bool = False, readers: int = 0) -> Fraction:
    """The share of equal units that the fullest card holds, 1 where all is copied.

    units: such as heads. Of fewer units than cards each card has one, if the cards are a multiple
        of them; what cards cannot divide is on each.
    cards: that share the units.
    rows: whether units may be dealt out unevenly.
    readers: the heads that read the units, 0 without any; a card with all of them has all units.
    """
    if rows:
        return Fraction(ceil(units / cards), units)
    if not divides(units, cards) or (readers and not divides(readers, cards)):
        return Fraction(1)
    return Fraction(1, min(units, cards))


def copied_text(units: int, what: str, cards: int, *, rows: bool = False, readers: int = 0) -> str:
    """In words which of equal units several cards hold, nothing if the cards divide them.

    units: such as heads.
    what: they are, in words.
    cards: that share them.
    rows: whether units may be dealt out unevenly.
    readers: the heads that read the units, 0 without any.
    """
    if rows or cards == 1:
        return ""
    if not divides(units, cards):
        return f"{units} {what}, which {cards} cards cannot divide, on each card"
    if readers and not divides(readers, cards):
        return (
            f"{units} {what} on each card, as are the {readers} heads that read them, which"
            f" {cards} cards cannot divide"
        )
    return "" if units % cards == 0 else f"each of {units} {what} on {cards // units} cards"
