"""The short convolution against that of torch, and after earlier tokens."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import conv1d
from torch.testing import assert_close

from attnbench.attention.convolution import Convolution, Convolved

B = 2


@pytest.mark.parametrize("N", [1, 5, 600])
@pytest.mark.parametrize("W", [1, 2, 4, 300])
@pytest.mark.parametrize("biased", [False, True])
def test_a_convolution_is_that_of_torch(N, W, biased):
    torch.manual_seed(0)
    shapes = [(B, N, 3), (B, W - 1, 3), (W, 3), *[(3,)] * biased]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    x, before, taps, *bias = inputs
    y = Convolution.apply(x, before, taps, *bias or [None])
    both = torch.cat([before, x], 1).mT
    expected = conv1d(both, taps.T[:, None], *bias, groups=3).mT
    weights = torch.randn_like(y)
    for a, b in zip(
        (y, *torch.autograd.grad((y * weights).sum(), inputs)),
        (expected, *torch.autograd.grad((expected * weights).sum(), inputs)),
        strict=True,
    ):
        assert_close(a, b)


def test_a_convolution_continues_after_its_last_inputs():
    x, with_taps = torch.randn(B, 9, 3), SimpleNamespace(taps=torch.randn(4, 3))
    whole, last = Convolved.convolve(with_taps, x, torch.zeros(B, 3, 3))
    first, before = Convolved.convolve(with_taps, x[:, :1], torch.zeros(B, 3, 3))
    rest, after = Convolved.convolve(with_taps, x[:, 1:], before)
    assert_close(torch.cat([first, rest], 1), whole)
    assert_close(after, last)
