"""Whether a module sees later tokens: what replaces them reaches every input, and them alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.measuring.causality import mixed_input

WIDE = st.tuples(*(st.integers(1, 4) for _ in range(4)))  # B, H, N, d


@given(WIDE, st.data())
def test_tokens_of_decays_are_replaced_as_those_of_keys(shape, data):
    """A decay is a number for each token of a head: its tokens are the last of its dimensions."""
    batch, heads, tokens, _ = shape
    low = data.draw(st.integers(0, tokens - 1))
    high = data.draw(st.integers(low + 1, tokens))
    zeros = (torch.zeros(shape), torch.zeros(batch, heads, tokens))
    ones = tuple(torch.ones_like(each) for each in zeros)
    keys, decays = mixed_input(zeros, ones, low, high)
    for token in range(tokens):
        expected = float(low <= token < high)
        assert (keys[:, :, token] == expected).all()
        assert (decays[:, :, token] == expected).all()


@pytest.mark.parametrize(("tokens", "width"), [(1, 3), (5, 3)])
def test_tokens_of_a_layer_are_replaced_whole(tokens, width):
    x = (torch.zeros(2, tokens, width),)
    (mixed,) = mixed_input(x, (torch.ones(2, tokens, width),), tokens - 1, tokens)
    assert mixed.sum() == 2 * width
    assert (mixed[:, -1] == 1).all()
