"""What functions return, compared as their own `==` and rounding errors have it."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.measure.results import compare, difference, keep
from attnbench.measure.server import Unmeasured
from attnbench.records.messages import Compared

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
)


@dataclass(frozen=True)
class Point:
    x: int


class Plain:
    pass


@given(values)
def test_what_was_kept_is_the_same(tmp_path_factory, value):
    file = str(tmp_path_factory.getbasetemp() / "kept")
    keep(value, file, "/base")
    assert compare(value, file, "/head") == Compared()


@pytest.mark.parametrize(
    ("base", "head", "words"),
    [
        (1, 2, "2 in place of 1"),
        (1, 1.0, "a float in place of a int"),
        (1.0, 1.0 + 1e-12, ""),
        (1.0, 1.0001, "1.0001 in place of 1.0"),
        (float("nan"), float("nan"), ""),
        ([1, [2]], [1, [3]], "3 in place of 2, at 0, at 1"),
        ([1], [1, 2], "2 elements in place of 1 in a list"),
        ({"a": 1}, {"b": 1}, "other keys in a dict"),
        ({1, 2}, {1, 3}, "another value of a set"),
        (Point(1), Point(1), ""),
        (Point(1), Point(2), "Point(x=2) in place of Point(x=1)"),
        (np.ones(3), np.ones(3) + 1e-12, ""),
        (np.ones(3), np.full(3, 1.1), "an array of float64 differs by 0.1 of its largest number"),
        (np.ones(3), np.ones(4), "(4,) float64 in place of (3,) float64"),
        (np.arange(3), np.arange(3) + 1, "other values in an array of int64"),
        (torch.ones(2), torch.ones(2) + 1e-6, ""),
        (torch.ones(2), 2 * torch.ones(2), "an array of torch.float32 differs by 1 of its"),
        (torch.ones(2).bfloat16(), torch.ones(2).bfloat16(), ""),
    ],
)
def test_a_difference_is_named(base, head, words):
    found = difference(base, head)
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_what_cannot_be_compared_says_why(tmp_path):
    with pytest.raises(Unmeasured, match="a Plain has no =="):
        difference(Plain(), Plain())
    with pytest.raises(Unmeasured, match="it cannot be pickled"):
        keep((number for number in ()), str(tmp_path / "kept"), "/base")


def test_the_place_of_a_tree_is_no_difference(tmp_path):
    keep("/base/data.txt", str(tmp_path / "kept"), "/base")
    assert not compare("/head/data.txt", str(tmp_path / "kept"), "/head").what
