"""The 1d layout of Image Transformer against local-attention, which looks one block back."""

import pytest
import torch

from attnbench.mechanisms.image_transformer import CARD, Config
from attnbench.records import Level, Workload

theirs = pytest.importorskip("local_attention", reason="local-attention is not installed")


@pytest.mark.parametrize("form", ["eager", "sdpa"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_a_memory_of_one_block_equals_theirs(padded, causal, form):
    w = Workload(batch=2, seq_len=37, width=16, heads=4, level=Level.CORE, causal=causal)
    ours = CARD.forms[form](Config(block=8, memory=8), w)
    other = theirs.LocalAttention(
        8, causal=causal, look_backward=1, look_forward=0, autopad=True, use_rotary_pos_emb=False
    )
    q, k, v = torch.randn(3, 2, 4, 37, 4, dtype=torch.float64)
    # without a mask the package lets the last block see its padding
    mask = torch.arange(37).expand(2, -1) < (30 if padded else 37)
    expected = other(q, k, v, mask=mask)
    seen = mask[0]
    torch.testing.assert_close(ours.attend(q, k, v, mask)[:, :, seen], expected[:, :, seen])
