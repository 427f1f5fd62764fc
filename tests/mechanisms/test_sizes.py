"""Sizes that follow from others: strides, grids, segments, ranks and states."""

import pytest
import torch

from attnbench.attention.checks.flops import counted_flops
from attnbench.mechanisms import (
    axial,
    grouped_query,
    latent,
    mamba2,
    reformer,
    retention,
    rwkv7,
    sparse_transformer,
    synthesizer,
)
from attnbench.mechanisms.catalogue.registry import card
from attnbench.records import Level, Workload


def workload(width, heads):
    return Workload(batch=1, seq_len=8, width=width, heads=heads, level=Level.ATTENTION)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            lambda N: sparse_transformer.Config(stride=None).span(N),
            {1: 1, 512: 16, 1000: 32, 65_536: 256},
        ),
        (
            lambda N: axial.Config().grid(N),
            {1: (1, 1), 512: (32, 16), 1000: (32, 32), 65_535: (256, 256)},
        ),
        (
            lambda N: reformer.factors(reformer.Config(), N),
            {1: (2,), 64: (2,), 512: (16,), 2048: (64,), 8192: (16, 16), 65_536: (32, 64)},
        ),
    ],
    ids=["sparse_transformer", "axial", "reformer"],
)
def test_what_grows_with_length(found, expected):
    assert {N: found(N) for N in expected} == expected


def test_decays_of_retention_in_many_heads_do_not_round_to_one():
    logs = retention.decays(torch.zeros(1, 64, dtype=torch.float32)).flatten()
    assert (logs < 0).all()
    assert logs[0].exp().item() == pytest.approx(1 - 1 / 32)


def test_ranks_of_rwkv7_grow_with_the_root_of_the_width():
    for width, gate, expected in ((256, 64, 32), (4096, 320, 160)):
        low_ranks = 4 * width * expected + 2 * width * gate
        counted = rwkv7.CARD.parameters(rwkv7.Config(), workload(width, 4))
        assert counted == 4 * width**2 + low_ranks + 13 * width


def test_the_heads_of_the_workload_have_no_effect_on_mamba2():
    config, form = mamba2.Config(), mamba2.CARD.forms["chunked"]
    given = [workload(64, heads) for heads in (1, 4, 16)]
    assert len({(mamba2.CARD.parameters(config, w), form.flops(config, w)) for w in given}) == 1


@pytest.mark.parametrize("n", [1, 2, 7, 12, 17, 128, 1000])
def test_two_factors_of_synthesizer_cover_every_column_and_no_two_columns_are_alike(n):
    a, b = synthesizer.sides(n)
    assert n <= a * b < n + a
    assert len({(j % a, j // a) for j in range(n)}) == n


def test_by_default_a_quarter_of_the_heads_of_grouped_query_have_keys():
    for heads, expected in ((16, 4), (12, 3), (14, 2), (6, 1), (1, 1)):
        config, w = grouped_query.Config(), workload(4 * heads, heads)
        assert grouped_query.GroupedQuery.state_elements(config, w) == 2 * 8 * 4 * expected
        assert card("grouped_query").refusal("eager", config, w) is None


def test_caches_are_as_published():
    """DeepSeek-V2 (arXiv:2405.04434), Table 1, at its sizes: 4.5 d_h, and 2 n_h d_h."""
    w, full = workload(128 * 128, 128), grouped_query.Config(kv_heads=128)
    assert latent.Latent.state_elements(latent.Config(), w) == 8 * 576
    assert grouped_query.GroupedQuery.state_elements(full, w) == 8 * 32_768


def test_factors_of_synthesizer_cost_what_their_positions_do():
    w = workload(16, 4)
    config = synthesizer.Config(variant="factorized_dense", n_max=40)
    flops = synthesizer.CARD.forms["eager"].flops(config, w)
    counted = counted_flops(synthesizer.CARD.forms["eager"](config, w), torch.randn(1, 8, 16))
    assert flops.projections + flops.core == counted
