"""Indexed attention: which blocks its index chooses, and that choosing all is dense attention."""

import pytest
import torch

from attnbench.attention.primitives import fused_attention
from attnbench.mechanisms import latent
from attnbench.mechanisms.indexed import CARD, Config
from attnbench.records import Level, Workload

N = 40


def drawn(**options):
    torch.manual_seed(0)
    # with so many heads no scores tie at 0
    config = Config(kv_heads=2, index_heads=16, index_width=5, **options)
    w = Workload(batch=1, seq_len=N, width=16, heads=4, level=Level.CORE, causal=True)
    form = CARD.forms[CARD.default_form(config, w)]
    return form(config, w), [torch.randn(shape) for shape in form.core_inputs(config, w)]


def chosen(module, inputs, mask=None):
    module.attend(*inputs, mask)
    return module.draws(0)["choice"]


def best(scores, count):
    return sorted(torch.tensor(scores).argsort(descending=True)[:count].tolist())


def score(index, key):
    """s of one query, q^I beside w [I, e + 1], and an index key [e]."""
    return float((index[:, -1] * (index[:, :-1] @ key).relu()).sum())


def test_the_blocks_of_the_largest_sums_over_heads_of_the_index():
    module, inputs = drawn(block=4, budget=16)
    *_, index, keys = inputs
    choice = chosen(module, inputs)
    for i in range(N):
        means = [keys[0, 0, 4 * m : 4 * m + 4].mean(0) for m in range(i // 4)]
        scores = [score(index[0, :, i], mean) for mean in means]
        assert choice[0, i].nonzero()[:, 0].tolist() == best(scores, 3)


def test_the_blocks_with_the_largest_score_of_a_token_for_each_head_of_keys():
    module, inputs = drawn(block=4, budget=16, score="each", pool="max")
    *_, index, keys = inputs
    choice = chosen(module, inputs)
    for i in range(N):
        for head in range(2):
            each = keys[0, 0] @ index[0, head, i, :-1]
            scores = [float(each[4 * m : 4 * m + 4].max()) for m in range(i // 4)]
            assert choice[head, i].nonzero()[:, 0].tolist() == best(scores, 3)


def test_a_token_may_leave_itself_out():
    module, inputs = drawn(block=1, budget=3)
    choice = chosen(module, inputs)[0]
    assert choice.sum(-1).tolist() == [1, 2, *[3] * (N - 2)]
    assert not choice.diagonal().all()


@pytest.mark.parametrize("pool", ["mean", "max"])
def test_padding_is_never_worth_choosing(pool):
    module, inputs = drawn(block=4, budget=8, pool=pool)
    mask = torch.ones(1, N, dtype=torch.bool)
    mask[:, :4] = False
    other = [*inputs[:4], inputs[4].clone()]
    other[4][:, :, :4] *= 100
    assert chosen(module, inputs, mask).equal(chosen(module, other, mask))


@pytest.mark.parametrize("block", [1, 4])
def test_with_a_budget_for_all_tokens_it_is_grouped_query_attention(block):
    module, inputs = drawn(block=block, budget=N + block)
    expected = fused_attention(*inputs[:3], None, causal=True, grouped=True)
    torch.testing.assert_close(module.attend(*inputs, None), expected)


@pytest.mark.parametrize("block", [1, 4])
def test_with_a_budget_for_all_tokens_latents_are_latent_attention(block):
    torch.manual_seed(0)
    w = Workload(batch=2, seq_len=N, width=16, heads=4, level=Level.ATTENTION, causal=True)
    module = CARD.forms["sdpa"](Config(block=block, budget=N + block, kv_rank=5), w)
    dense = latent.CARD.forms["eager"](latent.Config(kv_rank=5), w)
    dense.load_state_dict(module.base.state_dict())
    x = torch.randn(2, N, 16)
    torch.testing.assert_close(module(x), dense(x))


def test_a_state_on_latents_holds_them_once():
    w = Workload(batch=2, seq_len=N, width=16, heads=4, level=Level.ATTENTION, causal=True)
    form, config = CARD.forms["eager"], Config(kv_rank=6, block=8, budget=16, index_width=3)
    assert form.state_elements(config, w) == 2 * (N * (6 + 2) + N // 8 * 3)
