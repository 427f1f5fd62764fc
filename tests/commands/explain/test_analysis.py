"""Two mechanisms at each level, and what is concluded of them."""

from dataclasses import replace

import pytest

from attnbench.analysis.conclusions import Answer
from attnbench.commands.explain.analysis import by_level
from attnbench.commands.explain.page import costs, sentences
from attnbench.errors import CannotRun
from attnbench.records import Level, Outcome
from tests.commands.explain.made import PAIR, at, pair
from tests.sweeps import altered


def test_a_level_that_one_did_not_reach_is_left_out_of_the_paragraph():
    lost = at(Level.MODEL)
    key = lost.plan[0].case.key
    gone = replace(lost.runs[0], case=key, outcome=Outcome.OOM, samples=())
    lost = replace(lost, runs=(gone, *(run for run in lost.runs if run.case != key)))
    found = by_level([at(Level.CORE), at(Level.ATTENTION), lost])
    first, _, lost_at = sentences(found)
    assert first.startswith("At level attention, ")
    assert lost_at == "Not known at level model (transformer:eager: no reason given)."
    assert [each.conclusion.answer for each in found] == [
        Answer.COSTS_MORE,
        Answer.COSTS_MORE,
        Answer.NOT_KNOWN,
    ]
    assert [each.conclusion.scope.lengths for each in found] == [(1024,), (1024,), ()]
    assert costs(found).rows[2][2].text == "out of memory"
    assert costs(found).rows[2][4].text == "–"
    with pytest.raises(CannotRun, match="no level timed both: transformer:eager: no room"):
        by_level([altered(lost, lambda run: replace(run, reason="no room"))])
    with pytest.raises(CannotRun, match="transformer:eager: the budget ended before; raise"):
        by_level([replace(lost, runs=tuple(run for run in lost.runs if run.case != key))])


def test_no_difference_is_claimed_that_was_not_shown():
    """The same mechanism twice as far apart as its processes vary; and one round of two."""
    alike = by_level([pair(("linformer", "linear_transformer"), restart=0.2, noise=0.1)])
    (known,) = [each.conclusion for each in alike]
    assert (known.answer, known.decided_by) == (Answer.NOT_KNOWN, "--budget 10m")
    first = next(sentences(alike))
    said = "which is not known to be a difference (the interval contains 1; --budget 10m may"
    assert said in first
    (once,) = by_level([pair(PAIR, rounds=1)])
    assert once.conclusion.answer is Answer.NOT_KNOWN
    assert "one round has no interval" in next(sentences([once]))
