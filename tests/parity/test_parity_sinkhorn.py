"""Sinkhorn against sinkhorn_transformer, whose sorted values are its sorted keys."""

import warnings

import pytest
import torch

from attnbench.mechanisms.sinkhorn import Config, Sdpa, Sinkhorn
from attnbench.records import Level, Workload

FORMS = pytest.mark.parametrize("cls", [Sinkhorn, Sdpa])
BLOCK, N = 4, 20


@pytest.fixture
def package():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            "sinkhorn_transformer.sinkhorn_transformer", reason="sinkhorn_transformer is missing"
        )


def build(cls):
    w = Workload(batch=2, seq_len=N, width=32, heads=4, level=Level.ATTENTION)
    torch.manual_seed(0)
    return cls(Config(block=BLOCK, iterations=7), w).double()


def test_balancing(package):
    R = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    expected = package.sinkhorn_sorting_operator(R.flatten(0, 1), 7).view_as(R)
    torch.testing.assert_close(build(Sinkhorn).balance(R, None), expected)


@FORMS
def test_attention_agrees_if_values_equal_keys_and_else_follows_the_formula(package, cls):
    module = build(cls)
    theirs = package.SinkhornAttention(BLOCK, 32, 8, 4, N).double()
    P = module.balance(torch.randn(2, 4, 5, 5, dtype=torch.float64), None)
    theirs.sort_net.forward = lambda q, k, topk: P.flatten(0, 1)
    q, k, v = torch.randn(3, 2, 4, N, 8, dtype=torch.float64)
    blocks = [x.unflatten(2, (5, BLOCK)) for x in (q, k, v)]
    same = module.mixed(blocks[0], blocks[1], blocks[1], P, None).flatten(2, 3)
    torch.testing.assert_close(same, theirs(q, k, k))
    ours = module.mixed(*blocks, P, None)
    assert not torch.allclose(ours.flatten(2, 3), theirs(q, k, v), atol=0.1)
    # the formula, with sorted values where the package has sorted keys
    keys, values = (torch.cat([torch.einsum("bhij,bhjmd->bhimd", P, x), x], -2) for x in blocks[1:])
    weights = (blocks[0] @ keys.mT / 8**0.5).softmax(-1)
    torch.testing.assert_close(ours, weights @ values)
