"""What every module shares: projections, empty batches, caches, states and chunks."""

from dataclasses import replace
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.attention.contract import (
    BaseConfig,
    CachedAttention,
    InChunks,
    QKVAttention,
    each_alone,
    merge,
    projection_flops,
    projection_parameters,
)
from attnbench.mechanisms import gated_linear, sliding_window, transformer
from attnbench.records import Level, Mode, Workload

W = Workload(batch=2, seq_len=6, width=8, heads=2, level=Level.ATTENTION)


class Grouped(QKVAttention):
    """Queries of two heads, keys and values of one, which are wider."""

    @staticmethod
    def core_inputs(config, w):
        return (
            (w.batch, 2, w.seq_len, 4),
            (w.batch, 1, w.seq_len, 4),
            (w.batch, 1, w.seq_len, 6),
        )

    def attend(self, q, k, v, mask):
        return v.expand(-1, 2, -1, -1)


def test_projections_have_the_sizes_of_the_core():
    module = Grouped(BaseConfig(bias=True), W)
    sizes = {name: tuple(linear.weight.shape) for name, linear in module.named_children()}
    assert sizes == {"query": (8, 8), "key": (4, 8), "value": (6, 8), "output": (8, 12)}
    q, k, v = module.projected(torch.randn(2, 6, 8))
    assert [x.shape[1] for x in (q, k, v)] == [2, 1, 1]
    assert module(torch.randn(2, 6, 8)).shape == (2, 6, 8)
    assert not [*Grouped(BaseConfig(), replace(W, level=Level.CORE)).parameters()]


def test_heads_are_split_and_merged_again():
    x = torch.arange(2 * 6 * 8.0).view(2, 6, 8)
    module = transformer.Transformer(transformer.CARD.config(), W)
    heads = module.split(x)
    assert heads.shape == (2, 2, 6, 4)
    assert torch.equal(heads[:, 1], x[..., 4:])
    assert torch.equal(merge(heads), x)


@pytest.mark.parametrize("masked", [False, True])
def test_an_empty_batch_gives_nothing_and_every_parameter_a_gradient_of_zero(masked):
    module = transformer.Transformer(transformer.CARD.config(bias=True), W)
    mask = torch.ones(0, 6, dtype=torch.bool) if masked else None
    y = module(torch.randn(0, 6, 8), mask)
    assert y.shape == (0, 6, 8)
    y.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in module.parameters())


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 8))
def test_steps_of_several_tokens_need_as_many_slots_more_and_no_more_than_tokens(
    window, tokens, step
):
    class Ring(CachedAttention):
        @staticmethod
        def slots(config, tokens):
            return 1, min(window, tokens)

    fixed, slots = Ring.slots_in_steps(None, tokens, step)
    assert fixed == 1
    assert slots == min(window + step - 1, tokens)


@pytest.mark.parametrize("step", [1, 3])
def test_a_state_has_the_elements_that_are_declared(step):
    w = replace(W, seq_len=20, step=step, mode=Mode.DECODE, causal=True)
    config = sliding_window.CARD.config(window=5)
    cached = sliding_window.CARD.forms["eager"](config, w)
    keys, values, *_ = cached.start(w.batch, w.seq_len)
    assert keys.numel() + values.numel() == cached.state_elements(config, w)
    config = gated_linear.CARD.config()
    recurrent = gated_linear.CARD.forms["eager"](config, w)
    (S, *_) = recurrent.start(w.batch, 0)
    assert S.shape == (2, *recurrent.state_shape(config, w))
    assert recurrent.state_elements(config, w) == 2 * prod(recurrent.state_shape(config, w))


@pytest.mark.parametrize(
    ("by_row", "d", "chunk"), [(False, 64, 64), (False, 16, 32), (True, 64, 32), (True, 16, 16)]
)
def test_chunks_are_as_long_as_is_fastest_unless_the_config_says(by_row, d, chunk):
    form = type("Form", (InChunks,), {"by_row": by_row})
    assert form.chunk(gated_linear.CARD.config(), d) == chunk
    assert form.chunk(gated_linear.CARD.config(chunk=7), d) == 7


def test_tokens_of_a_step_are_counted_as_sequences_of_one():
    w = each_alone(replace(W, step=3))
    assert (w.batch, w.seq_len) == (6, 1)


def test_four_projections_are_counted_by_their_products():
    assert projection_flops(W) == 4 * 2 * 12 * 8 * 8
    assert projection_flops(W, 1) == 2 * 12 * 8 * 8
    module = transformer.Transformer(transformer.CARD.config(bias=True), W)
    found = sum(p.numel() for p in module.parameters())
    assert projection_parameters(BaseConfig(bias=True), W) == found
