"""Which cases of a block race together when memory is short, and how often each runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.records import Settings
from attnbench.run.agenda import groups
from attnbench.run.race import Turns, turns

MEMORY, SHARED = 1000.0, 0.6

needs = st.lists(st.floats(0, MEMORY), min_size=1, max_size=12)


@given(needs, st.data())
def test_every_group_fits_or_is_alone_and_the_anchor_links_the_others(needs, data):
    lines = list(range(len(needs)))
    link = data.draw(st.none() | st.sampled_from(lines))
    room = SHARED * MEMORY
    waiting = [line for line in lines if line != link]
    found = groups(waiting, needs.__getitem__, room, MEMORY, link) if waiting else []
    assert link is None or [link] not in found, "it has raced before"
    if link is None:
        link = min(lines, key=needs.__getitem__)
    for group in found:
        assert len(set(group)) == len(group)
        total = sum(needs[line] for line in group)
        assert len(group) == 1 or total <= room or (len(group) == 2 and total <= MEMORY)
        assert len(group) == 1 or link in group, "every race of several has the link"
    assert set().union(*found) >= set(waiting)
    others = [line for group in found for line in group if line != link]
    assert len(others) == len(set(others)), "only the link runs more than once"
    for group in found:
        if len(group) == 1 and group != [link]:
            assert needs[link] + needs[group[0]] > MEMORY, "alone only where it must be"


@given(needs)
def test_what_fits_together_is_one_race(needs):
    lines = list(range(len(needs)))
    total = sum(needs)
    assert len(groups(lines, needs.__getitem__, 2 * total + 1, 4 * total + 1)) == 1


@pytest.mark.parametrize(
    ("iteration_s", "pairs", "iterations"),
    [(0.25, 2, 1), (0.09, 3, 1), (0.02, 6, 3), (0.001, 6, 82), (5.0, 1, 1)],
)
def test_the_laps_of_a_case_take_the_time_of_a_sample_and_are_at_least_two(
    iteration_s, pairs, iterations
):
    """Short ones are rehearsed within that time."""
    found = turns(iteration_s, Settings(sample_s=1.0))
    assert found == Turns(pairs=pairs, iterations=iterations, rehearsed=iteration_s < 0.1)
    assert found.total * iteration_s == pytest.approx(1.0, rel=0.15) or pairs == 1
