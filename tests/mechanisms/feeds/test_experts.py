"""A mixture of experts: which ones a token passes through, in both forms."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from attnbench.mechanisms.feeds import experts
from attnbench.mechanisms.feeds.experts import CARD, Config, Experts, Grouped, drawn
from attnbench.records import Level, Workload

W = Workload(batch=2, seq_len=9, width=16, heads=1, level=Level.ATTENTION)
X = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("config", CARD.examples)
def test_each_token_passes_through_its_experts_by_their_weights(config):
    module = Experts(config, W).double()
    x = X.double()
    with torch.no_grad():
        y = module(x)
        assert_close(y[0], CARD.reference(module, x[0], None, {}))
        weights, chosen = module.routed(x.flatten(0, 1))
    assert chosen.shape == (18, config.used)
    assert all(len({*row}) == config.used for row in chosen.tolist())
    assert_close(weights.sum(-1), torch.ones(18).double())
    assert sum(p.numel() for p in module.parameters()) == CARD.parameters(config, W)


@pytest.mark.parametrize("config", CARD.examples)
def test_tokens_sorted_by_expert_give_the_same(config):
    if reason := Grouped.needs(config, W):
        pytest.skip(reason)
    torch.manual_seed(0)
    plain, grouped = Experts(config, W), Grouped(config, W)
    grouped.load_state_dict(plain.state_dict())
    with torch.no_grad():
        assert_close(grouped(X), plain(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"used": 9}, "used is 9; a token has at most the 8 experts"),
        ({"shared_gate": True}, "shared_gate needs an expert that all tokens share"),
        ({"number": 0}, "number is 0; it must be at least 1"),
    ],
)
def test_what_no_token_could_use_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        Config(**options)


@pytest.mark.parametrize(
    ("changes", "inner", "said"),
    [
        ({}, 16, ""),
        ({"dtype": "float64"}, 16, "has no float64"),
        ({"width": 18}, 16, "a multiple of 16 bytes"),
        ({}, 18, "a multiple of 16 bytes"),
        ({"dtype": "bfloat16"}, 12, "a multiple of 16 bytes"),
    ],
)
def test_groups_are_multiplied_at_once_where_torch_can(changes, inner, said, monkeypatch):
    monkeypatch.setattr(experts.functional, "grouped_mm", len, raising=False)
    config, w = Config(inner=inner), replace(W, **changes)
    reason = Grouped.needs(config, w) or ""
    assert said in reason
    assert bool(reason) is bool(said)
    assert CARD.default_form(config, w) == ("eager" if said else "grouped")
    monkeypatch.delattr(experts.functional, "grouped_mm")
    assert "has no grouped_mm" in Grouped.needs(config, w)


def test_work_is_that_of_the_experts_that_are_used_and_of_the_one_that_all_share():
    few, many = (Experts.flops(Config(inner=16, number=n), W) for n in (8, 64))
    assert many.projections - few.projections == 2 * 18 * 16 * (64 - 8), "of the router alone"
    shared = Experts.flops(Config(inner=16, shared=16, shared_gate=True), W)
    assert shared.projections - few.projections == 2 * 18 * (3 * 16 * 16 + 16)


def test_a_large_weight_repeats_the_numbers_that_were_drawn(monkeypatch):
    monkeypatch.setattr(experts, "DRAWN", 10)
    weight = drawn((3, 4, 16), torch.bfloat16)
    assert (weight.dtype, weight.requires_grad) == (torch.bfloat16, True)
    flat = weight.detach().flatten()
    assert torch.equal(flat[:10], flat[10:20])
    assert torch.equal(flat[-2:], flat[:2])
    assert len(flat.unique()) > 5
    assert flat.abs().max() <= 0.25 + 1e-3
