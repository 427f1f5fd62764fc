"""Forgetting attention: its decays, also in long sequences, and what training keeps."""

import pytest
import torch

from attnbench.mechanisms.forgetting import BLOCK, CARD, Config
from attnbench.records import Level, Workload
from tests.kept import assert_linear, kept_bytes


def core(form, seq_len):
    w = Workload(batch=1, seq_len=seq_len, width=8, heads=2, level=Level.CORE, causal=True)
    return CARD.forms[form](Config(), w)


@pytest.mark.parametrize("form", CARD.forms)
def test_a_token_that_forgets_reads_itself_alone(form):
    q, k, v = torch.randn(3, 1, 2, 30, 4)
    f = torch.full((1, 2, 30), 50.0)
    f[..., 9] = -1e4
    o = core(form, 30).attend(q, k, v, f, None)
    torch.testing.assert_close(o[:, :, 9], v[:, :, 9])


@pytest.mark.parametrize(
    ("dtype", "allowed"), [(torch.float32, 1e-4), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)]
)
def test_long_sequences_lose_no_digits(dtype, allowed):
    """Sums of logs reach thousands; what matters of them are differences of small numbers."""
    N = 3 * BLOCK + 5
    q, k, v = torch.randn(3, 1, 2, N, 4).to(dtype)
    f = torch.full((1, 2, N), -1.0, dtype=dtype)  # log f sums to −2,000
    exact = core("eager", N).double().attend(*(t.double() for t in (q, k, v, f)), None)
    found = core("sdpa", N).to(dtype).attend(q, k, v, f, None)
    assert (found - exact).abs().max() < allowed * exact.abs().max()


def test_what_training_keeps_is_linear_in_length():
    def kept(seq_len):
        q, k, v = (torch.randn(1, 2, seq_len, 4, requires_grad=True) for _ in "qkv")
        return kept_bytes(core("sdpa", seq_len).attend, q, k, v, torch.randn(1, 2, seq_len), None)[
            0
        ]

    assert_linear(kept)
