"""Conclusions in words: where one series is faster than another, and lengths in runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.conclusions import Answer, Value
from attnbench.analysis.statistics.verdict import Verdict
from attnbench.records.metrics import TABLE
from attnbench.report.phrases import between, ends, faster_at, in_order, listed, verdict_label
from tests.report.pairs import BOTH, SWEEP, pair


@pytest.mark.parametrize(
    ("conclusion", "text", "value"),
    [
        (pair("a", "b", Answer.ALL), "all", None),
        (pair("a", "b", Answer.NEVER), "never", None),
        (pair("a", "b", Answer.FASTER_AT, (128, 256)), "128 to 256", None),
        (pair("a", "b", Answer.SLOWER_AT, (128,)), "slower at 128", None),
        (pair("a", "b", Answer.FASTER_AT, (128, 512)), "128 and 512", None),
        (pair("a", "b", Answer.FROM, **BOTH), "from 300 [256, 512]", 300.0),
        (pair("a", "b", Answer.FROM, SWEEP[:3], **BOTH), "from 300 [256, 512] to 512", 300.0),
        (
            pair("a", "b", Answer.FROM, (128, 256, 1024), point=180.0, low=128.0, high=256.0),
            "from 180 [128, 256] to 256 and at 1,024",
            180.0,
        ),
        (pair("a", "b", Answer.FROM, high=256.0), "from ≤ 256", None),
        (pair("a", "b", Answer.UP_TO, **BOTH), "up to 300 [256, 512]", None),
        (pair("a", "b", Answer.UP_TO, SWEEP[1:], **BOTH), "from 256 up to 300 [256, 512]", None),
        (
            pair("a", "b", Answer.UP_TO, (128, 512, 1024), point=700.0, low=512.0, high=1024.0),
            "at 128 and from 512 up to 700 [512, 1,024]",
            None,
        ),
        (pair("a", "b", Answer.SLOWER_FROM, high=512.0), "slower from 512", None),
        (
            pair("a", "b", Answer.SLOWER_FROM, SWEEP[:3], high=256.0),
            "slower from 256 to 512",
            None,
        ),
        (
            pair("a", "b", Answer.SLOWER_FROM, (128, 512, 1024), high=128.0),
            "slower at 128 and 512 to 1,024",
            None,
        ),
        (pair("a", "b", Answer.NOT_KNOWN), "not known", None),
        (pair("a", "b", Answer.NOT_KNOWN, ()), "not known", None),
        (None, "–", None),
    ],
)
def test_where_one_is_faster_is_said_with_the_lengths_that_were_measured(conclusion, text, value):
    cell = faster_at(conclusion)
    assert (cell.text, cell.value) == (text, value)


def test_lengths_are_told_in_runs_of_neighbours():
    assert between((128, 256, 1024), (128, 256, 512, 1024)) == ["128 to 256", "1,024"]


def test_a_time_is_slower_and_not_larger():
    assert verdict_label(Verdict.SLOWER, TABLE["time_s"]) == "slower"
    assert verdict_label(Verdict.FASTER, TABLE["forward_s"]) == "faster"


@given(st.lists(st.sampled_from("abcdef"), max_size=5))
def test_a_list_is_read_as_one_with_a_single_and(items):
    text = in_order(items)
    assert text.replace(" and ", ", ").split(", ") == (items or [""])
    assert text.count(" and ") == (len(items) > 1)


@given(st.sets(st.sampled_from(SWEEP)))
def test_runs_of_neighbours_cover_the_lengths_and_no_other(lengths):
    texts = between(sorted(lengths), SWEEP)
    ends = [[int(end.replace(",", "")) for end in text.split(" to ")] for text in texts]
    told = {length for run in ends for length in SWEEP if run[0] <= length <= run[-1]}
    assert told == lengths
    assert len(texts) == sum(
        length in lengths and before not in lengths
        for before, length in zip((0, *SWEEP), SWEEP, strict=False)
    )


def test_all_conclusions_are_listed_with_their_lengths_as_json():
    made = listed([pair("a", "b", Answer.FROM, **BOTH), pair("b", "a", Answer.NOT_KNOWN, ())])
    first, second = (dict(zip(made.columns, row, strict=True)) for row in made.rows)
    assert (first["Series"].text, first["Compared with"].text) == ("a", "b")
    assert first["Value"][1:4] == (300.0, 256.0, 512.0)
    assert first["Measured at"].text == "[128, 256, 512, 1024]"
    assert (second["Answer"].text, second["Measured at"].text) == ("not known", "[]")
    assert second["Value"].value is None


def test_a_number_without_an_interval_has_no_ends():
    assert ends(Value()) == (None, None, None)
    assert ends(Value(high=256.0)) == (None, None, 256.0)
