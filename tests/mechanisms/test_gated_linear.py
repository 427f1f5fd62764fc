"""Gated linear attention: what its gates do to the state."""

import pytest
import torch

from attnbench.mechanisms.gated_linear import CARD
from tests.mechanisms.building import core


@pytest.mark.parametrize("form", CARD.forms)
def test_open_gates_leave_plain_linear_attention(form):
    q, k = torch.randn(2, 2, 4, 50, 4, dtype=torch.float64)
    v = torch.randn(2, 4, 50, 4, dtype=torch.float64)
    module = core("gated_linear", form, seq_len=50, narrow=1, chunk=16)
    o = module.attend(q, k, v, torch.full_like(q, 40.0), None)
    torch.testing.assert_close(o, (q @ k.mT / 2).tril() @ v)


@pytest.mark.parametrize("form", CARD.forms)
def test_closed_gates_leave_the_token_alone(form):
    q, k, f = torch.randn(3, 2, 4, 50, 2)
    v = torch.randn(2, 4, 50, 4)
    module = core("gated_linear", form, seq_len=50, root=1.0).float()
    o = module.attend(q, k, v, torch.full_like(f, -200.0), None)
    torch.testing.assert_close(o, (q * k).sum(-1, keepdim=True) / 2**0.5 * v)
