"""Heads of a mechanism's own, which need not fill the width of the model."""

from dataclasses import asdict

import pytest

from attnbench.attention.heads import HeadsWorkload, OwnHeads
from attnbench.records import Workload

W = Workload(batch=1, seq_len=8, width=96, heads=4, causal=True)


def test_without_a_width_heads_are_those_of_the_workload():
    assert OwnHeads().sized(W) is W
    assert W.head_width == 24


@pytest.mark.parametrize(("heads", "found"), [(None, 4), (3, 3)])
def test_a_width_of_its_own_need_not_fill_that_of_the_model(heads, found):
    sized = OwnHeads(heads=heads, head_width=64).sized(W)
    assert isinstance(sized, HeadsWorkload)
    assert (sized.heads, sized.head_width, sized.inner_width, sized.width) == (
        *(found, 64, 64 * found),
        96,
    )
    others = asdict(W) | {"heads": found, "own_width": 64}
    assert asdict(sized) == others


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"heads": 3}, "heads is given without head_width"),
        ({"head_width": 0}, "head_width is 0; it must be at least 1"),
        ({"heads": 0, "head_width": 8}, "heads is 0; it must be at least 1"),
    ],
)
def test_heads_that_cannot_be_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        OwnHeads(**options)
