"""Mamba-2: its own heads, the skip, and strong decays."""

from dataclasses import replace

import pytest
import torch

from attnbench.mechanisms.mamba2 import CARD, Config
from attnbench.records import Level, Workload

SMALL = {"head_width": 8, "state": 6, "chunk": 16}
W = Workload(batch=2, seq_len=40, width=16, heads=4, level=Level.CORE, causal=True)


def build(form="chunked", w=W, **options):
    torch.manual_seed(0)
    return CARD.forms[form](Config(**SMALL | options), w)


def inputs(module, w=W):
    shapes = module.core_inputs(module.config, w)
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize("level", [Level.CORE, Level.ATTENTION])
def test_the_heads_of_the_workload_have_no_effect(form, level):
    shapes = [
        [tuple(p.shape) for p in build(form, replace(W, heads=heads, level=level)).parameters()]
        for heads in (1, 4, 16)
    ]
    assert shapes[0] == shapes[1] == shapes[2]
    flops = {CARD.forms[form].flops(Config(), replace(W, heads=heads)) for heads in (1, 4)}
    assert len(flops) == 1


@pytest.mark.parametrize("form", CARD.forms)
def test_a_step_of_zero_leaves_the_skip(form):
    module = build(form)
    v, k, q, delta = inputs(module)
    o = module.attend(v, k, q, torch.full_like(delta, -1000), None)
    torch.testing.assert_close(o, module.skip[:, None, None] * v)


@pytest.mark.parametrize("form", CARD.forms)
def test_long_steps_forget_all_before_them(form):
    module = build(form)
    v, k, q, delta = inputs(module)
    delta = (delta.detach() + 200).requires_grad_()
    o = module.attend(v, k, q, delta, None)
    now = (q * k).sum(-1).repeat_interleave(4, 1) * (delta + module.beta[:, None])
    now = now + module.skip[:, None]
    torch.testing.assert_close(o, now[..., None] * v, rtol=1e-4, atol=1e-4)
    gradients = torch.autograd.grad(o.sum(), [v, k, q, delta, *module.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("form", CARD.forms)
def test_padding_before_the_tokens_changes_nothing(form):
    module = build(form, replace(W, level=Level.ATTENTION), bias=True)
    x = torch.randn(2, 40, 16)
    mask = (torch.arange(40) >= 9).expand(2, -1)
    torch.testing.assert_close(module(x, mask)[:, 9:], module(x[:, 9:]))


def test_a_state_of_fixed_size():
    counts = {CARD.forms["chunked"].state_elements(Config(), replace(W, seq_len=n)) for n in (1, 9)}
    assert counts == {2 * (32 * 128 + 3 * (32 + 2 * 128))}
