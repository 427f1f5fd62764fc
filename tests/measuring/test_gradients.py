"""Whether a backward pass computes gradients, told from what its output depends on."""

import pytest
import torch
from torch import nn

from attnbench.measuring.caller import Caller
from attnbench.measuring.gradients import (
    faint_gradients,
    missing_gradients,
    parameters_without_gradient,
    vary,
)
from attnbench.measuring.subject import subject_of
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Mode
from tests.measuring.cases import case


def training(change=None):
    """A caller in training; `change` is made of the usual output and the input."""
    called = Caller(subject_of(card("transformer"), case(mode=Mode.TRAINING), seed=0))
    usual = called.mechanism.forward
    if change is not None:
        called.mechanism.forward = lambda x, mask: change(usual(x, mask), x)
    return called


def parameter(values, gradient=None):
    found = nn.Parameter(torch.tensor(values))
    if gradient is not None:
        found.grad = torch.tensor(gradient)
    return found


def test_a_sound_backward_pass_shows_nothing_and_leaves_parameters_as_they_were():
    called = training()
    before = [p.detach().clone() for p in called.mechanism.parameters()]
    assert missing_gradients(called) == []
    assert all(map(torch.equal, before, called.mechanism.parameters()))


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        (lambda y, x: y.detach() + 0 * x, "gave no gradient to 4 of the 4 parameters it uses"),
        (lambda y, x: y.detach() + 1e-6 * (y - y.detach()), "gave gradients that are"),
    ],
    ids=["none", "faint"],
)
def test_what_gives_no_gradients_or_faint_ones_is_named(change, sign):
    (found,) = missing_gradients(training(change))
    assert found.startswith(sign)


def test_of_what_rounds_its_input_gradients_are_estimates():
    """It chooses among codes, to which a small change of a token makes no difference."""
    assert missing_gradients(training(lambda y, x: y.detach().round() + 0 * x)) == []


def test_a_gradient_is_none_where_it_is_nothing_beside_the_largest():
    large, small = parameter([1.0], [1.0]), parameter([1.0], [1e-9])
    fair, absent = parameter([1.0], [1e-3]), parameter([1.0])
    assert parameters_without_gradient([large, small, fair, absent]) == [small, absent]
    assert parameters_without_gradient([absent]) == [absent]
    assert parameters_without_gradient([]) == []


def test_gradients_are_faint_beside_the_change_that_they_predict():
    p, step = parameter([1.0, 1.0], [0.5, 0.5]), torch.tensor([1.0, 1.0])
    assert faint_gradients([p], [step], torch.tensor([1.0])) == ""
    assert faint_gradients([p], [step], torch.tensor([1e4])).startswith(
        "gave gradients that are 1e-04 of"
    )
    assert faint_gradients([parameter([1.0])], [step], torch.tensor([1.0])).startswith(
        "gave gradients"
    )


def test_parameters_are_varied_a_little_without_a_change_of_sign():
    p, count = parameter([2.0, -3.0, 0.0]), nn.Parameter(torch.tensor([7]), requires_grad=False)
    vary([p, count])
    assert (p[:2] / torch.tensor([2.0, -3.0]) - 1).abs().max() <= 0.1 + 1e-6
    assert 0 < p[2] <= 0.1
    assert not torch.equal(p[:2], torch.tensor([2.0, -3.0]))
    assert count.tolist() == [7]
