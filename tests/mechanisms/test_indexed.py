"""Index queries, keys and weights of `indexed` by their equations, and what they choose."""

import pytest
import torch

from tests.mechanisms.building import build

OPTIONS = {
    "heads": {"kv_heads": 2, "index_heads": 3},
    "latents": {"kv_rank": 5, "query_rank": 7, "index_heads": 3},
    "latents without queries": {"kv_rank": 5, "index_heads": 3},
}


def index_of(module, x):
    """q^I [I, N, e], w [N, I] and k^I [N, e] of one sequence."""
    c, drawn = module.config, module.drawn
    e, heads = c.index_width, c.index_heads
    keys = x @ drawn[-e:].T
    centred = keys - keys.mean(-1, keepdim=True)
    keys = centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    rest = x @ drawn[:-e].T
    if c.query_rank:
        queries, w = module.base.query_latent(x[None])[0] @ module.drawn_queries.T, rest
    else:
        queries, w = rest[:, : heads * e], rest[:, heads * e :]
    return queries.unflatten(-1, (heads, e)).transpose(0, 1), w, keys


@pytest.mark.parametrize("options", OPTIONS.values(), ids=[f"indexed {name}" for name in OPTIONS])
def test_a_query_reads_the_tokens_that_its_index_finds_closest(options):
    module = build("indexed", batch=1, seq_len=30, block=1, budget=4, index_width=6, **options)
    x = torch.randn(1, 30, 16, dtype=torch.float64)
    module(x)
    q, w, k = index_of(module, x[0])
    scores = torch.einsum("inm,ni->nm", (q @ k.T).relu(), w)
    choice = module.draws(0)["choice"][0]
    for i in range(4, 30):
        best = scores[i, : i + 1].topk(4).indices.sort().values
        if (scores[i, best] != 0).all():  # sums of ReLU often tie at 0
            assert choice[i].nonzero()[:, 0].tolist() == best.tolist()
