"""What is said of the race of a user's function with the mechanism's form."""

import re

import pytest

from attnbench.analysis.report import analyse
from attnbench.render.judgement import ratios, speed
from tests.sweeps import sweep

LENGTHS = (512, 2048, 8192)
UNSURE = r"Whether it is faster in training, and from where, is unsure; raise --budget\."
# mechanisms whose costs are not known to `tests.sweeps` cost the same
RACES = {
    ("performer", "nystromformer", 0.01): r"As fast in training within [1-9] %\.",
    ("performer", "nystromformer", 0.1): UNSURE,
    ("fastformer", "linformer", 0.01): r"Faster in training at every length\.",
    ("linformer", "fastformer", 0.01): r"Not faster in training at the longest length\.",
    ("longformer", "transformer", 0.01): r"Faster in training from N = 1,\d+ \[1,\d+, 1,\d+\]\.",
}


def raced(own, mechanism, noise, **how):
    """The race of two series with known costs."""
    both = sweep((own, mechanism), lengths=LENGTHS, noise=noise, restart=noise, **how)
    return analyse(both, mechanism)


@pytest.mark.parametrize(("own", "mechanism", "noise"), RACES)
def test_from_where_it_is_faster_is_said_of_each_mode(own, mechanism, noise):
    race = raced(own, mechanism, noise)
    training, _ = speed(race)
    assert re.fullmatch(RACES[own, mechanism, noise], training), training
    assert [table.rows[0][0].text for table in ratios(race)] == [f"{own}:eager"] * 2


def test_without_intervals_nothing_is_called_as_fast():
    training, _ = speed(raced("performer", "nystromformer", 0.01, rounds=1))
    assert re.fullmatch(UNSURE, training)


def test_what_is_not_raced_has_no_speed():
    assert list(speed(None)) == ["Not raced: what is not right has no speed."]
