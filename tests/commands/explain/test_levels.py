"""Two mechanisms raced at each level, and what cannot be."""

from contextlib import nullcontext

import pytest

from attnbench.commands.explain import levels
from attnbench.commands.explain.analysis import by_level
from attnbench.commands.explain.levels import at_levels, refuse
from attnbench.errors import CannotRun, UsageError
from attnbench.running.plan import Plan
from attnbench.running.request.options import read
from tests.running.sessions import planned

SMALL = {"width": 16, "heads": 2}


@pytest.mark.long
def test_decoding_is_explained_at_its_only_level():
    given = {**SMALL, "mode": "decode", "quick": True, "budget": "none"}
    (found,) = by_level(at_levels("retention", "grouped_query", 16, read(given)))
    assert found.level == "attention"
    assert found.ratio > 0
    assert found.a["operators"] > found.b["operators"] > 0


def plan(*names, refusal=""):
    """The plan of a level with these series."""
    cases = tuple(planned(name, 128, 1, refusal=refusal) for name in names)
    return Plan(cases=cases, cards=())


def test_two_cases_are_compared_and_no_other_number():
    refuse([plan("a", "b"), plan("a", "b")])
    for names in (("a",), ("a", "b", "c"), ()):
        with pytest.raises(
            UsageError, match="two cases; these are " + ", ".join(f"{name}:eager" for name in names)
        ):
            refuse([plan("a", "b"), plan(*names)])


@pytest.mark.parametrize("several", [{"width": "16,32"}, {"dtype": "fp32,bf16"}])
def test_several_sizes_are_refused_before_anything_runs(several):
    with pytest.raises(UsageError, match="give one; explain compares two cases"):
        at_levels("fnet", "fnet", 16, read({**SMALL, **several}))


def test_cases_that_run_at_one_level_are_compared_there():
    gone = plan("a", "b", refusal="no causal form")
    refuse([gone, plan("a", "b")])
    with pytest.raises(CannotRun, match="a:eager: no causal form"):
        refuse([gone, gone])


def test_one_mode_is_compared_at_each_level_that_it_has(monkeypatch, tmp_path):
    asked = []

    def stop(request, server):
        asked.append(request)
        return plan("a", "b", "c")

    monkeypatch.setattr(levels, "plan", stop)
    monkeypatch.setattr(levels, "measuring_server", lambda *how: nullcontext())
    with pytest.raises(UsageError, match="one mode: training or inference"):
        at_levels("fnet", "local", 16, read({"mode": "both"}))
    for mode, at in (("inference", ["core", "attention", "model"]), ("decode", ["attention"])):
        asked.clear()
        with pytest.raises(UsageError, match="two cases"):
            at_levels("fnet", "local", 16, read({"mode": mode, "budget": "30s"}))
        assert [request.level for request in asked] == at
        assert {request.models for request in asked} == {("fnet", "local")}
        assert {request.lengths for request in asked} == {(16,)}
