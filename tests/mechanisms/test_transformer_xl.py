"""Transformer-XL: context of a segment, and where gradients stop."""

import pytest
import torch

from attnbench.mechanisms import transformer_xl
from tests.mechanisms.building import build, reads


@pytest.mark.parametrize(("segment", "memory"), [(4, 4), (4, 6), (5, 3), (3, 9), (4, 0), (1, 1)])
def test_a_token_reads_its_segment_and_the_memory_before_it(segment, memory):
    read = reads(build("transformer_xl", segment=segment, memory=memory))
    i, j = torch.arange(20)[:, None], torch.arange(20)
    assert read.equal((i // segment * segment - memory <= j) & (j <= i))


def test_gradients_stop_at_the_segment():
    module = build("transformer_xl", segment=4, memory=8)
    x = torch.randn(1, 20, 16, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(module(x)[0, 14].sum(), x)
    reached = (gradient[0] != 0).any(-1)
    assert reached.nonzero().flatten().tolist() == [12, 13, 14]


def test_projections_receive_gradients_as_if_the_memory_were_projected_separately():
    module = build("transformer_xl", segment=4, memory=6, bias=True)

    def twice(linear, x):
        return module.split(linear(x)), module.split(linear(x.detach()))

    x = torch.randn(1, 20, 16, dtype=torch.float64, requires_grad=True)
    inputs = [x, *module.parameters()]
    once = torch.autograd.grad(module(x).square().sum(), inputs)
    module.recalled = twice
    for a, b in zip(once, torch.autograd.grad(module(x).square().sum(), inputs), strict=True):
        torch.testing.assert_close(a, b)


def test_equal_segments_are_merged_and_nothing_is_padded():
    groups = transformer_xl.groups(1000, 128, 256)
    assert sum(g.segments * g.length for g in groups) == 1000
    assert [(g.start, g.segments, g.length, g.keys) for g in groups] == [
        (0, 1, 128, 128),
        (128, 1, 128, 256),
        (256, 5, 128, 384),
        (896, 1, 104, 360),
    ]
