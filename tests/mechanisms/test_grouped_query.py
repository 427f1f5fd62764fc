"""Grouped-query attention: limit cases, order of heads, and the size of the cache."""

from dataclasses import replace

import pytest
import torch

from attnbench.mechanisms import transformer
from attnbench.mechanisms.grouped_query import CARD, Config, GroupedQuery
from attnbench.records import Level, Workload
from tests.mechanisms.building import build

W = Workload(batch=2, seq_len=13, width=24, heads=6, level=Level.ATTENTION, causal=True)


def forms(causal):
    return [form for form in CARD.forms if CARD.refusal(form, Config(), W) is None or not causal]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_it_is_a_transformer_whose_groups_have_equal_keys_and_values(kv_heads, causal):
    full = transformer.Transformer(transformer.Config(bias=True), replace(W, causal=causal))
    full = full.double()
    x = torch.randn(2, 13, 24, dtype=torch.float64)
    for form in forms(causal):
        sizes = {"seq_len": 13, "width": 24, "heads": 6, "causal": causal}
        module = build("grouped_query", form, kv_heads=kv_heads, bias=True, **sizes)
        for name, parameter in module.named_parameters():
            if name.startswith(("key", "value")):
                heads = parameter.unflatten(0, (kv_heads, -1))
                parameter = heads.repeat_interleave(6 // kv_heads, 0).flatten(0, 1)
            full.get_parameter(name).data = parameter.detach().clone()
        torch.testing.assert_close(module(x), full(x))


@pytest.mark.parametrize("causal", [False, True])
def test_a_sink_takes_its_share_of_the_weights(causal):
    """As a further key that every query has in common, with a value of 0."""
    q = torch.zeros(2, 6, 13, 4, dtype=torch.float64)
    k, v = torch.randn(2, 2, 2, 13, 4, dtype=torch.float64)
    config, w = Config(kv_heads=2, sink_logit=True), replace(W, causal=causal, level=Level.CORE)
    keys = torch.arange(1, 14).double()[:, None] if causal else torch.tensor(13.0)
    for form in forms(causal):
        module = CARD.forms[form](config, w).double()
        plain = CARD.forms[form](Config(kv_heads=2), w)
        module.sink.data = torch.tensor([-1e4, 0, 1, 2, 5, 1e4]).double()
        share = 1 / (1 + module.sink.exp()[:, None, None] / keys)
        torch.testing.assert_close(
            module.attend(q, k, v, None), share * plain.attend(q, k, v, None)
        )


def test_a_cache_holds_the_share_of_heads_that_have_keys():
    for kv_heads in (1, 2, 6):
        share = GroupedQuery.state_elements(Config(kv_heads=kv_heads), W) / (2 * W.tokens * W.width)
        assert share == kv_heads / 6


def test_by_default_a_quarter_of_the_heads_have_keys():
    for heads, expected in ((16, 4), (12, 3), (14, 2), (6, 1), (1, 1)):
        w = replace(W, heads=heads, width=4 * heads)
        assert GroupedQuery.state_elements(Config(), w) == 2 * w.tokens * 4 * expected
        assert CARD.refusal("eager", Config(), w) is None
