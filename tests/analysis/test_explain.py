"""A difference of times is divided without a remainder, and the crossover follows from ratios."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.explain import SideTimings, crossover, raced, split
from attnbench.records import Clock, Region, Sample
from attnbench.statistics.curves import LogCurve

TIMES = st.floats(1e-6, 10)
MEASURED = (*Region,)[:6]  # by marks


@st.composite
def sides(draw):
    """What a mechanism gave in a round."""
    laps = 2 * draw(st.integers(1, 3))
    times = [draw(TIMES) for _ in range(laps)]
    return SideTimings(
        whole=tuple(sample(s, lap) for lap, s in enumerate(times)),
        regions=tuple(
            draw(st.dictionaries(st.sampled_from(MEASURED), TIMES, min_size=1)) for _ in times
        ),
        operators=draw(st.dictionaries(st.sampled_from(MEASURED), st.integers(0, 10_000))),
        launch_s=draw(st.floats(0, 1e-5)),
        lumped=False,
    )


def sample(seconds, lap, device_s=None, unheld_s=None):
    return Sample(
        *(1, seconds, seconds, device_s, seconds, 0.0, 0.0, lap),
        unheld_s=unheld_s,
        clock=Clock.CPU,
    )


@given(side=sides())
def test_the_parts_add_up_to_the_whole(side):
    faster = [
        min(a.seconds, b.seconds) for a, b in zip(side.whole[::2], side.whole[1::2], strict=True)
    ]
    assert sum(side.seconds.values()) == pytest.approx(np.mean(faster))


@given(rounds=st.lists(st.tuples(sides(), sides()), min_size=1, max_size=4))
def test_the_differences_add_up_and_turn_with_the_sides(rounds):
    rows = split(rounds).set_index("part")
    turned = split([(b, a) for a, b in rounds]).set_index("part")
    for column in ("a_s", "b_s", "more_s"):
        *parts, whole = rows[column]
        assert sum(parts) == pytest.approx(whole, abs=1e-9)
    np.testing.assert_allclose(rows["more_s"], -turned["more_s"])
    np.testing.assert_allclose(rows["low_s"], -turned["high_s"])
    assert rows["low_s"].isna().all() == (len(rounds) == 1)


def test_launches_are_what_their_operators_cost_in_each_part():
    laps = ({Region.CORE: 1.0, Region.SHELL: 0.5},) * 2
    side = SideTimings(
        whole=(sample(1.6, 0), sample(1.7, 1)),
        regions=laps,
        operators={Region.CORE: 100, Region.SHELL: 10},
        launch_s=0.001,
        lumped=False,
    )
    found = side.seconds
    assert found[Region.CORE] == pytest.approx(0.9)
    assert found[Region.SHELL] == pytest.approx(0.49)
    assert found[Region.LAUNCHES] == pytest.approx(0.11)
    assert found[Region.REST] == pytest.approx(0.1)


def test_on_a_device_launches_are_what_it_waits_for():
    whole = tuple(sample(5.0, lap, device_s=1.0, unheld_s=1.25) for lap in range(2))
    laps = ({Region.CORE: 1.0},) * 2
    side = SideTimings(whole=whole, regions=laps, operators={}, launch_s=0.0, lumped=False)
    assert side.seconds[Region.LAUNCHES] == pytest.approx(0.25)
    assert sum(side.seconds.values()) == pytest.approx(1.25)


def ratios(*logs, error=0.01):
    lengths = 1024.0 * 2 ** np.arange(len(logs))
    spread = np.full(len(logs), error)
    return LogCurve(lengths=lengths, logs=np.array(logs), errors=spread, df=np.full(len(logs), 9.0))


def test_a_crossover_between_the_lengths_is_interpolated():
    faster, (point, low, high) = crossover(ratios(1.0, 0.5, -0.5))
    assert faster == "a"
    assert low < point < high
    assert point == pytest.approx(2048 * 2**0.5)
    assert crossover(ratios(-1.0, -0.5, 0.5))[0] == "b"


def test_one_beyond_them_is_predicted_from_the_last_slope():
    faster, (point, low, _) = crossover(ratios(1.5, 1.0, 0.5))
    assert (faster, point) == ("a", pytest.approx(8192))
    assert math.isnan(low)
    assert crossover(ratios(-1.5, -1.0, -0.5))[0] == "b"


@pytest.mark.parametrize("logs", [(0.5, 0.5), (0.5, 1.0), (0.501, 0.5)])
def test_none_is_predicted_where_the_curves_do_not_meet_soon(logs):
    faster, (point, *_) = crossover(ratios(*logs, error=1e-5))
    assert (faster, point) == ("a", math.inf)


def test_without_certainty_nothing_is_said():
    assert crossover(ratios(0.1, -0.1, error=1.0))[0] is None
    assert crossover(ratios(0.1, -0.1, error=math.nan))[0] is None
    assert crossover(ratios(1.0))[0] is None, "one length shows no slope"


def test_ratios_are_those_of_laps_in_turns():
    def both(a, b):
        return tuple(SideTimings(whole=(sample(s, 0), sample(2 * s, 1))) for s in (a, b))

    found = raced({64: {0: both(3.0, 1.0), 1: both(3.0, 1.1)}, 32: {0: both(1.0, 2.0)}})
    assert found.whole == [32, 64]
    np.testing.assert_allclose(found.logs, [math.log(0.5), math.log(9 / 1.1) / 2])
    assert found.half[0] > found.half[1] > 0, "of one round, by the variance of the others"
