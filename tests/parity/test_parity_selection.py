"""Forgetting and indexed attention against public references and layers."""

import pytest
import torch
from torch.testing import assert_close

from attnbench.attention.selection import allowed_tokens
from attnbench.catalogue.registry import card
from attnbench.records import Level, Workload
from tests.parity.test_parity_recurrence import naive

B, N, H, D = 2, 70, 4, 8
W = Workload(batch=B, seq_len=N, width=H * D, heads=H, level=Level.CORE, causal=True)
pytestmark = pytest.mark.filterwarnings("ignore")


def drawn(mechanism, config):
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in mechanism.forms["eager"].core_inputs(config, W)]


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_forgetting_attention_of_flash_linear_attention(form):
    mechanism = card("forgetting")
    config = mechanism.config()
    q, k, v, f = drawn(mechanism, config)
    o = mechanism.forms[form](config, W).attend(q, k, v, f, None)
    swapped = (t.transpose(1, 2) for t in (q, k, v, f.sigmoid().log()))
    expected = naive("forgetting_attn").naive_forgetting_attn(*swapped)
    assert_close(o.transpose(1, 2), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_token_by_token_it_is_deepseek_sparse_attention(form):
    mechanism = card("indexed")
    config = mechanism.config(block=1, budget=9, kv_heads=2, index_heads=16, index_width=5)
    q, k, v, index, keys = drawn(mechanism, config)
    o = mechanism.forms[form](config, W).attend(q, k, v, index, keys, None)
    # with many heads of the index no scores tie at 0, where either has an order of its own
    swapped = (t.transpose(1, 2) for t in (q, k, v, index[..., :-1]))
    expected = naive("dsa").naive_dsa(*swapped, keys[:, 0], index[..., -1].mT, topk=9)
    assert_close(o.transpose(1, 2), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("block", "budget"), [(4, 12), (16, 32), (7, 7)])
def test_one_choice_for_each_head_of_keys_is_that_of_minimax_m3(block, budget):
    from transformers.models.minimax_m3_vl import modeling_minimax_m3_vl as public

    K, e = 2, 6
    mechanism = card("indexed")
    sizes = {"block": block, "budget": budget, "index_width": e, "kv_heads": K}
    config = mechanism.config(score="each", pool="max", **sizes)
    q, k, v, index, keys = drawn(mechanism, config)
    ours = mechanism.forms["blocked"](config, W)
    ours.attend(q, k, v, index, keys, None)
    theirs = public.MiniMaxM3VLIndexer.__new__(public.MiniMaxM3VLIndexer)
    torch.nn.Module.__init__(theirs)
    theirs.head_dim, theirs.num_heads, theirs.block_size = e, K, block
    theirs.topk_blocks, theirs.local_blocks = budget // block, 1
    theirs.q_proj = lambda x: index[..., :-1].transpose(1, 2).flatten(2)
    theirs.k_proj = lambda x: keys[:, 0]
    theirs.q_norm = theirs.k_norm = torch.nn.Identity()
    theirs.config = type("Sizes", (), {"num_attention_heads": K})
    positions = torch.arange(N).expand(B, -1)
    rotation = torch.ones(B, N, e), torch.zeros(B, N, e)
    chosen = theirs(torch.zeros(B, N, 1), rotation, None, positions)
    bias = theirs.build_block_mask(chosen, None, N, torch.float32, q.device, positions)
    assert allowed_tokens(ours.choice, 0, N, block).tril().equal(bias == 0)
