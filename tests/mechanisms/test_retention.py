"""Retention: the paper's parallel form, and decays of heads."""

import pytest
import torch

from attnbench.mechanisms.retention import CARD, Config, decays
from attnbench.records import Level, Workload


def core(form="chunked", seq_len=50, **options):
    w = Workload(batch=2, seq_len=seq_len, width=16, heads=4, level=Level.CORE, causal=True)
    return CARD.forms[form](Config(**options), w)


@pytest.mark.parametrize("form", CARD.forms)
def test_it_equals_the_parallel_form(form):
    q, k = torch.randn(2, 2, 4, 50, 4, dtype=torch.float64)
    v = torch.randn(2, 4, 50, 8, dtype=torch.float64)
    n = torch.arange(50)
    gamma = 1 - 2.0 ** (-5 - torch.arange(4, dtype=torch.float64))
    D = (gamma[:, None, None] ** (n[:, None] - n)).tril()
    expected = (q @ k.mT / 2 * D) @ v
    torch.testing.assert_close(core(form, chunk=16).attend(q, k, v, None), expected)


def test_decays_of_many_heads_do_not_round_to_one():
    logs = decays(torch.zeros(1, 64, dtype=torch.float32)).flatten()
    assert (logs < 0).all()
    assert logs[0].exp().item() == pytest.approx(1 - 1 / 32)
