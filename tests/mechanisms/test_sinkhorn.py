"""Sparse Sinkhorn attention: limit case, permutations and noise."""

import pytest
import torch

from attnbench.mechanisms.sinkhorn import Config, Sdpa, Sinkhorn, reference
from attnbench.records import Level, Workload

FORMS = pytest.mark.parametrize("cls", [Sinkhorn, Sdpa])


def workload(seq_len, causal=False):
    return Workload(
        batch=2, seq_len=seq_len, width=16, heads=4, level=Level.ATTENTION, causal=causal
    )


def build(cls, config, seq_len, causal=False):
    torch.manual_seed(0)
    return cls(config, workload(seq_len, causal)).double()


@FORMS
@pytest.mark.parametrize("options", [{}, {"sort_cut": 1}])
def test_one_block_is_softmax_attention(cls, options):
    module = build(cls, Config(block=64, **options), 14)
    x = torch.randn(2, 14, 16, dtype=torch.float64)
    q, k, v = (module.split(f(x)) for f in (module.query, module.key, module.value))
    o = (q @ k.mT / 2).softmax(-1) @ v
    torch.testing.assert_close(module(x), module.output(o.transpose(1, 2).flatten(2)))


def test_many_iterations_give_a_doubly_stochastic_matrix():
    module = build(Sinkhorn, Config(block=3, iterations=200), 15).eval()
    P = module.permutation(torch.randn(2, 5, 3, 16, dtype=torch.float64), None)
    ones = torch.ones(2, 4, 5, dtype=torch.float64)
    torch.testing.assert_close(P.sum(-1), ones, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(P.sum(-2), ones, rtol=1e-5, atol=1e-5)


def test_a_causal_block_reads_only_earlier_blocks():
    module = build(Sinkhorn, Config(block=3), 15, causal=True).eval()
    P = module.permutation(torch.randn(2, 5, 3, 16, dtype=torch.float64), None)
    assert (P.triu() == 0).all()
    assert (P[:, :, 1:].sum(-1) > 0).all()


@FORMS
def test_a_permutation_moves_whole_blocks(cls):
    module = build(cls, Config(block=3), 9)
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
def test_padding_that_is_permuted_in_is_not_a_key(cls):
    module = build(cls, Config(block=3), 9)
    q, k, v = torch.randn(3, 2, 4, 3, 3, 4, dtype=torch.float64)
    mask = torch.arange(9).expand(2, 9).unflatten(1, (3, 3)) < 7
    k, v = (t * mask[:, None, :, :, None] for t in (k, v))
    P = torch.eye(3, dtype=torch.float64)[[2, 0, 1]].expand(2, 4, 3, 3)
    o = module.mixed(q, k, v, P, mask)[:, :, 0]
    keys = torch.cat([k[:, :, 2, :1], k[:, :, 0]], -2)
    values = torch.cat([v[:, :, 2, :1], v[:, :, 0]], -2)
    torch.testing.assert_close(o, (q[:, :, 0] @ keys.mT / 2).softmax(-1) @ values)


def test_blocks_of_padding_are_neither_rows_nor_columns_of_the_permutation():
    module = build(Sinkhorn, Config(block=3, iterations=200), 15).eval()
    mask = torch.arange(15).unflatten(0, (5, 3)).expand(2, 5, 3) < 8
    P = module.permutation(torch.randn(2, 5, 3, 16, dtype=torch.float64), mask)
    real = torch.tensor([1.0, 1, 1, 0, 0], dtype=torch.float64).expand(2, 4, 5)
    torch.testing.assert_close(P.sum(-1), real, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(P.sum(-2), real, rtol=1e-5, atol=1e-5)


@FORMS
@pytest.mark.parametrize("causal", [False, True])
def test_noise_is_drawn_in_training_and_can_be_reproduced(cls, causal):
    module = build(cls, Config(block=4), 17, causal)
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
def test_without_iterations_nothing_is_normalised(cls, causal):
    module = build(cls, Config(block=4, iterations=0), 17, causal).eval()
    x = torch.randn(2, 17, 16, dtype=torch.float64)
    rows = [reference(module, row, None, {}) for row in x]
    torch.testing.assert_close(module(x), torch.stack(rows))


def test_without_gumbel_training_draws_nothing():
    module = build(Sinkhorn, Config(block=4, gumbel=False), 17).train()
    x = torch.randn(2, 17, 16, dtype=torch.float64)
    assert module(x).equal(module(x))
