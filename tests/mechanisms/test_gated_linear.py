"""Gated linear attention: what its gates do to the state."""

import pytest
import torch

from attnbench.mechanisms.gated_linear import CARD, Config
from attnbench.records import Level, Workload


def core(form="chunked", seq_len=50, **options):
    w = Workload(batch=2, seq_len=seq_len, width=16, heads=4, level=Level.CORE, causal=True)
    return CARD.forms[form](Config(**options), w)


@pytest.mark.parametrize("form", CARD.forms)
def test_open_gates_leave_plain_linear_attention(form):
    q, k = torch.randn(2, 2, 4, 50, 4, dtype=torch.float64)
    v = torch.randn(2, 4, 50, 4, dtype=torch.float64)
    module = core(form, narrow=1, chunk=16).double()
    o = module.attend(q, k, v, torch.full_like(q, 40.0), None)
    torch.testing.assert_close(o, (q @ k.mT / 2).tril() @ v)


@pytest.mark.parametrize("form", CARD.forms)
def test_closed_gates_leave_the_token_alone(form):
    q, k, f = torch.randn(3, 2, 4, 50, 2)
    v = torch.randn(2, 4, 50, 4)
    o = core(form, root=1.0).attend(q, k, v, torch.full_like(f, -200.0), None)
    torch.testing.assert_close(o, (q * k).sum(-1, keepdim=True) / 2**0.5 * v)
