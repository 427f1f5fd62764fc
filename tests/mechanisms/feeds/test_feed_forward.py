"""A feed-forward: each token by itself, with or without a gate."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from attnbench.attention.checks.flops import counted_flops
from attnbench.mechanisms.feeds.feed_forward import CARD, Config, FeedForward, weights_of
from attnbench.records import Level, Workload

W = Workload(batch=2, seq_len=5, width=8, heads=1, level=Level.ATTENTION)
X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
CONFIGS = (
    *CARD.examples,
    Config(gate=False, activation="relu2"),
    Config(inner=3, bias=True),
)


@pytest.mark.parametrize("config", CONFIGS)
def test_parameters_and_products_are_as_declared(config):
    module = FeedForward(config, W)
    found = sum(p.numel() for p in module.parameters())
    assert CARD.parameters(config, W) == weights_of(8, config.width(W), config) == found
    flops = module.flops(config, W)
    assert (flops.projections, flops.core) == (counted_flops(module, X), 0)


@pytest.mark.parametrize("config", CONFIGS)
def test_it_computes_its_equations_for_each_token_by_itself(config):
    module = FeedForward(config, W)
    with torch.no_grad():
        whole = module(X)
        assert_close(CARD.reference(module, X[0], None, {}), whole[0])
        assert_close(module(X[:, 3:4]), whole[:, 3:4])


def test_the_inner_width_is_four_times_that_of_the_model_unless_it_is_given():
    assert Config().width(W) == 32
    assert Config(inner=3).width(W) == 3
    with pytest.raises(ValueError, match="unknown activation 'swish'"):
        Config(activation="swish")


def test_a_step_is_a_pass_over_its_tokens_and_keeps_nothing():
    module = FeedForward(Config(), W)
    state = module.start(2, 100)
    with torch.no_grad():
        y, after = module.prefill(X, state)
        assert torch.equal(y, module(X))
    assert (state, after, module.state_elements(Config(), W)) == ((), (), 0)
    w = replace(W, seq_len=1000, step=3)
    assert module.step_flops(Config(), w) == module.flops(Config(), replace(W, seq_len=3))
