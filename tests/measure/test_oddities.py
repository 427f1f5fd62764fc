"""Cheats are found, each by its own words."""

import pytest
import torch

from attnbench.catalogue.registry import card
from attnbench.measure import oddities
from attnbench.measure.building import subject_of
from attnbench.measure.worker import Worker
from attnbench.records import Level, Mode
from tests.measure.cases import EXPLOITS, answered, case, odd, sent

SAME = "gave the same output for other input"
RECORDED = "recorded gradients in inference"
FOUND = {
    "Honest": set(),
    "Identity": {"returned its input"},
    "Copies": {"returned its input"},
    "Zeros": {SAME},
    "Cached": {SAME},
    "Scales": {"changed its input in place"},
    "Records": {RECORDED},
    "Hides": {RECORDED},
    "SwitchesOn": {"left gradients switched on"},
    "Freezes": {"switched off the gradients of # of its parameters"},
    "Evaluates": {"switched between training and evaluation"},
}


def without_laps(one, **asked):
    """The notes of a run that ends after its warm-up."""
    worker = Worker(None, seed=0)
    answered(worker, "build", suspicious=True, **sent(one))
    return answered(worker, "finish", **asked)["notes"]


def signs(name, **sizes):
    """All that is odd about a run that went well."""
    return set(filter(None, odd(name, **sizes).split("; ")))


@pytest.fixture(autouse=True)
def gradients_as_they_were():
    yield
    torch.set_grad_enabled(True)


@pytest.mark.parametrize("level", [Level.ATTENTION, Level.MODEL])
@pytest.mark.parametrize("name", FOUND)
def test_a_cheat_is_found_and_nothing_else_is(name, level):
    found = signs(name, level=level)
    # what leaves gradients on has them recorded by the layers after it
    assert found - {RECORDED} == FOUND[name] - {RECORDED}
    assert (RECORDED in found) >= (RECORDED in FOUND[name])
    assert RECORDED not in found or FOUND[name]


@pytest.mark.parametrize("name", ["Identity", "Zeros", "Cached"])
def test_a_cheat_is_found_in_training(name):
    assert FOUND[name] <= signs(name, level=Level.MODEL, mode=Mode.TRAINING)


def test_what_the_budget_does_not_allow_is_not_looked_for_and_that_is_said():
    found = without_laps(case(f"{EXPLOITS}:Zeros"), left_s=0.0)
    assert found["unexamined"] == "was not examined for odd behaviour, as the budget ended"
    assert "odd" not in found


def test_the_core_of_one_token_may_give_its_value():
    """As softmax over one key does."""
    assert "odd" not in without_laps(case(level=Level.CORE, seq_len=1))


def test_one_that_fails_on_fresh_input_is_reported_and_its_run_stays():
    found = without_laps(case(f"{EXPLOITS}:OnceOnly"))
    assert found["odd"] == "failed while it was watched with RuntimeError"


def test_what_is_watched_is_left_as_it_was():
    subject = subject_of(card("fastformer"), case("fastformer", level=Level.MODEL), seed=0)
    before = [set(vars(module)) for module in subject.module.modules()]
    with oddities.watched(subject):
        pass
    assert [set(vars(module)) for module in subject.module.modules()] == before


def test_few_numbers_are_from_all_over():
    tensor = torch.arange(3 * 5 * 10_000).reshape(3, 5, 10_000).transpose(0, 2)
    found = oddities.some_numbers(tensor)
    assert len(found) == oddities.SAMPLED
    assert (found[0], found[-1]) == (tensor.flatten()[0], tensor.flatten()[-1])
    assert torch.equal(oddities.some_numbers(tensor[:2]), tensor[:2].flatten())
