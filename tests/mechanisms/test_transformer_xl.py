"""Transformer-XL: limit case, context of a segment, where gradients stop, stored tensors."""

import pytest
import torch

from attnbench.mechanisms import transformer, transformer_xl
from attnbench.records import Level, Mode, Workload
from tests.kept import kept_bytes


def workload(seq_len, **sizes):
    sizes = {"batch": 2, "width": 16, "heads": 4, "level": Level.ATTENTION, **sizes}
    return Workload(seq_len=seq_len, causal=True, **sizes)


def build(seq_len=20, form="eager", **options):
    torch.manual_seed(0)
    config = transformer_xl.Config(**options)
    return transformer_xl.CARD.forms[form](config, workload(seq_len)).double()


def test_one_segment_without_positions_is_causal_softmax_attention():
    module = build(13, segment=50)
    full = transformer.Transformer(transformer.Config(), workload(13)).double()
    full.load_state_dict(module.state_dict(), strict=False)
    with torch.no_grad():
        for parameter in (module.position.weight, module.u, module.v):
            parameter.zero_()
    x = torch.randn(2, 13, 16, dtype=torch.float64)
    torch.testing.assert_close(module(x), full(x))


@pytest.mark.parametrize(("segment", "memory"), [(4, 4), (4, 6), (5, 3), (3, 9), (4, 0), (1, 1)])
def test_a_token_reads_its_segment_and_the_memory_before_it(segment, memory):
    module = build(segment=segment, memory=memory)
    x = torch.randn(1, 20, 16, dtype=torch.float64)
    y = module(x)
    for j in range(20):
        other = x.clone()
        other[0, j] += 1
        reached = (module(other) != y).any(-1)[0]
        for i in range(20):
            start = i // segment * segment
            assert reached[i] == (max(0, start - memory) <= j <= i), (i, j)


def test_gradients_stop_at_the_segment():
    module = build(segment=4, memory=8)
    x = torch.randn(1, 20, 16, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(module(x)[0, 14].sum(), x)
    reached = (gradient[0] != 0).any(-1)
    assert reached.nonzero().flatten().tolist() == [12, 13, 14]


def test_projections_receive_gradients_as_if_the_memory_were_projected_separately():
    module = build(segment=4, memory=6, bias=True)

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


def test_recomputing_keeps_no_scores():
    x = torch.randn(2, 256, 16, dtype=torch.float64, requires_grad=True)
    scores = 2 * 4 * 256 * 64 * 8
    eager, y = kept_bytes(build(256, segment=32, memory=32), x)
    less, y2 = kept_bytes(build(256, "recomputed", segment=32, memory=32), x)
    torch.testing.assert_close(y, y2)
    assert eager > scores * 0.9
    assert less < scores * 0.6


def test_long_training_recomputes():
    choose, config = transformer_xl.CARD.default, transformer_xl.Config()
    long = {"width": 256, "heads": 16, "batch": 1}
    assert choose(config, workload(65_536, mode=Mode.TRAINING, **long)) == "recomputed"
    assert choose(config, workload(2_048, mode=Mode.TRAINING, **long)) == "eager"
