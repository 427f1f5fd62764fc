"""Native sparse attention: which blocks a group chooses, and its branches one by one."""

import pytest
import torch

from attnbench.attention.primitives import fused_attention
from attnbench.mechanisms.native_sparse import CARD
from tests.mechanisms.building import core, workload

N, OPEN, SHUT = 40, 1e3, -1e3


def drawn(form="blocked", **options):
    module = core("native_sparse", form, batch=1, seq_len=N, kv_heads=2, **options)
    shapes = module.core_inputs(module.config, workload("native_sparse", batch=1, seq_len=N))
    return module, [torch.randn(shape).double() for shape in shapes]


def test_the_first_the_last_and_the_blocks_that_a_group_attends_to_most():
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


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize("branch", [1, 2])
def test_with_all_blocks_or_a_long_window_a_branch_is_grouped_query_attention(form, branch):
    module, (q, k, v, g) = drawn(form, block=4, blocks=20, window=N)
    g.fill_(SHUT)
    g[..., branch] = OPEN
    expected = fused_attention(q, k, v, None, causal=True, grouped=True)
    torch.testing.assert_close(module.attend(q, k, v, g, None), expected)


@pytest.mark.parametrize("form", CARD.forms)
def test_a_window_holds_so_many_tokens_with_the_token_itself(form):
    module, (q, k, v, g) = drawn(form, block=4, blocks=3, window=1)
    g.fill_(SHUT)
    g[..., 2] = OPEN
    torch.testing.assert_close(module.attend(q, k, v, g, None), v.repeat_interleave(2, 1))
