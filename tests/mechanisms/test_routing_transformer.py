"""Routing Transformer: how centroids move."""

import torch
from torch.nn.functional import layer_norm

from tests.mechanisms.building import core, qkv


def test_centroids_move_to_the_mean_of_their_tokens_only_in_training():
    module = core("routing_transformer", "sdpa", seq_len=14, clusters=3, local_heads=0, decay=0.9)
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
