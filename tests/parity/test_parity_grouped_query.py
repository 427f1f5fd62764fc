"""Grouped queries with a gate against Qwen3-Next, and with sinks against gpt-oss."""

import pytest
import torch

from attnbench.catalogue.registry import card
from attnbench.mechanisms.grouped_query import Config
from attnbench.records import Level, Workload

D, H, N = 32, 4, 70
W = Workload(batch=2, seq_len=N, width=D, heads=H, level=Level.ATTENTION, causal=True)
CARD = card("grouped_query")
FORMS = pytest.mark.parametrize("form", ["eager", "sdpa", "repeat"])
SIZES = {
    "hidden_size": D,
    "num_attention_heads": H,
    "num_key_value_heads": 2,
    "head_dim": D // H,
    "num_hidden_layers": 1,
    "layer_types": ["full_attention"],
    "attention_bias": False,
    "attn_implementation": "eager",
}
pytestmark = pytest.mark.filterwarnings("ignore")


def compare(ours, theirs, width):
    """Outputs and gradients of x, by layers on the same parameters; `width` numbers are rotated."""
    ours.key, ours.value, ours.output = theirs.k_proj, theirs.v_proj, theirs.o_proj
    future = torch.ones(N, N, dtype=torch.bool).triu(1)
    bias = torch.zeros(1, 1, N, N).masked_fill(future, torch.finfo(torch.float32).min)
    rotation = torch.ones(W.batch, N, width), torch.zeros(W.batch, N, width)
    x, results = torch.randn(W.batch, N, D, requires_grad=True), []
    for y in (ours(x), theirs(x, rotation, bias)[0]):
        results.append((y, *torch.autograd.grad(y.square().sum(), x)))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


@FORMS
def test_a_gate_is_that_of_qwen3_next(form):
    public = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    torch.manual_seed(0)
    theirs = public.Qwen3NextAttention(public.Qwen3NextConfig(**SIZES), 0)
    theirs.q_norm = theirs.k_norm = torch.nn.Identity()
    ours = CARD.forms[form](Config(kv_heads=2, gate=True), W)
    # the rows of W_Q of a head come before those of its gate
    rows = theirs.q_proj.weight.data.unflatten(0, (H, 2, -1))
    ours.query.weight.data, ours.gate.weight.data = (rows[:, i].flatten(0, 1) for i in (0, 1))
    compare(ours, theirs, D // H)


@FORMS
def test_sink_logits_are_those_of_gpt_oss(form):
    public = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    torch.manual_seed(0)
    theirs = public.GptOssAttention(public.GptOssConfig(**SIZES), 0)
    torch.nn.init.normal_(theirs.sinks)
    ours = CARD.forms[form](Config(kv_heads=2, sink_logit=True), W)
    ours.query, ours.sink = theirs.q_proj, theirs.sinks
    compare(ours, theirs, D // H // 2)  # it rotates halves by as many angles
