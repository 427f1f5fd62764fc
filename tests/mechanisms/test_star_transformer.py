"""Star-Transformer against dense attention under its mask, and how the ring closes."""

import pytest
import torch

from tests.mechanisms.building import build

N = 11


def built(iterations, form="folded"):
    module = build("star_transformer", form, seq_len=N, iterations=iterations)
    for norm in (m for m in module.modules() if isinstance(m, torch.nn.LayerNorm)):
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    return module


def dense(node, queries, keys, allowed):
    """One update by attention over all nodes at once, [N, D] and [S, D]."""
    q, k, v = (
        f(t).unflatten(-1, (4, 4)).transpose(0, 1)
        for f, t in ((node.query, queries), (node.key, keys), (node.value, keys))
    )
    scores = (q @ k.mT / 2).masked_fill(~allowed, -torch.inf)
    o = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
    return node.norm(node.output(o).relu())


@pytest.mark.parametrize("form", ["eager", "folded"])
def test_three_iterations_equal_dense_attention_under_the_mask_of_a_star(form):
    module = built(3, form)
    x = torch.randn(2, N, 16, dtype=torch.float64)
    i = torch.arange(N)
    distance = (i[:, None] - i) % N
    ring = (distance <= 1) | (distance == N - 1)
    star = torch.cat([ring, torch.eye(N, dtype=torch.bool), torch.ones(N, 1, dtype=torch.bool)], 1)
    everything = torch.ones(1, N + 1, dtype=torch.bool)
    for b in range(2):
        h, s = x[b], x[b].mean(0, keepdim=True)
        for _ in range(3):
            h = dense(module.satellite, h, torch.cat([h, x[b], s]), star)
            s = dense(module.relay, s, torch.cat([s, h]), everything)
        torch.testing.assert_close(module(x)[b], h)


def test_the_ring_closes_over_real_tokens_at_any_position():
    module = built(2)
    x = torch.randn(2, N, 16, dtype=torch.float64)
    mask = torch.tensor([0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0]).bool().expand(2, -1)
    alone = module(x[:, mask[0]])
    torch.testing.assert_close(module(x, mask)[:, mask[0]], alone)
