"""What functions return on two sides is compared, and what lies in a file runs no code."""

import enum
import pickle
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.measuring import results
from attnbench.measuring.server import Unmeasured

Pair = namedtuple("Pair", "a b")
DATES = pd.DataFrame({"at": [pd.NaT, pd.Timestamp(0)]})


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    x: float
    tags: tuple[str, ...] = ()
    seen: int = field(default=0, compare=False)


@dataclass
class Own:
    x: float

    def __eq__(self, other):
        return True


class Plain:
    pass


def differ(ours, theirs, folder):
    """How head's value differs from base's, through a file, as two processes compare them."""
    file = str(folder / "kept")
    results.keep(ours, file, "/base")
    return results.compare(theirs, file, "/head").what


PAIRS = [
    (1, 2, "2 in place of 1"),
    (1, 1.0, "a float in place of a int"),
    (2**70, 2**70 + 1, "in place of"),
    (True, 1, "a int in place of a bool"),
    (None, 0, "a int in place of a NoneType"),
    (0.3, 0.4, "0.4 in place of 0.3"),
    (1 + 2j, 1 + 3j, "(1+3j) in place of (1+2j)"),
    ("a", "b", "'b' in place of 'a'"),
    (b"a", b"b", "another value of a bytes"),
    ([1, [2, 3]], [1, [2, 4]], "4 in place of 3, at 1, at 1"),
    ([1], [1, 2], "2 elements in place of 1 in a list"),
    ((1,), [1], "a list in place of a tuple"),
    ({"a": 1.0}, {"a": 2.0}, "2.0 in place of 1.0, at 'a'"),
    ({"a": 1}, {"b": 1}, "other keys in a dict"),
    ({1, 2}, {1, 3}, "another value of a set"),
    (Pair(1, 2), Pair(1, 3), "3 in place of 2, at 1"),
    (Colour.RED, Colour.BLUE, "BLUE in place of RED"),
    (date(2026, 1, 1), date(2026, 1, 2), "datetime.date(2026, 1, 2) in place of"),
    (Decimal("0.10"), Decimal("0.2"), "Decimal('0.2') in place of Decimal('0.10')"),
    (Point(1.0), Point(2.0), "2.0 in place of 1.0, at 'x'"),
    ([Point(1.0, ("a",))], [Point(1.0, ("b",))], "'b' in place of 'a', at 0, at 'tags', at 0"),
    (np.arange(3), np.arange(1, 4), "other values in an array of int64"),
    (np.ones(3), np.ones((3, 1)), "(3, 1) float64 in place of (3,) float64"),
    (np.float32(1), np.float32(2), "an array of float32 differs by 1 of its largest number"),
    (np.array(["a", None], object), np.array(["b", None], object), "'b' in place of 'a', at 1"),
    (torch.ones(3), torch.tensor([1.0, 1.0, 2.0]), "an array of torch.float32 differs by 1"),
    (
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2),
        "(2,) torch.float32 in place of",
    ),
    (pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 3]}), "other values in an array of int64"),
    (pd.DataFrame({"a": ["x"]}), pd.DataFrame({"a": ["y"]}), "'y' in place of 'x'"),
    (pd.Series([1.0]), pd.Series([1.0], index=[5]), "in place of"),
]


@pytest.mark.parametrize(("ours", "theirs", "words"), PAIRS, ids=lambda value: "")
def test_values_that_differ_are_told_apart_and_equal_ones_are_not(ours, theirs, words, tmp_path):
    assert words in differ(ours, theirs, tmp_path)
    assert differ(ours, ours, tmp_path) == differ(theirs, theirs, tmp_path) == ""


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (0.1 + 0.2, 0.3),
        (float("nan"), float("nan")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (OrderedDict(a=1), OrderedDict(a=1)),
        ("/base/file.txt", "/head/file.txt"),
        ([Path("/base/x")], [Path("/head/x")]),
        (Point(1.0, seen=1), Point(1.0, seen=2)),
        (torch.ones(3), torch.ones(3) + 1e-6),
        (torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)),
        (torch.ones(2, dtype=torch.bfloat16), torch.full((2,), 1.0078, dtype=torch.bfloat16)),
        (np.array([np.nan, 1.0]), np.array([np.nan, 1.0 + 1e-12])),
        (np.array(["2026-01-01", "NaT"], "M8[ns]"), np.array(["2026-01-01", "NaT"], "M8[ns]")),
        (
            pd.DataFrame({"at": [pd.NaT, pd.Timestamp(0)]}),
            pd.DataFrame({"at": [pd.NaT, pd.Timestamp(0)]}),
        ),
    ],
    ids=lambda value: "",
)
def test_rounding_order_and_the_place_of_the_tree_make_no_difference(ours, theirs, tmp_path):
    assert differ(ours, theirs, tmp_path) == ""


@pytest.mark.parametrize("value", [Plain(), Own(1.0), [Plain()], {"a": Own(1.0)}, lambda: 0])
def test_an_object_whose_equality_only_its_own_process_knows_is_not_compared(value, tmp_path):
    with pytest.raises(
        Unmeasured, match=r"it returns or holds a (Plain|Own|function), which is no plain data"
    ):
        results.keep(value, str(tmp_path / "kept"), "")


def test_what_holds_itself_is_not_compared(tmp_path):
    cycle = []
    cycle.append(cycle)
    with pytest.raises(Unmeasured, match="nested too deeply, or within itself"):
        results.keep(cycle, str(tmp_path / "kept"), "")


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


def test_a_file_that_is_no_plain_data_is_refused_and_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "kept"
    inside = results.Array("ndarray", "object", "|O", (1,), pickle.dumps(Bomb()))
    file.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(Unmeasured, match="cannot be read here"):
        results.compare(1, str(file), "")
    with pytest.raises(ValueError, match="cannot create an OBJECT array"):
        results.difference_of_arrays(inside, inside)
    assert not Path("exploded").exists()


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.tuples(inner, inner)
        | st.frozensets(st.integers())
    ),
)


@pytest.mark.long
@given(plain)
def test_every_plain_value_equals_itself(value):
    again = results.msgpack.decode(
        results.msgpack.encode(results.as_node(value, "\0")), type=results.Node
    )
    assert results.difference(again, results.as_node(value, "\0")) == ""
