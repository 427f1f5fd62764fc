"""Whether an output responds to all of its input, one small defect at a time."""

import pytest
import torch
from torch import nn

from attnbench.measuring.caller import Caller
from attnbench.measuring.noise import CHANNELS, TOKENS
from attnbench.measuring.responses import Responses, flip_signs, largest_share, squares
from attnbench.measuring.subject import subject_of
from attnbench.mechanisms.catalogue.registry import card
from tests.measuring.cases import case


def found(forward):
    """What is found of a mechanism that mixes tokens by this function of x [B, N, D]."""
    called = Caller(subject_of(card("transformer"), case(), seed=0))
    called.mechanism.forward = lambda x, mask: forward(x)
    findings = Responses(called).findings()
    return findings.suspect_signs, findings.odd_signs


def mixed(x):
    """A mean over tokens added to each, of which nothing is ignored or passed on."""
    return x.tanh() + x.mean(1, keepdim=True).sin()


def eighth_of(x, dim):
    """x with zeros in place of all but an eighth of a dimension."""
    kept = torch.arange(x.shape[dim]) < x.shape[dim] // 8
    return x * (kept[:, None] if dim == TOKENS else kept)


def test_what_responds_to_everything_has_no_sign():
    assert found(mixed) == ([], [])


def test_the_same_output_for_every_input_is_a_sign():
    assert found(torch.ones_like)[0] == ["gave the same output for other input"]


def test_an_input_that_is_returned_is_a_sign():
    assert found(lambda x: x.clone())[0] == ["returned 100% of its input as it was"]


def test_tokens_that_are_passed_on_as_multiples_are_a_sign():
    signs, _ = found(lambda x: 0.5 * x)
    assert len(signs) == 1
    assert "tokens on as they were, but for a factor" in signs[0]


@pytest.mark.parametrize(("dim", "kind"), [(TOKENS, "tokens"), (CHANNELS, "channels")])
def test_places_that_are_ignored_are_counted(dim, kind):
    (sign,), _ = found(lambda x: mixed(eighth_of(x, dim)))
    words = sign.split()
    ignored, of = (int(word) for word in words if word.isdigit())
    assert words[-3:] == [kind, "were", "replaced"]
    assert 0.6 * of <= ignored < of


def test_a_response_has_a_share_at_each_place_whatever_the_whole_is_there():
    part, whole = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[0.0, 4.0], [0.0, 0.0]])
    assert largest_share(part, whole).tolist() == [0.25, 0.0]


def test_squares_are_means_over_all_but_sequences_and_one_dimension():
    change = torch.zeros(2, 3, 4)
    change[1, 2] = 2.0
    assert squares(change, TOKENS).tolist() == [[0, 0, 0], [0, 0, 4]]
    assert squares(change, CHANNELS)[1].tolist() == [pytest.approx(4 / 3)] * 4


def test_only_signs_of_parameters_are_drawn_anew():
    module = nn.Linear(30, 30)
    before = module.weight.detach().clone()
    flip_signs(module)
    assert torch.equal(module.weight.abs(), before.abs())
    assert 100 < (module.weight != before).sum() < 800
