"""Mixture of block attention: which blocks a head chooses."""

import torch

from tests.mechanisms.building import core, qkv


def test_the_blocks_whose_mean_keys_fit_best():
    module, (q, k, v) = core("moba", "blocked", block=6, blocks=3), qkv()
    module.attend(q, k, v, None)
    choice = module.draws(0)["choice"]
    for h in range(4):
        for i in range(20):
            means = [k[0, h, 6 * m : 6 * m + 6].mean(0) for m in range(i // 6)]
            scores = torch.tensor([float(q[0, h, i] @ mean) for mean in means])
            best = scores.argsort(descending=True)[:2].sort()[0]
            assert choice[h, i].nonzero()[:, 0].equal(best)
