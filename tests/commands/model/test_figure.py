"""The figure of a model's layers: bars by context, stacked by kind."""

import pytest

from attnbench.commands.model.costs import (
    DECODE,
    MeasuredAt,
)
from attnbench.commands.model.figure import colours_of, layer_figure
from tests.commands.model.costed import (
    KINDS,
    LENGTHS,
    POOLS,
    costs,
    kind,
    swept,
)


def test_the_figure_has_a_bar_for_each_kind_at_each_context():
    (axes,) = layer_figure(costs(swept(), (*KINDS, POOLS))).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert len(heights) == len(KINDS) * len(LENGTHS)
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches[len(LENGTHS) :]]
    sums = costs(swept()).times.sums
    # bars are of medians, whose sum is the median of sums where rounds differ by a factor alone
    assert tops == pytest.approx([1e3 * sums[MeasuredAt(DECODE, n)].point for n in LENGTHS])
    said = " ".join(text.get_text() for text in axes.figure.texts)
    assert not said or "Without 2 layers" in said


def said(figure):
    """The texts below a figure."""
    return " ".join(text.get_text() for text in figure.texts)


def test_feed_forwards_are_grey_the_darkest_first_and_others_as_their_mechanism():
    feeds = [kind(f"feed {i}", 1, "fnet")._replace(feeds=True) for i in range(4)]
    found = colours_of([KINDS[0], *feeds, kind("again", 2, KINDS[0].mechanism)])
    assert found[1:5] == ["0.6", "0.78", "0.9", "0.6"]
    assert found[0] == found[5] != found[1]


def test_what_no_bar_holds_is_said():
    lost = {p.case.key for p in swept().plan if p.case.workload.seq_len == 2048}
    whole = swept(lambda run: run.case in lost and "transformer" in run.case)
    figure = layer_figure(costs(whole, (*KINDS, POOLS)))
    assert len(figure.axes[0].patches) == len(KINDS) * (len(LENGTHS) - 1)
    assert "Without 2 layers that cannot be measured." in said(figure)
    assert "Not measured: 2K." in said(figure)
    assert "Lines: 95 % CI of the sum." in said(figure)
    assert "Without" not in said(layer_figure(costs(swept())))
    assert "CI" not in said(layer_figure(costs(swept(rounds=1))))
