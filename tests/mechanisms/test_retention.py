"""Retention: the paper's parallel form, decays of heads, and what training keeps."""

import pytest
import torch

from attnbench.mechanisms.retention import CARD, Config, decays
from attnbench.records import Level, Workload
from tests.kept import assert_linear, kept_bytes


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


def test_what_training_keeps_is_linear_in_length():
    def kept(seq_len):
        q, k, v = (torch.randn(1, 4, seq_len, d, requires_grad=True) for d in (4, 4, 8))
        return kept_bytes(core(seq_len=seq_len).attend, q, k, v, None)[0]

    assert_linear(kept)
