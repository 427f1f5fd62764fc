"""Kimi delta attention: its decays by channel."""

import pytest
import torch

from attnbench.mechanisms.kimi_delta import CARD
from tests.mechanisms.building import core, workload


@pytest.mark.parametrize("form", CARD.forms)
def test_with_equal_decays_of_all_channels_it_is_the_gated_delta_rule(form):
    module = core("kimi_delta", form, seq_len=40, chunk=8)
    scalar = core("gated_delta_net", seq_len=40, expand=1)
    scalar.A.data, scalar.b.data = module.A.data, torch.zeros(4).double()
    module.b.data.zero_()
    q, k, v = torch.randn(3, 2, 4, 40, 4, dtype=torch.float64)
    beta, alpha = torch.randn(2, 2, 4, 40, dtype=torch.float64)
    o = module.attend(q, k, v, beta, alpha[..., None].expand_as(q), None)
    expected = scalar.attend(q, k, v, torch.cat([beta, alpha], 1), None)
    torch.testing.assert_close(o, expected)


@pytest.mark.parametrize("form", CARD.forms)
def test_a_channel_that_forgets_everything_leaves_the_others_alone(form):
    module = core("kimi_delta", form, seq_len=40).float()
    inputs = [
        torch.randn(shape)
        for shape in module.core_inputs(module.config, workload("kimi_delta", seq_len=40))
    ]
    inputs[4][..., 0] = 1e4
    for tensor in inputs:
        tensor.requires_grad_()
    o = module.attend(*inputs, None)
    gradients = torch.autograd.grad(o.sum(), [*inputs, *module.parameters()])
    assert o.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[4][..., 1:] != 0).any()
