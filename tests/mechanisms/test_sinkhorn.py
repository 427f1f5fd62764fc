"""Sparse Sinkhorn attention: permutations and noise."""

import pytest
import torch

from attnbench.mechanisms.sinkhorn import reference
from tests.mechanisms.building import build

FORMS = pytest.mark.parametrize("form", ["eager", "sdpa"])


def test_many_iterations_give_a_doubly_stochastic_matrix():
    module = build("sinkhorn", seq_len=15, block=3, iterations=200).eval()
    P = module.permutation(torch.randn(2, 5, 3, 16, dtype=torch.float64), None)
    ones = torch.ones(2, 4, 5, dtype=torch.float64)
    torch.testing.assert_close(P.sum(-1), ones, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(P.sum(-2), ones, rtol=1e-5, atol=1e-5)


def test_a_causal_block_reads_only_earlier_blocks():
    module = build("sinkhorn", seq_len=15, causal=True, block=3).eval()
    P = module.permutation(torch.randn(2, 5, 3, 16, dtype=torch.float64), None)
    assert (P.triu() == 0).all()
    assert (P[:, :, 1:].sum(-1) > 0).all()


@FORMS
def test_a_permutation_moves_whole_blocks(form):
    module = build("sinkhorn", form, seq_len=9, block=3)
    q, k, v = torch.randn(3, 2, 4, 3, 3, 4, dtype=torch.float64)
    order = [2, 0, 1]
    P = torch.eye(3, dtype=torch.float64)[order].expand(2, 4, 3, 3)
    o = module.mixed(q, k, v, P, None)
    for c, source in enumerate(order):
        keys = torch.cat([k[:, :, source], k[:, :, c]], -2)
        values = torch.cat([v[:, :, source], v[:, :, c]], -2)
        expected = (q[:, :, c] @ keys.mT / 2).softmax(-1) @ values
        torch.testing.assert_close(o[:, :, c], expected)


@FORMS
def test_padding_that_is_permuted_in_is_not_a_key(form):
    module = build("sinkhorn", form, seq_len=9, block=3)
    q, k, v = torch.randn(3, 2, 4, 3, 3, 4, dtype=torch.float64)
    mask = torch.arange(9).expand(2, 9).unflatten(1, (3, 3)) < 7
    k, v = (t * mask[:, None, :, :, None] for t in (k, v))
    P = torch.eye(3, dtype=torch.float64)[[2, 0, 1]].expand(2, 4, 3, 3)
    o = module.mixed(q, k, v, P, mask)[:, :, 0]
    keys = torch.cat([k[:, :, 2, :1], k[:, :, 0]], -2)
    values = torch.cat([v[:, :, 2, :1], v[:, :, 0]], -2)
    torch.testing.assert_close(o, (q[:, :, 0] @ keys.mT / 2).softmax(-1) @ values)


def test_blocks_of_padding_are_neither_rows_nor_columns_of_the_permutation():
    module = build("sinkhorn", seq_len=15, block=3, iterations=200).eval()
    mask = torch.arange(15).unflatten(0, (5, 3)).expand(2, 5, 3) < 8
    P = module.permutation(torch.randn(2, 5, 3, 16, dtype=torch.float64), mask)
    real = torch.tensor([1.0, 1, 1, 0, 0], dtype=torch.float64).expand(2, 4, 5)
    torch.testing.assert_close(P.sum(-1), real, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(P.sum(-2), real, rtol=1e-5, atol=1e-5)


@FORMS
@pytest.mark.parametrize("causal", [False, True])
def test_noise_is_drawn_in_training_and_can_be_reproduced(form, causal):
    module = build("sinkhorn", form, seq_len=17, causal=causal, block=4)
    x = torch.randn(2, 17, 16, dtype=torch.float64)
    assert module.eval()(x).equal(module(x))
    assert module.draws(0) == {}
    torch.manual_seed(3)
    y = module.train()(x)
    assert not torch.allclose(y, module(x))
    torch.manual_seed(3)
    assert module(x).equal(y)
    rows = [reference(module, x[b], None, module.draws(b)) for b in range(2)]
    torch.testing.assert_close(y, torch.stack(rows))


@FORMS
@pytest.mark.parametrize("causal", [False, True])
def test_without_iterations_nothing_is_normalised(form, causal):
    module = build("sinkhorn", form, seq_len=17, causal=causal, block=4, iterations=0).eval()
    x = torch.randn(2, 17, 16, dtype=torch.float64)
    rows = [reference(module, row, None, {}) for row in x]
    torch.testing.assert_close(module(x), torch.stack(rows))


def test_without_gumbel_training_draws_nothing():
    module = build("sinkhorn", seq_len=17, block=4, gumbel=False).train()
    x = torch.randn(2, 17, 16, dtype=torch.float64)
    assert module(x).equal(module(x))
