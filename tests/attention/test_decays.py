"""Decays between tokens, and products with one for each channel: strong ones, gradients, FLOPs."""

import pytest
import torch
from torch.testing import assert_close

from attnbench.attention.decays import Ratio, channel_flops, channel_products
from attnbench.verify.flops import counted_flops

ROWS, DK = 2, 3


def drawn(C, strength, dtype=torch.float64):
    torch.manual_seed(0)
    x, y = torch.randn(2, C, ROWS, DK, dtype=dtype), torch.randn(2, C, DK, dtype=dtype)
    return [t.requires_grad_() for t in (x, y, -strength * torch.rand(2, C, DK, dtype=dtype))]


def direct(x, y, g):
    """The sums as they are written, over pairs of tokens with j ≤ i."""
    b, C = g.cumsum(-2), y.shape[-2]
    past = torch.ones(C, C, dtype=torch.bool).tril()[:, :, None]
    gamma = (b[:, :, None] - b[:, None]).masked_fill(~past, -torch.inf).exp()
    A = (x[:, :, None] * (y[:, None] * gamma)[:, :, :, None]).sum(-1)  # [2, C, C, R]
    return A.mT, b.exp(), (b[:, -1:] - b).exp()


def results(products, inputs):
    found = products(*inputs)
    loss = sum((t * torch.arange(t.numel()).view(t.shape).cos()).sum() for t in found)
    return *found, *torch.autograd.grad(loss, inputs)


@pytest.mark.parametrize("C", [1, 2, 5, 16, 31])
@pytest.mark.parametrize("strength", [0.0, 0.5, 20.0])
def test_they_are_the_sums(C, strength):
    inputs = drawn(C, strength)
    for a, b in zip(results(channel_products, inputs), results(direct, inputs), strict=True):
        assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_strong_decays_cost_no_digits_in_float32():
    wide = drawn(64, 0.05)
    with torch.no_grad():
        wide[2][:, 1] -= 1e4
    narrow = [t.detach().float().requires_grad_() for t in wide]
    for a, b in zip(
        results(channel_products, narrow), results(channel_products, wide), strict=True
    ):
        assert (a - b).abs().max() <= 2e-6 * b.abs().max()


@pytest.mark.parametrize("C", [1, 5, 16])
def test_their_flops_are_those_that_torch_counts(C):
    module = torch.nn.Module()
    counted = counted_flops(module, *drawn(C, 1.0), call=channel_products)
    assert counted == 2 * channel_flops(C, ROWS, DK)  # of two sequences


def test_ratios_do_not_overflow_above_the_diagonal():
    G = torch.tensor([[-1000.0, -3000.0, -9000.0]], requires_grad=True)
    found = Ratio.apply(G, torch.float32)
    assert_close(found, torch.eye(3)[None])
    (gradient,) = torch.autograd.grad(found.sum(), G)
    assert gradient.isfinite().all()
