"""Synthesizer: limit case, and parameters of the variants."""

import pytest
import torch

from attnbench.mechanisms.synthesizer import CARD, Config, Synthesizer, sides
from attnbench.records import Level, Workload
from attnbench.verify.flops import counted_flops


def workload(seq_len, **fields):
    sizes = {"batch": 2, "width": 16, "heads": 4, "level": Level.ATTENTION, "dtype": "float64"}
    return Workload(seq_len=seq_len, **(sizes | fields))


def build(config, seq_len=12, **fields):
    torch.manual_seed(0)
    return Synthesizer(config, workload(seq_len, **fields)).double()


@pytest.mark.parametrize("variant", ["dense", "random", "factorized_random", "factorized_dense"])
def test_a_mixture_without_its_synthesizer_is_softmax_attention(variant):
    module = build(Config(variant=variant, mixture=True))
    module.alpha.data = torch.tensor([-400.0, 400.0], dtype=torch.float64)
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    q, k, v = (module.split(f(x)) for f in (module.query, module.key, module.value))
    o = (q @ k.mT / 2).softmax(-1) @ v
    expected = module.output(o.transpose(1, 2).flatten(2))
    torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize("n", [1, 2, 7, 12, 17, 128, 1000])
def test_the_two_factors_cover_every_column_and_no_two_columns_are_alike(n):
    a, b = sides(n)
    assert n <= a * b < n + a
    assert len({(j % a, j // a) for j in range(n)}) == n


def test_random_logits_are_the_same_for_every_sequence_and_dense_ones_are_not():
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    assert build(Config(variant="random")).logits(x).shape == (4, 12, 12)
    dense = build(Config()).logits(x)
    assert not torch.allclose(dense[0], dense[1])


def test_fixed_random_logits_are_stored_but_not_learned():
    module = build(Config(variant="fixed_random"))
    assert "R" in module.state_dict()
    assert "R" not in dict(module.named_parameters())


def test_fewer_positions_use_the_first_rows():
    module = build(Config(variant="random", n_max=12), seq_len=5)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    assert torch.equal(module.logits(x), module.R[:, :5, :5])


def test_factors_cost_what_their_positions_do_even_if_there_are_fewer_tokens():
    w = workload(5)
    module = build(Config(variant="factorized_dense", n_max=40), seq_len=5)
    flops = module.flops(module.config, w)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    assert flops.projections + flops.core == counted_flops(module, x)


def test_the_fused_form_is_for_products_of_features():
    reason = CARD.refusal("sdpa", Config(variant="random"), workload(12))
    assert reason == "variant=random is not a product of features; use synthesizer:eager"
    assert CARD.default(Config(variant="random"), workload(12)) == "eager"
    assert CARD.default(Config(), workload(12)) == "sdpa"


def test_many_sequences_that_share_their_weights_are_not_fused():
    config = Config(variant="factorized_random")
    assert CARD.default(config, workload(12, batch=2)) == "sdpa"
    assert CARD.default(config, workload(12, batch=8)) == "eager"
    assert CARD.default(config, workload(12, batch=8, padding=0.3)) == "sdpa"
