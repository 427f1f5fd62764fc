"""At which lengths one series is faster than another: the rule that all reports write from."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.concluding import direction
from attnbench.analysis.conclusions import Answer, Scope, Value
from attnbench.analysis.report import analyse
from attnbench.analysis.statistics.curves import LogCurve
from tests.sweeps import COSTS, sweep

LENGTHS = 2.0 ** np.arange(7, 17)
NONE = np.zeros(10)


def crossing(lengths, logs, errors, df: float, of_sweep=None) -> tuple[Answer, Value]:
    """The answer of log ratios with these standard errors, and its length.

    Without further lengths `of_sweep` all of the sweep were measured.
    """
    curve = LogCurve(lengths=lengths, logs=logs, errors=errors, df=np.full(len(logs), df))
    measured = tuple(map(int, lengths))
    whole = measured if of_sweep is None else tuple(map(int, of_sweep))
    return direction(curve, Scope(lengths=measured, of_sweep=whole))


def known(value):
    """The numbers of a value that are known, by name."""
    numbers = {"point": value.point, "low": value.low, "high": value.high}
    return {name: number for name, number in numbers.items() if not math.isnan(number)}


def test_a_straight_crossing_lies_between_two_measured_lengths():
    answer, value = crossing(LENGTHS, np.log(700 / LENGTHS), NONE + 0.05, 40)
    assert answer is Answer.FROM
    assert value.point == pytest.approx(700)
    assert (value.low, value.high) == (512, 1024)


@pytest.mark.parametrize(
    ("logs", "errors", "answer"),
    [
        (NONE - 1, NONE + 0.1, Answer.ALL),
        (NONE + 1, NONE + 0.1, Answer.NEVER),
        (NONE, NONE, Answer.NOT_KNOWN),  # equal costs
        (NONE - 0.1, NONE + 0.5, Answer.NOT_KNOWN),
        (NONE - 0.1, NONE * np.nan, Answer.NOT_KNOWN),
        (NONE[:0], NONE[:0], Answer.NOT_KNOWN),
    ],
)
def test_answers_without_a_length(logs, errors, answer):
    found, value = crossing(LENGTHS[: len(logs)], logs, errors, 40)
    assert (found, known(value)) == (answer, {})


@pytest.mark.parametrize(
    "measured", [LENGTHS[:1], LENGTHS[:2], LENGTHS[1:], LENGTHS[:-1], LENGTHS[[0, 1, -1]]]
)
@pytest.mark.parametrize(("sign", "answer"), [(-1, Answer.FASTER_AT), (1, Answer.SLOWER_AT)])
def test_always_and_never_need_three_lengths_and_every_length_of_the_sweep(measured, sign, answer):
    errors = np.full(len(measured), 0.1)
    logs = np.full(len(measured), float(sign))
    assert crossing(measured, logs, errors, 40, of_sweep=LENGTHS)[0] is answer


def test_only_the_last_crossing_counts():
    differences = np.array([-1, -1, 1, 1, -1, -1, -1, -1, -1, -1.0])
    answer, value = crossing(LENGTHS, differences, NONE, np.inf)
    assert answer is Answer.FROM
    assert 1024 < value.point < 2048


def test_what_is_faster_up_to_a_length_is_said_so():
    answer, value = crossing(LENGTHS, np.log(LENGTHS / 700), NONE + 0.05, 40)
    assert answer is Answer.UP_TO
    assert value.point == pytest.approx(700)


@given(
    st.lists(st.floats(-3, 3), min_size=2, max_size=10),
    st.floats(0, 2),
    st.floats(1, 100),
)
def test_the_length_lies_within_its_brackets_and_these_are_measured(values, error, df):
    lengths = LENGTHS[: len(values)]
    _, value = crossing(lengths, np.array(values), np.full(len(values), error), df)
    numbers = known(value)
    assert {numbers[end] for end in ("low", "high") if end in numbers} <= {*lengths}
    if "point" in numbers:
        slack = 1 + 1e-9
        assert value.low <= value.point * slack
        assert value.point <= value.high * slack


def test_brackets_of_crossings_hold_the_truth():
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        noise = 0.05 * rng.standard_normal(10)
        answer, value = crossing(LENGTHS, np.log(700 / LENGTHS) + noise, NONE + 0.05, 1e6)
        held.append(answer is Answer.FROM and value.low <= 700 <= value.high)
    assert np.mean(held) > 0.95


def test_a_sweep_finds_the_true_crossing():
    found = analyse(sweep(("longformer", "transformer"))).crossovers
    inference = found[found["mode"] == "inference"].set_index(["series", "other"])
    row = inference.loc[("longformer:eager", "transformer:eager")]
    constant, growing = COSTS["transformer"]
    # linear interpolation of a convex curve finds it a little early
    assert row["length"] == pytest.approx((COSTS["longformer"][0] - constant) / growing, rel=0.15)
    assert inference.loc[("transformer:eager", "longformer:eager")]["answer"] == Answer.UP_TO
