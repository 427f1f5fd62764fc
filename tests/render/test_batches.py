"""Decoding at several batches: the figure, its table, and when there is one."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.report import analyse
from attnbench.records import FigureSize
from attnbench.render.batches import batch_figure, batch_files, batches, best, steps
from tests.sweeps import decoded

STATES = {"transformer": lambda n: 2048 * n, "performer": lambda n: 16_384}


@pytest.fixture(scope="module")
def cases():
    """Steps of a batch that take the square root of it as long."""
    alone = analyse(decoded(STATES, lengths=(512, 2048))).cases
    return pd.concat(
        alone.assign(
            batch=b, tpot_s=alone["tpot_s"] * b**0.5, tokens_per_s=b**0.5 / alone["tpot_s"]
        )
        for b in (4, 1, 16)
    )


def test_a_curve_has_a_point_for_each_batch_at_the_longest_context(cases):
    found = steps(cases)
    (axes,) = batch_figure(found).axes
    *lines, pareto = axes.lines
    for line, series in zip(lines, found["series"].unique(), strict=True):
        own = found[(found["series"] == series) & (found["seq_len"] == 2048)].sort_values("batch")
        assert list(line.get_xdata()) == list(own["tpot_s"])
        assert list(line.get_ydata()) == list(own["tokens_per_s"])
    assert {text.get_text() for text in axes.texts} == {"1", "16"}
    front = best(found[found["seq_len"] == 2048])
    assert list(pareto.get_xdata()) == list(front["tpot_s"])
    assert list(pareto.get_ydata()) == list(front["tokens_per_s"])


@given(
    points=st.lists(
        st.tuples(st.integers(1, 6), st.integers(1, 6)).map(lambda p: (float(p[0]), float(p[1]))),
        min_size=1,
    )
)
def test_nothing_beats_what_is_on_the_line_and_something_beats_the_rest(points):
    chosen = best(pd.DataFrame(points, columns=["tpot_s", "tokens_per_s"]))
    found = set(zip(chosen["tpot_s"], chosen["tokens_per_s"], strict=True))

    def beaten(one):
        return any(t <= one[0] and rate >= one[1] and (t, rate) != one for t, rate in points)

    assert found == {point for point in points if not beaten(point)}
    assert len(chosen) == len(found)


def test_the_table_has_a_row_for_each_series_context_and_batch(cases):
    rows = [[cell.text for cell in row[:3]] for row in batches(steps(cases)).rows]
    assert rows[:4] == [
        ["transformer:eager", "512", "1"],
        ["transformer:eager", "512", "4"],
        ["transformer:eager", "512", "16"],
        ["transformer:eager", "2,048", "1"],
    ]
    assert len(rows) == 12
    files = batch_files(steps(cases), ("png", "svg"), FigureSize.COLUMN)
    assert set(files) == {"batches.png", "batches.svg", "batches.csv"}


def test_there_is_one_only_if_the_batch_alone_differs(cases):
    assert steps(cases[cases["batch"] == 4]) is None
    assert steps(pd.concat([cases, cases.assign(width=64)])) is None
    assert steps(cases.drop(columns=["tpot_s"])) is None
