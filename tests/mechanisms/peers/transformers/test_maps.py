"""Parameters in the layout of layers of transformers: the same numbers, in other places."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attnbench.mechanisms.peers.transformers.maps import ByHead, Forget, Taps, Third

H, D = 3, 8
X = torch.randn(2, 5, D, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("bias", [False, True])
def test_outputs_of_each_head_stand_together(bias):
    """First those of the first part of a head, of each head in turn."""
    wide, narrow = nn.Linear(D, H * 4, bias=bias), nn.Linear(D, H * 2, bias=bias)
    both = ByHead(H, (4, 2), wide, narrow)
    y = both(X)
    parts = (wide(X).unflatten(-1, (H, 4)), narrow(X).unflatten(-1, (H, 2)))
    assert_close(y, torch.cat(parts, -1).flatten(2))
    assert (both.bias is not None) is bias
    assert len([*both.parameters()]) == 2 * (1 + bias), "no copies"


@pytest.mark.parametrize("bias", [False, True])
def test_three_maps_are_thirds_of_one(bias):
    linear = nn.Linear(D, 3 * 4, bias=bias)
    found = torch.cat([Third(linear, index)(X) for index in range(3)], -1)
    assert_close(found, linear(X))


def test_decays_are_those_of_a_softplus_beside_rates_of_each_head():
    maps = nn.Linear(D, H * 4)
    ours = SimpleNamespace(
        forget=maps, A=nn.Parameter(torch.randn(H)), b=nn.Parameter(torch.randn(H * 4))
    )
    g = Forget(ours)(X)
    assert g.shape == (2, 5, H, 4)
    assert (g < 0).all()
    speed = (maps(X) + ours.b).exp().log1p().unflatten(-1, (H, 4))
    assert_close(g, -ours.A.exp()[:, None] * speed)


def test_filters_are_read_as_those_of_a_convolution():
    taps, bias = torch.randn(4, D), torch.randn(D)
    one = Taps(taps, bias)
    padded = nn.functional.pad(X.mT, (3, 0))
    found = nn.functional.conv1d(padded, one.weight, one.bias, groups=D).mT
    expected = sum(taps[lag] * padded.mT[:, lag : lag + 5] for lag in range(4)) + bias
    assert_close(found, expected)
    assert Taps(taps).bias is None
