"""Kimi delta attention: its decays by channel."""

import pytest
import torch

from attnbench.mechanisms import gated_delta_net
from attnbench.mechanisms.kimi_delta import CARD, Config
from attnbench.records import Level, Workload

W = Workload(batch=2, seq_len=40, width=16, heads=4, level=Level.CORE, causal=True)


def build(form, **options):
    torch.manual_seed(0)
    return CARD.forms[form](Config(**options), W)


@pytest.mark.parametrize("form", CARD.forms)
def test_with_equal_decays_of_all_channels_it_is_the_gated_delta_rule(form):
    module = build(form, chunk=8).double()
    config = gated_delta_net.Config(expand=1)
    scalar = gated_delta_net.CARD.forms["eager"](config, W).double()
    scalar.A.data, scalar.b.data = module.A.data, torch.zeros(4).double()
    module.b.data.zero_()
    q, k, v = torch.randn(3, 2, 4, 40, 4, dtype=torch.float64)
    beta, alpha = torch.randn(2, 2, 4, 40, dtype=torch.float64)
    o = module.attend(q, k, v, beta, alpha[..., None].expand_as(q), None)
    expected = scalar.attend(q, k, v, torch.cat([beta, alpha], 1), None)
    torch.testing.assert_close(o, expected)


@pytest.mark.parametrize("form", CARD.forms)
def test_a_channel_that_forgets_everything_leaves_the_others_alone(form):
    module = build(form)
    inputs = [torch.randn(shape) for shape in module.core_inputs(module.config, W)]
    inputs[4][..., 0] = 1e4
    for tensor in inputs:
        tensor.requires_grad_()
    o = module.attend(*inputs, None)
    gradients = torch.autograd.grad(o.sum(), [*inputs, *module.parameters()])
    assert o.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[4][..., 1:] != 0).any()
