"""Outputs that differ by more than rounding are told from those that do not."""

import pytest
import torch

from attnbench.measuring.comparing import GROSS, differs


def output(sequences=8):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sequences, 20, 5, generator=generator)


def test_rounding_is_no_difference_and_a_hundredth_is():
    y = output()
    assert not differs(y, y)
    assert not differs(y * (1 + 1e-6), y)
    assert differs(y + 0.01, y)
    assert not differs(y + 0.01, y, GROSS)


def test_one_sequence_of_a_batch_is_enough():
    """Of all numbers it has an eighth, of which the others would leave too few."""
    y = output(sequences=32)
    other = y.clone()
    other[7] += 1
    assert differs(other, y)


@pytest.mark.parametrize(("tokens", "found"), [(1, False), (2, False), (3, True), (20, True)])
def test_a_few_tokens_may_be_chosen_otherwise(tokens, found):
    """A tenth of a sequence, which is two of its tokens."""
    y = output(sequences=1)
    other = y.clone()
    other[:, :tokens] += 1
    assert differs(other, y) is found


def test_what_is_no_number_differs_and_so_does_another_shape():
    y = output()
    assert differs(y * float("nan"), y)
    assert differs(y[:, :-1], y)


def test_steps_of_the_number_type_are_rounding():
    y = output().bfloat16()
    near = (y.float() * (1 + torch.finfo(torch.bfloat16).eps)).bfloat16()
    assert not torch.equal(near, y)
    assert not differs(near, y)
    assert differs(near.float(), y.float())
