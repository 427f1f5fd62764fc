"""Gated DeltaNet: what its state remembers, and strong decays."""

import pytest
import torch

from attnbench.mechanisms.gated_delta_net import CARD, Config
from tests.mechanisms.building import core, workload

NAME = "gated_delta_net"


@pytest.mark.parametrize("form", CARD.forms)
def test_deltanet_replaces_the_value_at_a_key(form):
    """With β = 1, a query at the key of any token reads the value written last at that key."""
    module = core(NAME, form, seq_len=8, gate=False, chunk=3)
    k = torch.eye(4, dtype=torch.float64).repeat(2, 1).expand(2, 4, -1, -1)
    v = torch.randn(2, 4, 8, 4, dtype=torch.float64)
    rates = torch.full((2, 4, 8), 50.0, dtype=torch.float64)
    o = module.attend(k, k, v, rates, None)
    # a query has length 1 / √d; what is added to squared lengths shortens keys by some 1e-6
    torch.testing.assert_close(2 * o, v, rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", CARD.forms)
def test_a_gate_that_closes_leaves_the_last_token_alone(form):
    module = core(NAME, form, seq_len=40).float()
    q, k = torch.randn(2, 2, 4, 40, 4)
    v, rates = torch.randn(2, 4, 40, 8), torch.randn(2, 8, 40)
    rates[:, 4:] = 100.0
    inputs = [t.requires_grad_() for t in (q, k, v, rates)]
    o = module.attend(*inputs, None)
    last = module.attend(*(t[:, :, 7:8] for t in inputs), None)
    torch.testing.assert_close(o[:, :, 7:8], last)
    gradients = torch.autograd.grad(o.sum(), [*inputs, *module.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_negative_step_overshoots():
    rates = torch.zeros(1, 4, 1)
    half, full = (
        core(NAME, gate=False, negative=n).float().step_sizes(rates)[0] for n in (False, True)
    )
    assert (half == 0.5).all()
    assert (full == 1).all()


@pytest.mark.parametrize("form", CARD.forms)
def test_more_heads_of_values_share_keys_as_if_these_were_repeated(form):
    module = core(NAME, form, seq_len=40, value_heads=8, chunk=16)
    given = {"seq_len": 40, "width": 32, "heads": 8}
    repeated = core(NAME, **given, expand=1)
    repeated.load_state_dict(module.state_dict())
    w = workload(NAME, **given)
    inputs = [torch.randn(shape).double() for shape in repeated.core_inputs(Config(expand=1), w)]
    inputs[:2] = (t[:, ::2] for t in inputs[:2])
    twice = [t.repeat_interleave(2, 1) for t in inputs[:2]]
    expected = repeated.attend(*twice, *inputs[2:], None)
    torch.testing.assert_close(module.attend(*inputs, None), expected)


def test_deltanet_has_values_as_wide_as_keys():
    assert Config(gate=False).wider == 1
    assert Config().wider == 2
    assert Config(gate=False, expand=3).wider == 3
