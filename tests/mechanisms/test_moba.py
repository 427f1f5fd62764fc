"""Mixture of block attention: which blocks a head chooses."""

import pytest
import torch

from attnbench.attention.primitives import fused_attention
from attnbench.mechanisms.moba import CARD, Config
from attnbench.records import Level, Workload

N = 40


def drawn(form="blocked", **options):
    torch.manual_seed(0)
    w = Workload(batch=1, seq_len=N, width=16, heads=4, level=Level.CORE, causal=True)
    return CARD.forms[form](Config(**options), w), torch.randn(3, 1, 4, N, 4)


def test_the_blocks_whose_mean_keys_fit_best():
    module, (q, k, v) = drawn(block=6, blocks=3)
    module.attend(q, k, v, None)
    choice = module.draws(0)["choice"]
    for h in range(4):
        for i in range(N):
            means = [k[0, h, 6 * m : 6 * m + 6].mean(0) for m in range(i // 6)]
            scores = torch.tensor([float(q[0, h, i] @ mean) for mean in means])
            best = scores.argsort(descending=True)[:2].sort()[0]
            assert choice[h, i].nonzero()[:, 0].equal(best)


@pytest.mark.parametrize("form", CARD.forms)
def test_with_all_blocks_it_is_softmax_attention(form):
    module, qkv = drawn(form, block=6, blocks=7)
    torch.testing.assert_close(module.attend(*qkv, None), fused_attention(*qkv, None, causal=True))
