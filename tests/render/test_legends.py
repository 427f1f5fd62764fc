from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.render.panels import spread

WISHES = st.lists(st.tuples(st.floats(0, 100), st.floats(1, 8)), min_size=1, max_size=30)


@given(WISHES)
def test_labels_keep_their_order_and_their_distance_within_the_bounds(wishes):
    wanted, heights = zip(*wishes, strict=True)
    centres = spread(wanted, heights, 0.0, 100.0)
    squeeze = min(1.0, 100 / sum(heights))
    order = sorted(range(len(wanted)), key=lambda i: centres[i])
    assert [wanted[i] for i in order] == sorted(wanted)
    for below, above in pairwise(order):
        gap = (heights[below] + heights[above]) / 2 * squeeze
        assert centres[above] - centres[below] >= gap - 1e-6
    for centre, height in zip(centres, heights, strict=True):
        assert height * squeeze / 2 - 1e-6 <= centre <= 100 - height * squeeze / 2 + 1e-6


def test_labels_with_room_stay_at_their_wanted_positions():
    assert spread([10, 50, 90], [8, 8, 8], 0, 100) == pytest.approx([10, 50, 90])


def test_labels_that_touch_move_apart_evenly():
    assert spread([50, 50], [10, 10], 0, 100) == pytest.approx([45, 55])
    assert spread([0, 0], [10, 10], 0, 100) == pytest.approx([5, 15])


def test_no_labels_give_no_positions():
    assert spread([], [], 0, 100) == []
