"""Latent attention: limit cases, default form, and the size of its cache."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from attnbench.mechanisms import transformer
from attnbench.mechanisms.grouped_query import Config as Grouped
from attnbench.mechanisms.grouped_query import GroupedQuery
from attnbench.mechanisms.latent import CARD, Config, Latent
from attnbench.records import Level, Workload

W = Workload(batch=2, seq_len=13, width=16, heads=4, level=Level.ATTENTION)


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize("causal", [False, True])
def test_a_latent_that_is_the_token_itself_gives_the_transformer(form, causal):
    torch.manual_seed(0)
    w = replace(W, causal=causal)
    module = CARD.forms[form](Config(kv_rank=16, rope=0), w).double()
    full = transformer.Transformer(transformer.Config(), w).double()
    module.norm = nn.Identity()
    W_UK, W_UV = (m.weight.unflatten(0, (4, -1)) for m in (full.key, full.value))
    with torch.no_grad():
        module.down.weight.copy_(torch.eye(16))
        module.query.weight.copy_(full.query.weight)
        module.up.weight.copy_(torch.cat([W_UK, W_UV], 1).flatten(0, 1))
        module.output.weight.copy_(full.output.weight)
    x = torch.randn(2, 13, 16, dtype=torch.float64)
    torch.testing.assert_close(module(x), full(x))


def test_the_cache_is_that_of_two_and_a_quarter_groups():
    grouped = GroupedQuery.state_elements(Grouped(kv_heads=1), W)
    assert Latent.state_elements(Config(), W) == 2.25 * grouped


def test_caches_are_as_published():
    """DeepSeek-V2 (arXiv:2405.04434), Table 1, at its sizes: 4.5 d_h, and 2 n_h d_h."""
    w = Workload(batch=1, seq_len=1, width=128 * 128, heads=128, level=Level.ATTENTION)
    assert Latent.state_elements(Config(), w) == 576
    assert GroupedQuery.state_elements(Grouped(kv_heads=128), w) == 32_768
