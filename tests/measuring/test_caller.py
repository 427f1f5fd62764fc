"""A mechanism called alone: on other inputs, with its draws again, and what its calls show."""

import pytest
import torch

from attnbench.measuring.caller import Caller
from attnbench.measuring.subject import subject_of
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Mode
from tests.measuring.cases import case


def calling(forward=None, **sizes):
    """A caller of softmax attention, whose forward pass is another one, if any."""
    called = Caller(subject_of(card("transformer"), case(**sizes), seed=0))
    if forward is not None:
        called.mechanism.forward = forward
    return called


@pytest.mark.parametrize("level", Level)
def test_inputs_are_others_each_time_and_the_output_follows_them(level):
    called = calling(level=level)
    first, second = called.new_input(), called.new_input()
    assert [x.shape for x in first] == [x.shape for x in second]
    assert not any(map(torch.equal, first, second))
    assert len(first) == (3 if called.is_core else 1)
    assert not torch.equal(called.output(first), called.output(second))
    assert torch.equal(called.output(first), called.output(first))


def test_numbers_are_drawn_again_only_where_asked():
    called = calling(lambda x, mask: x + torch.rand(()))
    x = called.new_input()
    states = called.draws()
    first = called.output(x, states)
    assert not torch.equal(called.output(x), first)
    assert torch.equal(called.output(x, states), first)


def test_an_output_stays_though_the_mechanism_reuses_its_buffer():
    buffer = torch.empty(2, 32, 16)
    called = calling(lambda x, mask: torch.add(x, 1, out=buffer))
    x = called.new_input()
    y = called.output(x)
    called.output(called.new_input())
    assert torch.equal(y, x[0] + 1)


@pytest.mark.parametrize(
    ("forward", "suspect", "odd"),
    [
        (lambda x, mask: 2 * x, [], []),
        (lambda x, mask: x.mul_(2), ["changed its input in place"], []),
        (lambda x, mask: x.double(), [], ["returned torch.float64 for torch.float32"]),
        (lambda x, mask: (2 * x).requires_grad_(), [], ["recorded gradients in inference"]),
        (
            lambda x, mask: (torch.set_grad_enabled(True), 2 * x)[1],
            [],
            ["left gradients switched on"],
        ),
    ],
    ids=["honest", "in place", "another type", "gradients", "switched on"],
)
def test_what_a_call_shows_is_kept(forward, suspect, odd):
    called = calling(forward)
    called.output(called.new_input())
    assert ([*called.suspect_signs], [*called.odd_signs]) == (suspect, odd)


def test_gradients_are_recorded_in_training_alone():
    assert calling(mode=Mode.TRAINING).call(calling().new_input()).requires_grad
    called = calling(lambda x, mask: (torch.set_grad_enabled(False), 2 * x)[1], mode=Mode.TRAINING)
    called.call(called.new_input())
    assert [*called.odd_signs] == ["left gradients switched off"]
