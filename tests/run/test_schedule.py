"""Which cases of a block race together when memory is short."""

from hypothesis import given
from hypothesis import strategies as st

from attnbench.run.schedule import SHARED, groups

MEMORY = 1000.0

needs = st.lists(st.floats(0, MEMORY), min_size=1, max_size=12)


@given(needs, st.data())
def test_every_group_fits_or_is_alone_and_the_anchor_links_the_others(needs, data):
    lines = list(range(len(needs)))
    anchor = data.draw(st.none() | st.sampled_from(lines))
    room = SHARED * MEMORY
    found = groups(lines, needs.__getitem__, room, anchor)
    if anchor is None:
        anchor = min(lines, key=needs.__getitem__)
    for group in found:
        assert len(set(group)) == len(group)
        total = sum(needs[line] for line in group)
        assert len(group) == 1 or total <= room or (len(group) == 2 and total <= MEMORY)
        assert len(group) == 1 or anchor in group, "every race of several has the anchor"
    assert set().union(*found) == set(lines)
    others = [line for group in found for line in group if line != anchor]
    assert len(others) == len(set(others)), "only the anchor runs more than once"
    for group in found:
        if len(group) == 1 and group != [anchor]:
            assert needs[anchor] + needs[group[0]] > MEMORY, "alone only where it must be"


@given(needs)
def test_what_fits_together_is_one_race(needs):
    lines = list(range(len(needs)))
    total = sum(needs)
    assert len(groups(lines, needs.__getitem__, 2 * total + 1)) == 1
