"""MoBA and native sparse attention: which blocks are chosen, and branches one by one."""

import pytest
import torch

from attnbench.attention.kernels.primitives import fused_attention
from attnbench.attention.kernels.selection import block_means
from tests.mechanisms.building import core, qkv, workload

N, OPEN, SHUT = 40, 1e3, -1e3


def drawn(form="blocked", **options):
    module = core("native_sparse", form, batch=1, seq_len=N, kv_heads=2, **options)
    shapes = module.core_inputs(module.config, workload("native_sparse", batch=1, seq_len=N))
    return module, [torch.randn(shape).double() for shape in shapes]


def test_a_head_of_moba_chooses_the_blocks_whose_mean_keys_fit_best():
    module, (q, k, v) = core("moba", "blocked", block=6, blocks=3), qkv()
    module.attend(q, k, v, None)
    choice = module.draws(0)["choice"]
    for h in range(4):
        for i in range(20):
            means = [k[0, h, 6 * m : 6 * m + 6].mean(0) for m in range(i // 6)]
            scores = torch.tensor([float(q[0, h, i] @ mean) for mean in means])
            best = scores.argsort(descending=True)[:2].sort()[0]
            assert choice[h, i].nonzero()[:, 0].equal(best)


def test_native_sparse_takes_the_first_the_last_and_those_attended_to_most():
    module, (q, k, v, g) = drawn(block=4, blocks=5)
    module.attend(q, k, v, g, None)
    choice = module.draws(0)["choice"]
    for group in range(2):
        for i in range(N):
            own, ended = i // 4, (i + 1) // 4
            means = [k[0, group, 4 * m : 4 * m + 4].mean(0) for m in range(ended)]
            forced, weights = {0, own - 1} & {*range(own)}, torch.zeros(own).double()
            for h in (2 * group, 2 * group + 1):
                if means:
                    p = (torch.stack(means) @ q[0, h, i] / 2).softmax(0)
                    weights += p[:own]
            others = [m for m in weights.argsort(descending=True).tolist() if m not in forced]
            expected = sorted([*forced, *others[: 4 - len(forced)]])
            assert choice[group, i].nonzero()[:, 0].tolist() == expected


@pytest.mark.parametrize("form", ["eager", "blocked"])  # flex_attention has no float64
@pytest.mark.parametrize("branch", [1, 2])
def test_with_all_blocks_a_branch_of_native_sparse_is_grouped_query_attention(form, branch):
    module, (q, k, v, g) = drawn(form, block=4, blocks=20, window=N)
    g.fill_(SHUT)
    g[..., branch] = OPEN
    expected = fused_attention(q, k, v, None, causal=True)
    torch.testing.assert_close(module.attend(q, k, v, g, None), expected)


@pytest.mark.parametrize("C", [1, 4, 7], ids=lambda C: f"moba native_sparse indexed {C}")
def test_the_mean_of_a_block_leaves_out_its_padding(C):
    k, mask = torch.randn(2, 3, 18, 5).double(), torch.ones(2, 18, dtype=torch.bool)
    mask[0, 10:] = mask[1, :3] = mask[1, 9] = False
    means = block_means(k, mask, C)
    for b in range(2):
        for m in range(means.shape[2]):
            real = k[b, :, m * C : (m + 1) * C][:, mask[b, m * C : (m + 1) * C]]
            expected = real.mean(1) if real.shape[1] else torch.zeros(3, 5).double()
            torch.testing.assert_close(means[b, :, m], expected)
