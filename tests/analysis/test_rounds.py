"""The statistics of repeated rounds: properties, and simulated coverage."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.statistics.estimate import half_widths
from attnbench.analysis.statistics.ratios import (
    final,
    independent,
    means,
    numbered,
    processes,
    so_far,
)
from attnbench.records import Origin, Outcome, Part, Run, Sample, Shard
from tests.benchmarks.coverage import (
    ONE_LAYOUT,
    SITUATIONS,
    UNSTEADY,
    simulated,
    stopped,
    until_decided,
)

SAMPLE = Sample(1, 1.0, 1.0, None, 1.0, 0.0, 0.0, 0)
GRID = 1024  # values are multiples of 1/GRID, so that scaling and shifting them is exact


@st.composite
def measured(draw, most_series: int = 4) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Log ratios [K, P, R], some of them missing, and the pairs of series."""
    pairs = list(combinations(range(draw(st.integers(2, most_series))), 2))
    shape = (draw(st.integers(1, 4)), len(pairs), draw(st.integers(1, 4)))
    value = st.integers(-GRID, GRID).map(lambda n: n / GRID) | st.just(np.nan)
    size = int(np.prod(shape))
    values = draw(st.lists(value, min_size=size, max_size=size))
    return np.array(values).reshape(shape), pairs


def correlated(blocks: int, rounds: int, rho: float, seed: int = 0) -> np.ndarray:
    """Log ratios of one pair whose blocks correlate by about ρ within a round."""
    rng = np.random.default_rng(seed)
    common, own = rng.standard_normal((1, 1, rounds)), rng.standard_normal((blocks, 1, rounds))
    return rho**0.5 * common + (1 - rho) ** 0.5 * own


def freedom(logs: np.ndarray, pairs=((0, 1),)) -> float:
    return float(np.nanmax(means(logs, pairs).df))


@given(measured())
def test_measured_ratios_have_a_mean_and_repeated_ones_an_error(given_):
    logs, pairs = given_
    found = means(logs, pairs)
    known = np.isfinite(logs)
    assert (np.isfinite(found.log) == known.any(2)).all()
    repeated = bool((known.sum(2) > 1).any())
    for values in (found.se, found.df):
        assert (np.isfinite(values) == (known.any(2) & repeated)).all()
    there = np.isfinite(found.df)
    assert (found.se[there] >= 0).all()
    assert (found.df[there] >= 1).all()
    assert (found.df[there] <= max(1, np.maximum(known.sum(2) - 1, 0).sum())).all()
    assert found.log[known.any(2)] == pytest.approx(
        [np.mean(row[np.isfinite(row)]) for row in logs[known.any(2)]]
    )


@given(
    measured(),
    st.sampled_from([-1.0, 0.25, -8.0]),
    st.integers(-GRID, GRID),
    st.randoms(use_true_random=False),
)
def test_size_sign_and_order_of_ratios_change_errors_only_in_size(given_, factor, shift, draw):
    logs, pairs = given_
    rounds, blocks = list(range(logs.shape[2])), list(range(logs.shape[0]))
    draw.shuffle(rounds)
    draw.shuffle(blocks)
    found, other = means(logs, pairs), means((factor * logs + shift)[blocks][:, :, rounds], pairs)
    assert other.log == pytest.approx(factor * found.log[blocks] + shift, nan_ok=True)
    assert other.se == pytest.approx(abs(factor) * found.se[blocks], nan_ok=True, abs=1e-9)
    assert other.df == pytest.approx(found.df[blocks], nan_ok=True)


def test_one_pair_in_one_block_has_the_textbook_error_of_a_mean():
    row = np.array([0.1, 0.4, -0.2, 0.3, 0.25])
    found = means(row[None, None], [(0, 1)])
    assert found.se.item() == pytest.approx(row.std(ddof=1) / len(row) ** 0.5)
    assert found.df.item() == len(row) - 1


def test_blocks_that_share_process_effects_count_as_one_and_others_add():
    alike, apart = correlated(8, 4, rho=1.0), correlated(8, 4, rho=0.0)
    assert freedom(alike) == pytest.approx(3)
    assert 12 < freedom(apart) <= 24


def test_a_further_series_adds_one_contrast_and_not_one_per_pair():
    rng = np.random.default_rng(1)
    series = rng.standard_normal((1, 4, 5))
    pairs = list(combinations(range(4), 2))
    logs = np.stack([series[:, a] - series[:, b] for a, b in pairs], 1)
    assert freedom(logs, pairs) <= (4 - 1) * (5 - 1)


def test_missing_rounds_do_not_hide_what_the_other_blocks_share():
    logs = correlated(4, 6, rho=1.0)
    for block in range(3):
        logs[block, 0, block] = np.nan
    # shifting rounds against one another would make blocks that share all process effects look
    # independent, with up to 17 degrees of freedom
    assert freedom(logs) < 6


def test_a_series_in_few_blocks_adds_degrees_of_freedom_only_there():
    rng = np.random.default_rng(2)
    pairs = [(0, 1), (0, 2), (1, 2)]
    series = rng.standard_normal((8, 3, 3))
    series[1:, 2] = np.nan
    logs = np.stack([series[:, a] - series[:, b] for a, b in pairs], 1)
    residuals = np.nan_to_num(logs - np.where(np.isnan(logs), 0, logs).mean(2)[:, :, None])
    dfs = np.maximum(np.isfinite(logs).sum(2) - 1, 0)
    assert independent(residuals, dfs, pairs) <= (8 + 1) * (3 - 1)


USUAL = "all"  # that vary; each alone is long


# reports/coverage.md has what 2,000 sweeps give: 94 to 96 %
@pytest.mark.parametrize(
    ("series", "rounds", "sweeps", "name"),
    [
        pytest.param(*sizes, name, marks=() if name == USUAL else pytest.mark.long)
        for sizes in ((2, 3, 1500), (2, 8, 500), (4, 3, 500))
        for name in SITUATIONS
        if name not in (UNSTEADY, ONE_LAYOUT)
    ],
)
def test_intervals_cover_the_truth_as_often_as_claimed(
    series: int, rounds: int, sweeps: int, name: str
):
    held, _ = simulated(SITUATIONS[name], series, rounds, sweeps)
    assert 0.93 < held.mean() < 0.97


def test_intervals_of_a_single_layout_would_contain_the_truth_in_half_of_sweeps():
    held, _ = simulated(SITUATIONS[ONE_LAYOUT], 2, 8, 200)
    assert held.mean() < 0.6


@pytest.mark.parametrize(("series", "blocks", "shards"), [(2, 8, 3), (4, 20, 2)])
def test_intervals_of_a_divided_sweep_contain_the_truth(series, blocks, shards):
    """Each shard has processes of its own, which differ by twice the noise."""
    rng = np.random.default_rng(0)
    cases = {f"{k}": f"{k}" for k in range(blocks)}
    runs = [
        Run(case=key, part=Part.TIME, round=r, outcome=Outcome.OK, samples=(SAMPLE,),
            origin=Origin(shard=Shard(1 + int(key) % shards, shards)))
        for key in cases for r in range(3)
    ]  # fmt: skip
    found = processes(runs, cases)
    sets, pairs = numbered(found.values()), list(combinations(range(series), 2))
    assert len(sets) == 3 * shards
    held = []
    for _ in range(120):
        process = 0.01 * rng.standard_normal((series, len(sets)))
        logs = np.full((blocks, len(pairs), len(sets)), np.nan)
        for (key, _), own in found.items():
            seconds = process[:, sets[own]] + 0.005 * rng.standard_normal(series)
            logs[int(key), :, sets[own]] = [seconds[a] - seconds[b] for a, b in pairs]
        log, se, df, _ = (values.ravel() for values in means(logs, pairs))
        held += [np.abs(log) <= half_widths(se, df)]
    assert 0.935 < np.mean(held) < 0.985


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == USUAL else pytest.mark.long)
        for name in ("drift", "processes", "all")
    ],
)
def test_stopping_at_a_precision_keeps_the_coverage(name: str):
    held, _, rounds, _ = stopped(SITUATIONS[name], 2, 0.7, sweeps=200)
    assert 4 <= rounds.min() < rounds.mean() < 12
    assert 0.925 < held.mean() < 0.975


@pytest.mark.parametrize(
    ("truth", "least"),
    [(1.3, 0.925), (1.0, 0.925), (1.1, 0.87)],
)
def test_stopping_where_a_ratio_is_decided_costs_coverage_at_the_edge_alone(truth, least):
    held, _, rounds, mean = until_decided(SITUATIONS[USUAL], truth, sweeps=150)
    assert rounds.min() == 3 or truth == 1.0
    assert least < held.mean() < 0.975
    assert mean == pytest.approx(truth, rel=0.02)


def test_where_precision_ended_a_block_the_degrees_of_freedom_are_those_of_the_first_rounds():
    logs = correlated(8, 12, 0.0)
    free, never = final(logs, [(0, 1)], None), final(logs, [(0, 1)], 1e-6)
    assert (never.df == free.df).all()
    ended = final(logs, [(0, 1)], 10.0)
    assert (ended.df < free.df).all()
    assert (ended.log == free.log).all()


def test_a_block_is_known_when_its_widest_ratio_is_and_not_before_four_rounds():
    laps = {
        (name, "short"): {r: {0: 1.0 + 0.001 * r * i} for r in range(4)}
        for i, name in enumerate("abc")
    }
    found = so_far(laps)[0]["short"]
    assert found.rounds == 4
    assert found.reaches(found.half * 1.01)
    assert not found.reaches(found.half * 0.99)
    three = {key: {r: own[r] for r in range(3)} for key, own in laps.items()}
    assert not so_far(three)[0]["short"].reaches(0.5)
    single = {key: {0: own[0]} for key, own in laps.items()}
    assert so_far(single)[0]["short"].half == float("inf")
    assert so_far({("a", "short"): laps["a", "short"]}) == ({}, {}, {})


def test_a_ratio_is_decided_once_its_interval_excludes_a_tenth_either_way():
    """Of three series two tie, and the third takes twice as long."""
    rng = np.random.default_rng(0)
    noise = np.exp(0.01 * rng.standard_normal((3, 3)))
    laps = {
        (name, "short"): {r: {0: took * noise[i, r]} for r in range(3)}
        for i, (name, took) in enumerate({"a": 1.0, "b": 1.02, "c": 2.0}.items())
    }
    certain, every, undecided = so_far(laps)
    assert every.keys() == {("a", "short"), ("b", "short"), ("c", "short")}
    assert undecided.keys() == {("a", "short"), ("b", "short")}
    assert undecided["a", "short"] == undecided["b", "short"] <= every["a", "short"]
    assert max(every.values()) == pytest.approx(certain["short"].half)
    single = {key: {0: own[0]} for key, own in laps.items()}
    assert set(so_far(single)[2].values()) == {float("inf")}
