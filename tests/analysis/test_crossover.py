import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.scaling import Crossover, CrossoverKind, crossovers, find_crossover
from attnbench.analysis.statistics.curves import LogCurve
from attnbench.analysis.summary import summary
from tests.sweeps import COSTS, sweep

LENGTHS = 2.0 ** np.arange(7, 17)
NONE = np.zeros(10)


def crossing(lengths, logs, errors, df: float) -> Crossover:
    curve = LogCurve(lengths=lengths, logs=logs, errors=errors, df=np.full(len(logs), df))
    return find_crossover(curve)


def test_a_straight_crossing_is_found_between_the_lengths_and_exact_metrics_cross_at_a_point():
    found = crossing(LENGTHS, np.log(700 / LENGTHS), NONE + 0.05, 40)
    assert found.answer is CrossoverKind.FROM
    assert found.length == pytest.approx(700)
    assert found.low < 700 < found.high
    exact = crossing(LENGTHS, np.log(700 / LENGTHS), NONE, np.inf)
    assert exact.low == exact.length == exact.high


@pytest.mark.parametrize("at", [128, 512, 3000])
def test_a_crossing_at_a_measured_length_is_that_length(at):
    """The exponential of the logarithm of 128 is 127.99999999999996."""
    lengths = np.array([128.0, 512.0, 3000.0, 8192.0])
    found = crossing(lengths, np.sign(at - lengths), NONE[:4], np.inf)
    assert (found.low, found.length, found.high) == (at, at, at)
    within = crossing(lengths, NONE[:4] - 0.1, np.array([0.2, 0.1, 0.0, 0.0]), np.inf)
    assert within.length == 128


@pytest.mark.parametrize(
    ("logs", "errors", "answer"),
    [
        (NONE - 1, NONE + 0.1, CrossoverKind.ALWAYS),
        (NONE + 1, NONE + 0.1, CrossoverKind.NEVER),
        (np.log(LENGTHS / 700), NONE, CrossoverKind.NEVER),
        (NONE, NONE, CrossoverKind.NEVER),  # equal costs
        (NONE - 0.1, NONE + 0.5, CrossoverKind.UNCLEAR),
        (NONE - 0.1, NONE * np.nan, CrossoverKind.UNCLEAR),
        (NONE[:0], NONE[:0], CrossoverKind.UNCLEAR),
    ],
)
def test_answers_without_a_length(logs, errors, answer):
    assert crossing(LENGTHS[: len(logs)], logs, errors, 40).answer is answer


def test_only_the_last_crossing_counts():
    differences = np.array([-1, -1, 1, 1, -1, -1, -1, -1, -1, -1.0])
    found = crossing(LENGTHS, differences, NONE, np.inf)
    assert 1024 < found.length < 2048


@given(
    st.lists(st.floats(-3, 3), min_size=2, max_size=10),
    st.floats(0, 2),
    st.floats(1, 100),
)
def test_the_interval_is_in_order_and_within_the_lengths(values: list[float], error: float, df):
    lengths = LENGTHS[: len(values)]
    found = crossing(lengths, np.array(values), np.full(len(values), error), df)
    if found.answer is CrossoverKind.FROM:
        slack = 1 + 1e-9
        assert lengths[0] <= found.low * slack
        assert found.low <= found.length * slack
        assert found.length <= found.high * slack
        assert found.high <= lengths[-1] * slack


def test_intervals_of_crossings_cover_the_truth():
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        noise = 0.05 * rng.standard_normal(10)
        found = crossing(LENGTHS, np.log(700 / LENGTHS) + noise, NONE + 0.05, 1e6)
        held.append(found.low <= 700 <= found.high)
    assert 0.92 < np.mean(held) <= 1.0


def test_a_sweep_finds_the_true_crossing():
    found = crossovers(summary(sweep(("longformer", "transformer"))))
    row = found[(found["series"] == "longformer:eager") & (found["mode"] == "inference")].iloc[0]
    constant, growing = COSTS["transformer"]
    # linear interpolation of a convex curve finds it a little early
    assert row["length"] == pytest.approx((COSTS["longformer"][0] - constant) / growing, rel=0.15)
    back = found[(found["series"] == "transformer:eager") & (found["mode"] == "inference")]
    assert back.iloc[0]["answer"] == CrossoverKind.NEVER
