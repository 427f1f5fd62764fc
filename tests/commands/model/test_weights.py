"""What of a model's weights each card holds: equal shares, and what is copied."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.model.weights import copied_text, share


@given(units=st.integers(1, 300), cards=st.integers(1, 64), rows=st.booleans())
def test_cards_hold_together_all_that_they_share(units, cards, rows):
    part = share(units, cards, rows=rows)
    assert Fraction(1, cards) <= part <= 1
    assert part * units == int(part * units) or not rows
    if units % cards == 0:
        assert part == Fraction(1, cards)
        assert not copied_text(units, "heads", cards)
    elif not rows:
        assert copied_text(units, "heads", cards)
        assert part in (1, Fraction(1, units))


def test_heads_are_divided_only_with_those_that_read_them():
    assert share(4, 8, readers=28) == 1
    assert "4 heads on each card, as are the 28" in copied_text(4, "heads", 8, readers=28)
    assert share(4, 8, readers=32) == Fraction(1, 4)
    assert copied_text(4, "heads", 8, readers=32) == "each of 4 heads on 2 cards"
