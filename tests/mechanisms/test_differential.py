"""Differential attention: where it is plain attention, and which heads are partners."""

import math

import pytest
import torch

from attnbench.attention.primitives import softmax_attention
from attnbench.mechanisms.differential import CARD, Config
from tests.mechanisms.building import core, qkv


@pytest.mark.parametrize("form", CARD.forms)
def test_without_a_difference_it_is_normalised_attention(form):
    module = core("differential", form)
    with torch.no_grad():
        module.q1.zero_()
        module.q2.fill_(0.25)
        module.k2.fill_(math.log(1.2))  # e^0 − e^{log 1.2} + λ₀ = 0
    q, k, v = qkv()
    o = module.attend(q, k, v, None)
    first = softmax_attention(q[:, :2], k[:, :2], torch.cat([v[:, :2], v[:, 2:]], -1), None)
    expected = 0.8 * torch.nn.functional.rms_norm(first, (8,), eps=1e-6)
    torch.testing.assert_close(o.unflatten(1, (2, 2)).transpose(2, 3).flatten(3), expected)


def test_deeper_layers_subtract_more():
    first = [Config(layer=layer).first for layer in (0, 1, 10)]
    assert first == sorted(first)
    assert first[0] == pytest.approx(0.2)
