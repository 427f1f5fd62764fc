"""Compressive Transformer against compressive-transformer-pytorch, which has no positions."""

import pytest
import torch

from attnbench.mechanisms.compressive_transformer import Config
from attnbench.records import Level, Workload
from tests.oracles import pair

WIDTH, N = 32, 26


def same_parameters(segment, memory, slots, rate):
    """Ours and the package's form, with the package's parameters and without positions."""
    config = Config(segment=segment, memory=memory, compressed=slots, rate=rate)
    w = Workload(batch=2, seq_len=N, width=WIDTH, heads=4, level=Level.ATTENTION, causal=True)
    forms = ("compressive_transformer_pytorch", "eager")
    theirs, ours = pair("compressive_transformer", forms, config, w)
    layer = theirs.package_layer
    key, value = layer.to_kv.weight.chunk(2)
    conv = layer.compress_mem_fn.conv
    with torch.no_grad():
        ours.query.weight.copy_(layer.to_q.weight)
        ours.key.weight.copy_(key)
        ours.value.weight.copy_(value)
        ours.output.weight.copy_(layer.to_out.weight)
        ours.compress.weight.copy_(conv.weight.transpose(1, 2).flatten(1))
        for unused in (ours.position.weight, ours.u, ours.v, layer.to_out.bias, conv.bias):
            unused.zero_()
    return ours, theirs


@pytest.mark.parametrize(
    ("segment", "memory", "slots", "rate"), [(4, 4, 4, 2), (6, 6, 3, 3), (4, 8, 2, 4)]
)
def test_it_equals_the_packages_layer(segment, memory, slots, rate):
    ours, theirs = same_parameters(segment, memory, slots, rate)
    x = torch.randn(2, N, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_the_loss_equals_the_packages_if_the_memory_is_one_segment():
    ours, theirs = same_parameters(4, 4, 6, 2)
    x = torch.randn(2, N, WIDTH, dtype=torch.float64)
    ours.train()(x)
    theirs.train()(x)
    # nothing leaves in the first segment or in the incomplete last one
    assert [loss.is_leaf for loss in theirs.losses] == [True, *[False] * 5, True]
    loss = torch.stack(theirs.losses[1:-1]).mean()
    torch.testing.assert_close(ours.auxiliary_loss(), loss)
