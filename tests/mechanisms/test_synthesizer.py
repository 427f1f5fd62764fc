"""Synthesizer: parameters of the variants, and its default form."""

import pytest
import torch

from attnbench.mechanisms.synthesizer import CARD, Config, sides
from attnbench.verify.flops import counted_flops
from tests.mechanisms.building import build, workload


@pytest.mark.parametrize("n", [1, 2, 7, 12, 17, 128, 1000])
def test_the_two_factors_cover_every_column_and_no_two_columns_are_alike(n):
    a, b = sides(n)
    assert n <= a * b < n + a
    assert len({(j % a, j // a) for j in range(n)}) == n


def test_random_logits_are_the_same_for_every_sequence_and_dense_ones_are_not():
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    assert build("synthesizer", seq_len=12, variant="random").logits(x).shape == (4, 12, 12)
    dense = build("synthesizer", seq_len=12).logits(x)
    assert not torch.allclose(dense[0], dense[1])


def test_fixed_random_logits_are_stored_but_not_learned():
    module = build("synthesizer", seq_len=12, variant="fixed_random")
    assert "R" in module.state_dict()
    assert "R" not in dict(module.named_parameters())


def test_fewer_positions_use_the_first_rows():
    module = build("synthesizer", seq_len=5, variant="random", n_max=12)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    assert torch.equal(module.logits(x), module.R[:, :5, :5])


def test_factors_cost_what_their_positions_do_even_if_there_are_fewer_tokens():
    w = workload("synthesizer", seq_len=5)
    module = build("synthesizer", seq_len=5, variant="factorized_dense", n_max=40)
    flops = module.flops(module.config, w)
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    assert flops.projections + flops.core == counted_flops(module, x)


def test_the_fused_form_is_for_products_of_features():
    reason = CARD.refusal("sdpa", Config(variant="random"), workload("synthesizer", seq_len=12))
    assert reason == "variant=random is not a product of features; use synthesizer:eager"
