"""Routing Transformer: limit cases, causality with frozen clusters, and centroid updates."""

import pytest
import torch
from torch.nn.functional import layer_norm

from attnbench.mechanisms.routing_transformer import Config, RoutingTransformer, Sdpa
from attnbench.records import Level, Workload

FORMS = pytest.mark.parametrize("cls", [RoutingTransformer, Sdpa])


def workload(seq_len, causal=False, level=Level.ATTENTION):
    return Workload(batch=2, seq_len=seq_len, width=16, heads=4, level=level, causal=causal)


def build(cls, config, seq_len, causal=False, level=Level.ATTENTION):
    torch.manual_seed(0)
    return cls(config, workload(seq_len, causal, level)).double()


def qkv(N):
    torch.manual_seed(1)
    return torch.randn(3, 2, 4, N, 4, dtype=torch.float64)


def softmax_attention(q, k, v, causal):
    logits = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        logits = logits.masked_fill(torch.ones(logits.shape[-2:]).triu(1).bool(), -torch.inf)
    return logits.softmax(-1) @ v


@FORMS
@pytest.mark.parametrize("causal", [False, True])
def test_one_cluster_of_all_tokens_is_softmax_attention(cls, causal):
    module = build(cls, Config(clusters=1, local_heads=0), 14, causal, Level.CORE)
    q, k, v = qkv(14)
    q_, k_ = layer_norm(q, (4,)), layer_norm(q if causal else k, (4,))
    expected = softmax_attention(q_, k_, v, causal)
    torch.testing.assert_close(module.attend(q, k, v, None), expected)


@FORMS
@pytest.mark.parametrize("causal", [False, True])
def test_a_window_of_all_tokens_is_softmax_attention(cls, causal):
    module = build(cls, Config(window=14, local_heads=4), 14, causal, Level.CORE)
    q, k, v = qkv(14)
    torch.testing.assert_close(module.attend(q, k, v, None), softmax_attention(q, k, v, causal))


@FORMS
@pytest.mark.parametrize("causal", [False, True])
def test_local_heads_see_their_block_and_adjacent_ones(cls, causal):
    module = build(cls, Config(window=4, local_heads=4), 18, causal)
    x = torch.randn(2, 18, 16, dtype=torch.float64, requires_grad=True)
    y = module(x)
    for i in range(18):
        (gradient,) = torch.autograd.grad(y[0, i].sum(), x, retain_graph=True)
        seen = set((gradient[0] != 0).any(-1).nonzero().flatten().tolist())
        near = {j for j in range(18) if abs(i // 4 - j // 4) <= 1}
        assert seen == ({j for j in near if j <= i} if causal else near)


@FORMS
def test_causal_attention_ignores_the_future_if_clusters_are_frozen(monkeypatch, cls):
    module = build(cls, Config(clusters=3, members=7, window=5), 18, causal=True).eval()
    x = torch.randn(2, 18, 16, dtype=torch.float64, requires_grad=True)
    y = module(x)
    frozen = module.members[0]
    monkeypatch.setattr(module, "assign", lambda x, mask: (frozen, frozen))
    for i in (0, 1, 9, 16):
        (gradient,) = torch.autograd.grad(y[:, i].sum(), x, retain_graph=True)
        assert (gradient[:, i + 1 :] == 0).all()
        other = x.detach().clone()
        other[:, i + 1 :] = 3 * other[:, i + 1 :] + 1
        torch.testing.assert_close(module(other)[:, : i + 1], y[:, : i + 1])


@FORMS
def test_a_token_in_no_cluster_gives_zero(cls):
    module = build(cls, Config(clusters=2, members=3, local_heads=0), 14, level=Level.CORE).eval()
    q, k, v = qkv(14)
    o = module.attend(q, k, v, None)
    for b in range(2):
        for h, clusters in enumerate(module.draws(b)["queries"]):
            chosen = set(clusters.flatten().tolist())
            zero = {i for i in range(14) if (o[b, h, i] == 0).all()}
            assert zero == set(range(14)) - chosen


def test_members_are_the_tokens_nearest_to_the_centroid():
    module = build(Sdpa, Config(clusters=2, members=3, local_heads=0), 14, level=Level.CORE).eval()
    q, k, v = qkv(14)
    module.attend(q, k, v, None)
    scores = layer_norm(k, (4,))[0, 1] @ module.centroids[1, 0]
    assert set(module.draws(0)["keys"][1, 0].tolist()) == set(scores.topk(3).indices.tolist())


def test_centroids_move_to_the_mean_of_their_tokens_only_in_training():
    module = build(Sdpa, Config(clusters=3, local_heads=0, decay=0.9), 14, level=Level.CORE)
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
