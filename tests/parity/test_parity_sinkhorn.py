"""Sinkhorn against sinkhorn_transformer, whose sorted values are its sorted keys."""

import pytest
import torch

from attnbench.mechanisms.sinkhorn import Config
from attnbench.records import Level, Workload
from tests.oracles import build

BLOCK, N = 4, 20
CONFIG = Config(block=BLOCK, iterations=7)
W = Workload(batch=2, seq_len=N, width=32, heads=4, level=Level.ATTENTION)


@pytest.fixture
def package():
    """The package's form."""
    torch.manual_seed(0)
    return build("sinkhorn", "sinkhorn_transformer", CONFIG, W)


def test_balancing(package):
    R = torch.randn(2, 4, 5, 5, dtype=torch.float64)
    expected = package.library.sinkhorn_sorting_operator(R.flatten(0, 1), 7).view_as(R)
    torch.testing.assert_close(build("sinkhorn", "eager", CONFIG, W).balance(R, None), expected)


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_attention_agrees_if_values_equal_keys_and_else_follows_the_formula(package, form):
    module = build("sinkhorn", form, CONFIG, W)
    theirs = package.package_layer.sinkhorn_attention
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
