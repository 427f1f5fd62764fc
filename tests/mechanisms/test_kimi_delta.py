"""Kimi delta attention: its decays by channel, and what training keeps and allocates."""

import pytest
import torch

from attnbench.mechanisms import gated_delta_net
from attnbench.mechanisms.kimi_delta import CARD, Config
from attnbench.records import Level, Workload
from tests.kept import assert_linear, kept_bytes


def build(form="chunked", seq_len=40, level=Level.CORE, **options):
    torch.manual_seed(0)
    w = Workload(batch=2, seq_len=seq_len, width=16, heads=4, level=level, causal=True)
    return CARD.forms[form](Config(**options), w)


@pytest.mark.parametrize("form", CARD.forms)
def test_with_equal_decays_of_all_channels_it_is_the_gated_delta_rule(form):
    module = build(form, chunk=8).double()
    scalar = gated_delta_net.CARD.forms["eager"](
        gated_delta_net.Config(expand=1),
        Workload(batch=2, seq_len=40, width=16, heads=4, level=Level.CORE, causal=True),
    ).double()
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
    inputs = [torch.randn(shape) for shape in module.core_inputs(module.config, WORKLOAD)]
    inputs[4][..., 0] = 1e4
    for tensor in inputs:
        tensor.requires_grad_()
    o = module.attend(*inputs, None)
    gradients = torch.autograd.grad(o.sum(), [*inputs, *module.parameters()])
    assert o.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[4][..., 1:] != 0).any()


WORKLOAD = Workload(batch=2, seq_len=40, width=16, heads=4, level=Level.CORE, causal=True)


def test_what_training_keeps_is_linear_in_length():
    def kept(seq_len):
        module = build(seq_len=seq_len, level=Level.ATTENTION)
        return kept_bytes(module, torch.randn(1, seq_len, 16))[0]

    assert_linear(kept)


def test_what_the_core_keeps_for_training_is_below_four_times_its_inputs():
    w = Workload(batch=1, seq_len=8192, width=256, heads=16, level=Level.CORE, causal=True)
    module = CARD.forms["chunked"](Config(), w)
    inputs = [torch.randn(shape).requires_grad_() for shape in module.core_inputs(Config(), w)]
    kept, _ = kept_bytes(module.attend, *inputs, None)
    assert kept < 4 * sum(tensor.nbytes for tensor in inputs)


def test_padding_leaves_the_state_as_it_is():
    module = build(level=Level.ATTENTION).double()
    x, mask = torch.randn(1, 12, 16, dtype=torch.float64), torch.ones(1, 12, dtype=torch.bool)
    mask[0, 7:] = False
    _, padded = module.extend(x, mask, module.start(1, 12))
    _, short = module.extend(x[:, :7], None, module.start(1, 12))
    torch.testing.assert_close(padded.S, short.S)
