"""Compressive Transformer against compressive-transformer-pytorch, which has no positions."""

import warnings

import pytest
import torch

from attnbench.mechanisms import compressive_transformer
from attnbench.records import Level, Workload

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    package = pytest.importorskip(
        "compressive_transformer_pytorch.compressive_transformer_pytorch",
        reason="pip install compressive-transformer-pytorch",
    )

WIDTH, HEADS, N = 32, 4, 26


def swept(layer, x, segment):
    """Outputs and losses of the package's layer, segment by segment, with detached memories."""
    memories, outputs, losses = None, [], []
    for now in x.split(segment, 1):
        y, memories, loss = layer(now, memories)
        memories = tuple(memory.detach() for memory in memories)
        outputs.append(y)
        losses.append(float(loss.detach()))
    return torch.cat(outputs, 1), losses


def pair(segment, memory, slots, rate):
    torch.manual_seed(0)
    layer = package.SelfAttention(WIDTH, segment, memory, slots, rate, heads=HEADS).double()
    config = compressive_transformer.Config(
        segment=segment, memory=memory, compressed=slots, rate=rate
    )
    w = Workload(batch=2, seq_len=N, width=WIDTH, heads=HEADS, level=Level.ATTENTION, causal=True)
    module = compressive_transformer.CompressiveTransformer(config, w).double()
    key, value = layer.to_kv.weight.chunk(2)
    conv = layer.compress_mem_fn.conv
    with torch.no_grad():
        module.query.weight.copy_(layer.to_q.weight)
        module.key.weight.copy_(key)
        module.value.weight.copy_(value)
        module.output.weight.copy_(layer.to_out.weight)
        module.compress.weight.copy_(conv.weight.transpose(1, 2).flatten(1))
        for unused in (module.position.weight, module.u, module.v, layer.to_out.bias, conv.bias):
            unused.zero_()
    return module, layer


@pytest.mark.parametrize(
    ("segment", "memory", "slots", "rate"), [(4, 4, 4, 2), (6, 6, 3, 3), (4, 8, 2, 4)]
)
def test_it_equals_the_packages_layer(segment, memory, slots, rate):
    module, layer = pair(segment, memory, slots, rate)
    x = torch.randn(2, N, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(module.eval()(x), swept(layer.eval(), x, segment)[0])


def test_the_loss_equals_the_packages_if_the_memory_is_one_segment():
    module, layer = pair(4, 4, 6, 2)
    x = torch.randn(2, N, WIDTH, dtype=torch.float64)
    module.train()(x)
    losses = swept(layer.train(), x, 4)[1]
    # nothing leaves in the first segment or in the incomplete last one
    expected = torch.tensor(losses[1:-1], dtype=torch.float64).mean()
    torch.testing.assert_close(module.auxiliary_loss().detach(), expected)
