"""Local attention against dense attention under a block-diagonal mask."""

import pytest
import torch

from attnbench.mechanisms.local import CARD, Config
from attnbench.records import Level, Workload


def workload(seq_len, causal=False):
    return Workload(batch=2, seq_len=seq_len, width=32, heads=4, level=Level.CORE, causal=causal)


def qkv(w):
    shape = (3, w.batch, w.heads, w.seq_len, w.head_width)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seq_len", [64, 101])
@pytest.mark.parametrize("block", [1, 8, 20])
def test_blocks_equal_dense_attention_under_the_pattern(block, seq_len, causal):
    w = workload(seq_len, causal)
    q, k, v = qkv(w)
    same = torch.block_diag(*[torch.ones(block, block)] * -(-seq_len // block)).bool()
    same = same[:seq_len, :seq_len]
    same = same.tril() if causal else same
    logits = (q @ k.mT / w.head_width**0.5).masked_fill(~same, -torch.inf)
    o = CARD.forms["eager"](Config(block=block), w).attend(q, k, v, None)
    torch.testing.assert_close(o, logits.softmax(-1) @ v)
