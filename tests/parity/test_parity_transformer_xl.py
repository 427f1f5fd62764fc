"""Transformer-XL against transformers' RelPartialLearnableMultiHeadAttn, segment by segment."""

import warnings

import pytest
import torch

from attnbench.mechanisms import transformer_xl
from attnbench.records import Level, Workload

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    package = pytest.importorskip(
        "transformers.models.deprecated.transfo_xl.modeling_transfo_xl",
        reason="pip install transformers==4.46.3",
    )

WIDTH, HEADS = 64, 4


def swept(layer, x, segment, memory):
    """Outputs of the package's layer, segment by segment, with a detached memory."""
    positions = package.PositionalEmbedding(WIDTH)
    x, outputs = x.transpose(0, 1), []
    for start in range(0, len(x), segment):
        now, old = x[start : start + segment], x[max(0, start - memory) : start].detach()
        keys = len(old) + len(now)
        r = positions(torch.arange(keys - 1, -1, -1.0))
        # the package needs a third axis to broadcast the mask over the batch
        future = torch.ones(len(now), keys).triu(1 + len(old)).bool()[..., None]
        outputs.append(layer(now, r, attn_mask=future, mems=old)[0])
    return torch.cat(outputs).transpose(0, 1)


@pytest.mark.parametrize("form", ["eager", "recomputed"])
@pytest.mark.parametrize(("segment", "memory"), [(6, 6), (5, 11)])
def test_it_equals_the_packages_layer_without_residual_and_norm(form, segment, memory):
    torch.manual_seed(0)
    layer = package.RelPartialLearnableMultiHeadAttn(HEADS, WIDTH, WIDTH // HEADS, 0.0)
    torch.nn.init.normal_(layer.r_w_bias)
    torch.nn.init.normal_(layer.r_r_bias)
    config = transformer_xl.Config(segment=segment, memory=memory)
    w = Workload(batch=2, seq_len=20, width=WIDTH, heads=HEADS, level=Level.ATTENTION, causal=True)
    module = transformer_xl.CARD.forms[form](config, w)
    with torch.no_grad():
        query, key, value = layer.qkv_net.weight.chunk(3)
        module.query.weight.copy_(query)
        module.key.weight.copy_(key)
        module.value.weight.copy_(value)
        module.output.weight.copy_(layer.o_net.weight)
        module.position.weight.copy_(layer.r_net.weight)
        module.u.copy_(layer.r_w_bias[:, None])
        module.v.copy_(layer.r_r_bias[:, None])
    x = torch.randn(2, 20, WIDTH, requires_grad=True)
    ours, theirs = layer.layer_norm(x + module(x)), swept(layer, x, segment, memory)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    g = torch.randn_like(x)
    a, b = (torch.autograd.grad((y * g).sum(), x)[0] for y in (ours, theirs))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
