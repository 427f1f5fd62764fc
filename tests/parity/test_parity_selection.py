"""Indexed attention against public references and layers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from attnbench.attention.kernels.selection import allowed_tokens
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Workload
from tests.oracles.plain import naive

B, N, H, D = 2, 70, 4, 8
W = Workload(batch=B, seq_len=N, width=H * D, heads=H, level=Level.CORE, causal=True)
pytestmark = pytest.mark.filterwarnings("ignore")


def drawn(mechanism, config):
    torch.manual_seed(0)
    return [torch.randn(shape) for shape in mechanism.forms["eager"].core_inputs(config, W)]


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


@pytest.mark.parametrize("count", [1, 3])
def test_means_of_blocks_are_the_pools_of_glm_5(count):
    """Where the own block is incomplete; of complete ones theirs is one of many."""
    public = pytest.importorskip("transformers.models.glm5_next.modeling_glm5_next")
    C, e, heads = 8, 6, 16
    mechanism = card("indexed")
    sizes = {"block": C, "budget": (count + 1) * C, "index_heads": heads, "index_width": e}
    config = mechanism.config(kv_heads=2, **sizes)
    q, k, v, index, keys = drawn(mechanism, config)
    sizes = {"hidden_size": 1, "index_n_heads": heads, "index_head_dim": e, "q_lora_rank": 1}
    sizes |= {"qk_rope_head_dim": 0, "index_topk": count * C, "index_kpool": C}
    theirs = public.Glm5NextTextIndexer(
        SimpleNamespace(**sizes, index_kpool_always_select_tail=True), 0
    )
    theirs.wq_b, theirs.wk = Given(index[..., :-1].transpose(1, 2).flatten(2)), Given(keys[:, 0])
    theirs.k_norm, theirs.weights_proj = torch.nn.Identity(), Given(index[..., -1].mT)
    x = torch.zeros(B, N, 1)
    tokens = theirs(x, x, torch.ones(B, N, dtype=torch.bool), None).long()
    allowed = torch.zeros(B, N, N + 1, dtype=torch.bool)
    allowed = allowed.scatter(-1, tokens.where(tokens >= 0, N), True)[..., :N]
    ours = mechanism.forms["blocked"](config, W)
    ours.attend(q, k, v, index, keys, None)
    found = allowed_tokens(ours.choice, 0, N, C)[:, 0].tril()
    incomplete = (torch.arange(N) + 1) % C > 0
    assert found[:, incomplete].equal(allowed[:, incomplete])


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_on_latents_it_is_the_layer_of_deepseek_v3_2(form):
    from transformers.models.deepseek_v32 import modeling_deepseek_v32 as public

    mechanism, w = card("indexed"), replace(W, level=Level.ATTENTION)
    config = mechanism.config(block=1, budget=9, kv_rank=12, index_heads=16, index_width=6)
    torch.manual_seed(0)
    ours = mechanism.forms[form](config, w)
    sizes = {"hidden_size": H * D, "num_attention_heads": H, "num_key_value_heads": H}
    sizes |= {"q_lora_rank": H * D, "kv_lora_rank": 12, "qk_nope_head_dim": D, "v_head_dim": D}
    sizes |= {"qk_rope_head_dim": D // 2, "index_n_heads": 16, "index_head_dim": 6}
    theirs = public.DeepseekV32Attention(
        public.DeepseekV32Config(
            **sizes, index_topk=9, num_hidden_layers=1, attn_implementation="sdpa"
        ),
        0,
    )
    base = ours.base
    theirs.q_a_proj = theirs.q_a_layernorm = torch.nn.Identity()
    theirs.q_b_proj, theirs.kv_a_proj_with_mqa = base.query, base.down
    theirs.kv_a_layernorm.weight, theirs.kv_b_proj = base.norm.weight, base.up
    theirs.o_proj, index = base.output, theirs.indexer
    for linear, drawn in zip(
        (index.wq_b, index.weights_proj, index.wk), ours.drawn.split([16 * 6, 16, 6]), strict=True
    ):
        linear.weight.data = drawn
    x = torch.randn(B, N, H * D, requires_grad=True)
    past = torch.ones(N, N, dtype=torch.bool).tril().expand(B, 1, -1, -1)
    rotation = torch.ones(B, N, D // 2), torch.zeros(B, N, D // 2)
    results = [
        (y, *torch.autograd.grad(y.square().sum(), (x, *base.parameters())))
        for y in (ours(x), theirs(x, rotation, past)[0])
    ]
    assert_close(*results, rtol=1e-4, atol=1e-5)


class Given(torch.nn.Module):
    """A layer with outputs of its own; `weight` says their type."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = self.weight = outputs

    def forward(self, x):
        return self.outputs
