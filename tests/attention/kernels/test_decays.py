"""Products of decays, in chunks and their blocks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from attnbench.attention.kernels.decays import (
    DecayRatio,
    channel_flops,
    channel_products,
    decay_rates,
)


def test_ratios_do_not_overflow_above_the_diagonal():
    G = torch.tensor([[-1000.0, -3000.0, -9000.0]], requires_grad=True)
    found = DecayRatio.apply(G, torch.float32)
    assert_close(found, torch.eye(3)[None])
    (gradient,) = torch.autograd.grad(found.sum(), G)
    assert gradient.isfinite().all()


def test_ratios_are_those_of_two_sums_and_their_gradients_too():
    G = -torch.rand(2, 3, 7, dtype=torch.float64).cumsum(-1)
    G.requires_grad_()
    by_definition = (G[..., :, None] - G[..., None, :]).exp().tril()
    assert_close(DecayRatio.apply(G, torch.float64), by_definition)
    weights = torch.rand(2, 3, 7, 7, dtype=torch.float64)
    (expected,) = torch.autograd.grad((by_definition * weights).sum(), G)
    (found,) = torch.autograd.grad((DecayRatio.apply(G, torch.float64) * weights).sum(), G)
    assert_close(found, expected)


@settings(max_examples=20)
@given(st.integers(1, 80), st.sampled_from([0.1, 30.0]))
def test_products_of_channels_are_those_of_the_definition(C, strongest):
    """Also beyond one block of keys, and beside strong decays."""
    generator = torch.Generator().manual_seed(C)
    y, x, u = torch.rand(3, 2, C, 4, generator=generator, dtype=torch.float64)
    g = -strongest * u
    b = g.cumsum(-2)
    decayed, last, row, product = channel_products(y, g, x)
    assert_close(decayed, y * (b[:, -1:] - b).exp())
    assert_close(last, b[:, -1:].exp())
    assert_close(row, x * b.exp())
    pairs = (b[:, :, None] - b[:, None]).clamp(max=0).exp()
    assert_close(product, torch.einsum("nid,njd,nijd->nij", x, y, pairs).tril())


@pytest.mark.parametrize("C", [1, 32, 33, 100])
def test_flops_of_products_are_those_of_the_blocks_that_are_computed(C):
    """Each block of keys meets the rows from its own first one on."""
    dk = 3
    expected = sum(2 * dk * (C - j // 32 * 32) for j in range(C))
    assert channel_flops(C, dk) == expected


def test_rates_of_decays_are_as_they_are_drawn_in_mamba_2():
    A, b = decay_rates(2000)
    assert 1 <= A.exp().min() < 1.1 < 15.9 < A.exp().max() <= 16
    speed = torch.nn.functional.softplus(b)
    assert 0.00099 < speed.min() < 0.0011 < 0.09 < speed.max() < 0.101
    assert 0.008 < speed.median() < 0.0125, "log-uniform"
