"""RWKV-7: what its state removes and keeps, and the token before."""

import math

import pytest
import torch

from attnbench.attention.recurrence import decay_rule
from attnbench.mechanisms.rwkv7 import CARD, Config
from attnbench.records import Level, Workload
from tests.mechanisms.building import build, core

FORMS = pytest.mark.parametrize("form", CARD.forms)


def filled(value):
    return torch.full((2, 4, 8, 4), value, dtype=torch.float64)


@FORMS
def test_a_full_rate_replaces_the_value_at_a_key(form):
    """Without decay, a query at the key of any token reads the value written last at that key."""
    module = core("rwkv7", form, seq_len=8, chunk=3)
    k = torch.eye(4, dtype=torch.float64).repeat(2, 1).expand(2, 4, -1, -1)
    v = torch.randn(2, 4, 8, 4, dtype=torch.float64)
    o = module.attend(k, k, v, filled(-80.0), filled(80.0), None)
    torch.testing.assert_close(o, v)


@FORMS
def test_without_a_rate_nothing_is_removed(form):
    module = core("rwkv7", form, seq_len=40, chunk=16)
    module.alpha.data.zero_()
    r, k, v, w = torch.randn(4, 2, 4, 40, 4, dtype=torch.float64)
    o = module.attend(r, k, v, w, torch.full_like(w, -80.0), None)
    g = -math.exp(-0.5) * (w + module.by_head(module.b_w)).sigmoid()
    S = torch.zeros(2, 4, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(o, decay_rule(S, g, r, k, v, None)[0])


def test_a_token_reads_the_one_before_it_as_far_as_it_is_mixed_in():
    module = build("rwkv7", "chunked", seq_len=40)
    x = torch.randn(1, 2, 16, dtype=torch.float64)
    module.mu.data.fill_(1.0)
    _, state = module.extend(x, None, module.start(1, 2))
    other = torch.cat([x[:, :1], torch.randn(1, 1, 16, dtype=torch.float64)], 1)
    _, after = module.extend(other, None, module.start(1, 2))
    torch.testing.assert_close(state.S, after.S)
    assert state.inputs.equal(x[:, 1:])
    module.mu.data.fill_(0.5)
    assert not module.extend(other, None, module.start(1, 2))[1].S.allclose(after.S)


def test_ranks_grow_with_the_root_of_the_width():
    for width, gate, expected in ((256, 64, 32), (4096, 320, 160)):
        w = Workload(batch=1, seq_len=8, width=width, heads=4, level=Level.ATTENTION)
        low_ranks = 4 * width * expected + 2 * width * gate
        assert CARD.parameters(Config(), w) == 4 * width**2 + low_ranks + 13 * width
