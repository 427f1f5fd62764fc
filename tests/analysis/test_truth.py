"""Conclusions about sweeps of simulated worlds, compared with what is true there.

`python -m tests.benchmarks.truth` does it with thousands of worlds.
"""

import math
from functools import cache

import pytest

from attnbench.analysis import concluding, summary
from attnbench.analysis.conclusions import Conclusion, Scope
from attnbench.analysis.report import Analysis
from attnbench.commands.claims import judging
from tests.benchmarks.truth import Judge, baselines_wrong
from tests.running.worlds import drawn, measured

WORLDS = range(16)
SUSPECTED = tuple(seed for seed in WORLDS if any(n.suspect for n in drawn(seed).natures))[:3]


@cache
def swept(seed):
    """A world and its sweep, whose visits take longest to simulate."""
    world = drawn(seed)
    return world, measured(world)


def wrong(judge):
    """All that is logically false of one sweep."""
    yield from baselines_wrong(judge)
    for verdict in judge.verdicts():
        yield from verdict.wrong


@pytest.mark.parametrize("worlds", [5, pytest.param(len(WORLDS), marks=pytest.mark.long)])
def test_no_conclusion_says_more_than_was_measured_and_few_answers_are_false(worlds):
    """Of answers with an interval 5 % may be false; many series of one world share their errors."""
    judges = [Judge(*swept(seed)) for seed in WORLDS[:worlds]]
    assert [text for judge in judges for text in wrong(judge)] == []
    truths = [verdict.true for judge in judges for verdict in judge.verdicts()]
    answered = [true for true in truths if true is not None]
    assert len(answered) > 18 * worlds
    assert answered.count(False) <= 0.05 * len(answered)


@pytest.mark.long
def test_what_verbs_say_of_stored_sweeps_is_true_too():
    verdicts = [v for seed in WORLDS[:6] for v in Judge(*swept(seed)).of_verbs()]
    assert [text for verdict in verdicts for text in verdict.wrong] == []
    answered = [verdict.true for verdict in verdicts if verdict.true is not None]
    assert {"claim", "change", "difference", "fits"} <= {str(v.question) for v in verdicts}
    assert len(answered) > 40
    assert answered.count(False) <= 0.05 * len(answered)


def test_wrong_rules_of_verbs_are_found(monkeypatch):
    """Claims are held against B over A; and suspects are ranked and judged."""
    monkeypatch.setattr(judging, "exp", lambda log: math.exp(-log))
    monkeypatch.setattr(summary, "suspects", lambda runs, names, too_fast: {})
    verdicts = [v for seed in SUSPECTED for v in Judge(*swept(seed)).of_verbs()]
    wrong = {text for verdict in verdicts for text in verdict.wrong}
    assert {"ranks a suspect", "judges a suspect"} <= wrong
    judged = [v.true for v in verdicts if v.question == "claim" and v.true is not None]
    assert judged.count(False) > 0.05 * len(judged)


@pytest.mark.parametrize(
    ("where", "name", "rule", "said"),
    [
        pytest.param(
            Scope,
            "spans",
            property(lambda scope: len(scope.lengths) > 0),
            "says of all lengths what few showed",
            id="one length is enough for never",
        ),
        pytest.param(
            concluding,
            "left_out",
            lambda *about: iter(()),
            "names a winner in silence on what was left out",
            id="a winner among survivors",
        ),
        pytest.param(
            summary,
            "suspects",
            lambda runs, names, too_fast: dict.fromkeys(names.values(), ""),
            "ranks a suspect",
            id="a suspect is ranked",
        ),
        pytest.param(
            Conclusion,
            "best",
            property(lambda conclusion: conclusion.series),
            "writes a single series in bold",
            id="bold of one",
        ),
        pytest.param(
            Analysis,
            "_timed_at_front",
            lambda analysis, mode: frozenset(analysis.cases["series"]),
            "which was not timed",
            id="a baseline that failed",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_wrong_rule_is_found(monkeypatch, where, name, rule, said):
    monkeypatch.setattr(where, name, rule)
    judges = (Judge(*swept(seed)) for seed in WORLDS)
    assert any(said in text for judge in judges for text in wrong(judge))
