"""The short convolution against that of torch, and after earlier tokens."""

import pytest
import torch
from torch.nn.functional import conv1d
from torch.testing import assert_close

from attnbench.attention.kernels.convolution import Convolution

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
