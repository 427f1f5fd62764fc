"""What turns text into values: any text gives a value or one line that says what is taken."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.attention.card import LARGEST
from attnbench.errors import UnknownOption, UsageError
from attnbench.mechanisms.catalogue.registry import card, names
from attnbench.running.request import axes
from tests.cases import OPTIONS
from tests.inputs import values

SIZES = st.integers(1, axes.LONGEST)


def parsed(parse, text):
    """The value, or None if it was refused as bad usage; any other error comes through."""
    with suppress(UsageError):
        return parse(text)
    return None


@given(values.TEXT | values.lengths())
def test_lengths_are_few_sorted_and_within_bounds_or_refused(text):
    found = parsed(axes.lengths, text)
    if found is not None:
        assert 1 <= len(found) <= axes.MOST
        assert list(found) == sorted(set(found))
        assert 1 <= found[0] <= found[-1] <= axes.LONGEST


@given(SIZES, SIZES, st.sampled_from("x+"), st.integers(2, 10**6))
def test_a_range_is_what_it_says(first, last, kind, step):
    first, last = sorted((first, last))
    found = parsed(axes.lengths, f"{first}..{last}:{kind}{step}")
    if found is None:
        assert kind == "+"
        assert (last - first) // step >= axes.MOST
    else:
        assert found[0] == first
        assert found[-1] <= last
        beyond = found[-1] * step if kind == "x" else found[-1] + step
        assert last < beyond


@pytest.mark.parametrize("text", ["1..16m:+1", "1..1001:+1", "1..600:+1,5000..5600:+1"])
def test_no_expression_grows_without_bound(text):
    with pytest.raises(UsageError, match="more than 1,000 lengths"):
        axes.lengths(text)
    assert len(axes.lengths("1..1000:+1")) == axes.MOST


@given(st.sampled_from(names()), st.data())
def test_an_option_of_a_wrong_kind_is_refused(name, data):
    """What is accepted has the type of its field, and no size that no machine has."""
    tested = card(name)
    defaults = {key: getattr(tested.config(), key) for key in tested.config.__dataclass_fields__}
    key = data.draw(st.sampled_from(sorted(defaults)))
    value = data.draw(OPTIONS | st.sampled_from((float("nan"), float("inf"), 10**400)))
    with suppress(UnknownOption):
        kept = getattr(tested.configure({key: value}), key)
        assert isinstance(kept, bool) == isinstance(defaults[key], bool)
        assert isinstance(kept, str) == isinstance(defaults[key], str)
        assert not isinstance(kept, int | float) or abs(kept) < LARGEST
