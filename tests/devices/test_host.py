"""What others take of a machine, from the kernel's own counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.devices.host import taken_cores

TICKS = st.integers(0, 10_000)
FIELDS = st.tuples(*[TICKS] * 10)  # user to guest_nice, as /proc/stat has them


def stat(cores):
    """A /proc/stat of these cores."""
    lines = ["cpu  " + " ".join("1" * 10), "intr 5 0 1", "ctxt 3"]
    lines[1:1] = [f"cpu{number} {' '.join(map(str, ticks))}" for number, ticks in cores.items()]
    return "\n".join(lines) + "\n"


def row(busy=0, idle=0, stolen=0):
    return (busy, 0, 0, idle, 0, 0, 0, stolen, 0, 0)


@pytest.mark.parametrize(
    ("later", "share"),
    [
        (row(idle=25), 0.0),
        (row(busy=25), 1.0),
        (row(busy=5, idle=20), 0.2),
        (row(stolen=5, idle=20), 0.2),
        (row(), 0.0),
    ],
)
def test_the_share_of_a_core_is_the_time_it_was_not_idle(later, share):
    assert taken_cores(stat({3: row()}), stat({3: later})) == {3: pytest.approx(share)}


@given(st.dictionaries(st.integers(0, 300), st.tuples(FIELDS, FIELDS)))
def test_a_share_lies_between_none_and_all_of_a_core(cores):
    before = {core: early for core, (early, _) in cores.items()}
    after = {core: late for core, (_, late) in cores.items()}
    found = taken_cores(stat(before), stat(after))
    assert found.keys() == cores.keys()
    assert all(0 <= share <= 1 for share in found.values())
