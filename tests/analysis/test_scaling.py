import numpy as np
import pandas as pd
import pytest

from attnbench.analysis.scaling import Tail, scaling
from attnbench.analysis.summary import summary
from tests.sweeps import sweep


def curve(exponent: float, error: float = 0.0, seed: int = 0, bend: float = 0.0) -> pd.DataFrame:
    """Ten lengths at a constant number of tokens, with a known exponent."""
    rng = np.random.default_rng(seed)
    lengths = 2.0 ** np.arange(7, 17)
    batch = np.maximum(1, 8192 // lengths)
    x = np.log(lengths)
    logs = exponent * x + bend * (x - x[0]) ** 2 + error * rng.standard_normal(10)
    return pd.DataFrame(
        {
            "series": "a:eager",
            "mechanism": "a",
            "mode": "inference",
            "seq_len": lengths.astype(int),
            "batch": batch,
            "time_s": np.exp(logs - 20) * batch,
            "time_log_se": error,
            "time_df": 40.0,
            "allocated_peak_bytes": lengths * batch * 100,
            "flops": lengths**2 * batch,
        }
    )


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_the_exponent_of_a_power_law_is_recovered(exponent: float):
    fit = scaling(curve(exponent), ("time_s",)).iloc[0]
    assert fit["exponent"] == pytest.approx(exponent, abs=1e-9)
    assert (fit["from_len"], fit["to_len"], fit["lengths"]) == (128, 65_536, 10)
    assert fit["tail"] == Tail.STRAIGHT


def test_intervals_of_exponents_cover_the_truth():
    fits = [scaling(curve(1.3, 0.02, seed), ("time_s",)).iloc[0] for seed in range(60)]
    held = [fit["low"] <= 1.3 <= fit["high"] for fit in fits]
    # the choice of the tail costs a little
    assert 0.88 < np.mean(held) <= 1.0


@pytest.mark.parametrize(
    ("change", "error", "tail", "lengths"),
    [
        (0.09, 0.0, Tail.STRAIGHT, 10),
        (0.14, 0.0, Tail.STRAIGHT, 7),  # over six doublings it changes by 0.093
        (1.25, 1e-4, Tail.BENDING, 4),
    ],
)
def test_a_tail_is_straight_while_its_slope_changes_by_at_most_a_tenth(
    change, error, tail, lengths
):
    """Over nine doublings the slope changes by so much."""
    rows = curve(1.0, error, bend=change / (2 * np.log(2**9)))
    fit = scaling(rows, ("time_s",)).iloc[0]
    assert (fit["tail"], fit["lengths"]) == (tail, lengths)


def test_only_the_straight_tail_counts():
    rows = curve(2.0, 0.002)
    rows.loc[:2, "time_s"] *= [30.0, 8.0, 2.5]
    fit = scaling(rows, ("time_s",)).iloc[0]
    assert fit["from_len"] >= 512
    assert fit["exponent"] == pytest.approx(2.0, abs=0.02)


def test_counted_metrics_give_the_range_of_slopes():
    fits = scaling(curve(1.0)).set_index("metric")
    assert fits.loc["flops", "exponent"] == pytest.approx(2)
    assert fits.loc["flops", "low"] == pytest.approx(2)
    assert fits.loc["allocated_peak_bytes", "high"] == pytest.approx(1)


def test_without_enough_numbers_there_is_no_exponent_and_without_errors_no_interval():
    for rows in (curve(1.0)[:3], curve(1.0).assign(time_s=np.nan)):
        fit = scaling(rows, ("time_s",)).iloc[0]
        assert fit["tail"] == Tail.SHORT
        assert np.isnan(fit["exponent"])
    fit = scaling(curve(1.0).assign(time_log_se=np.nan, time_df=np.nan), ("time_s",)).iloc[0]
    assert fit["exponent"] == pytest.approx(1)
    assert np.isnan(fit["low"])


def test_softmax_attention_tends_to_the_square_and_the_others_do_not():
    fits = scaling(summary(sweep())).set_index(["mechanism", "mode", "metric"])["exponent"]
    assert fits["transformer", "inference", "time_s"] > 1.7
    assert fits["fastformer", "inference", "time_s"] == pytest.approx(1, abs=0.05)


def test_the_slopes_at_both_ends_lie_between_least_and_most():
    """A bend of 0.2 from the first to the last length, which noise hides in most sweeps."""
    bend = 0.2 / (2 * np.log(2**9))
    held = []
    for seed in range(60):
        fit = scaling(curve(1.0, 0.05, seed, bend), ("time_s",)).iloc[0]
        first, last = (1.0 + 2 * bend * np.log(fit[end] / 128) for end in ("from_len", "to_len"))
        held.append(fit["least"] <= first and last <= fit["most"])
        assert fit["least"] < fit["exponent"] < fit["most"]
    assert np.mean(held) > 0.88
    exact = scaling(curve(1.0), ("flops",)).iloc[0]
    assert (exact["least"], exact["most"]) == (exact["low"], exact["high"])
    assert np.isnan(scaling(curve(1.0)[:3], ("time_s",)).iloc[0]["least"])
