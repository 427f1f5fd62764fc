"""Times of laps: in pairs, and taken to one speed of the core."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.statistics.laps import by_pair, sweep_slope
from attnbench.analysis.statistics.ratios import Ratios
from attnbench.records import Mode, Part, Run, Sample, Sweep
from tests import sweeps

SERIES = ("fastformer", "linformer", "bigbird")
LENGTHS = (256, 512, 1024)


@given(st.dictionaries(st.integers(0, 9), st.floats(1e-6, 1e3), max_size=10))
def test_a_pair_of_laps_is_the_faster_of_the_two_and_needs_both(seconds: dict[int, float]):
    samples = [Sample(2, 2 * s, 0, None, 0, 0, 0, lap) for lap, s in seconds.items()]
    found = by_pair(samples)
    assert set(found) == {p for p in range(5) if {2 * p, 2 * p + 1} <= seconds.keys()}
    for pair, faster in found.items():
        assert faster == pytest.approx(min(seconds[2 * pair], seconds[2 * pair + 1]))


def test_a_sample_on_a_gpu_counts_by_device_time():
    samples = [Sample(2, 9.0, 9.0, 4.0, 0, 0, 0, lap) for lap in (0, 1)]
    assert by_pair(samples) == {0: 2.0}


def beside_probes(slope: float, seed: int = 0, probed: bool = True) -> Sweep:
    """Laps on a core whose speed varies by 10 %, which they follow by a slope, beside probes."""
    rng = np.random.default_rng(seed)

    def beside(run: Run) -> Run:
        slow = 0.1 * rng.standard_normal(12)
        seconds = np.exp(slope * slow + 0.02 * rng.standard_normal(12))
        probes = 0.0002 * np.exp(slow + 0.02 * rng.standard_normal(12))
        taken = [
            Sample(1, s, s, None, s, 0, 0, lap, pace_s=probe if probed else None)
            for lap, (s, probe) in enumerate(zip(seconds.tolist(), probes.tolist(), strict=True))
        ]
        return replace(run, samples=tuple(taken))

    plain = sweeps.sweep(SERIES, lengths=LENGTHS, modes=(Mode.INFERENCE,), rounds=3)
    return sweeps.altered(plain, beside, Part.TIME)


def slope_of(whole: Sweep) -> float:
    return sweep_slope(whole.runs, {line.case.key: line.block for line in whole.plan})


@pytest.mark.parametrize("slope", [0.0, 0.4, 0.9])
def test_each_sweep_estimates_how_far_its_laps_follow_the_probes_of_the_core(slope: float):
    found = [slope_of(beside_probes(slope, seed)) for seed in range(10)]
    assert np.mean(found) == pytest.approx(slope, abs=0.1)
    assert np.std(found) < 0.1
    assert slope_of(beside_probes(slope, probed=False)) == 0.0


def test_laps_are_taken_to_one_speed_of_the_core_as_far_as_probes_tell_it():
    """No ratio is biased, and none becomes less certain where they tell nothing."""
    for slope, gain in ((0.0, 0.9), (0.9, 2.0)):
        logs, errors = {True: [], False: []}, {True: [], False: []}
        for seed in range(40):
            for probed in (True, False):
                means = Ratios(beside_probes(slope, seed, probed)).means
                logs[probed].append(means.log.mean())
                errors[probed].append(np.median(means.se))
        assert abs(np.mean(logs[True])) < 3 * np.std(logs[True]) / 40**0.5
        assert np.mean(errors[False]) > gain * np.mean(errors[True])


def test_one_series_alone_or_a_few_laps_tell_no_slope():
    whole = beside_probes(0.9)
    alone = [run for run in whole.runs if '"fastformer"' in run.case]
    assert slope_of(replace(whole, runs=tuple(alone))) == 0.0
    few = sweeps.altered(whole, lambda run: replace(run, samples=run.samples[:2]), Part.TIME)
    assert slope_of(few) == 0.0
