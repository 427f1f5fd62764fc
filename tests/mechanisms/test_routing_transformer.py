"""Routing Transformer: one cluster, local heads, and centroid updates."""

import pytest
import torch
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from tests.mechanisms.building import build, core, qkv, reads

NAME = "routing_transformer"

FORMS = pytest.mark.parametrize("form", ["eager", "sdpa"])


@FORMS
@pytest.mark.parametrize("causal", [False, True])
def test_one_cluster_of_all_tokens_is_softmax_attention(form, causal):
    module = core(NAME, form, seq_len=14, causal=causal, clusters=1, local_heads=0)
    q, k, v = qkv(14)
    q_, k_ = layer_norm(q, (4,)), layer_norm(q if causal else k, (4,))
    expected = scaled_dot_product_attention(q_, k_, v, is_causal=causal)
    torch.testing.assert_close(module.attend(q, k, v, None), expected)


@FORMS
@pytest.mark.parametrize("causal", [False, True])
def test_local_heads_see_their_block_and_adjacent_ones(form, causal):
    read = reads(build(NAME, form, causal=causal, window=4, local_heads=4))
    block = torch.arange(20) // 4
    near = (block[:, None] - block).abs() <= 1
    assert read.equal(near.tril() if causal else near)


@FORMS
def test_a_token_in_no_cluster_gives_zero(form):
    module = core(NAME, form, seq_len=14, clusters=2, members=3, local_heads=0).eval()
    q, k, v = qkv(14)
    o = module.attend(q, k, v, None)
    for b in range(2):
        for h, clusters in enumerate(module.draws(b)["queries"]):
            chosen = set(clusters.flatten().tolist())
            zero = {i for i in range(14) if (o[b, h, i] == 0).all()}
            assert zero == set(range(14)) - chosen


def test_members_are_the_tokens_nearest_to_the_centroid():
    module = core(NAME, "sdpa", seq_len=14, clusters=2, members=3, local_heads=0).eval()
    q, k, v = qkv(14)
    module.attend(q, k, v, None)
    scores = layer_norm(k, (4,))[0, 1] @ module.centroids[1, 0]
    assert set(module.draws(0)["keys"][1, 0].tolist()) == set(scores.topk(3).indices.tolist())


def test_centroids_move_to_the_mean_of_their_tokens_only_in_training():
    module = core(NAME, "sdpa", seq_len=14, clusters=3, local_heads=0, decay=0.9)
    q, k, v = qkv(14)
    before = module.centroids.clone()
    module.eval().attend(q, k, v, None)
    assert torch.equal(module.centroids, before)
    assert module.auxiliary_loss() is None
    mask = torch.arange(14) < torch.tensor([[14], [5]])
    module.train().attend(q, k, v, mask)
    errors = []
    for h in range(4):
        tokens = torch.cat([layer_norm(x[:, h], (4,))[mask] for x in (q, k)])
        nearest = (tokens @ before[h].T).argmax(-1)
        errors += [(tokens - before[h][nearest]).square().mean(-1)]
        for c in range(3):
            mean = tokens[nearest == c].mean(0) if (nearest == c).any() else before[h, c]
            expected = 0.9 * before[h, c] + 0.1 * mean
            torch.testing.assert_close(module.centroids[h, c], expected)
    torch.testing.assert_close(module.auxiliary_loss(), 1e-4 * torch.cat(errors).mean())
