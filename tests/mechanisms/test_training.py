"""What training alone does: Sinkhorn draws noise, and Routing Transformer moves its centroids."""

import pytest
import torch
from torch.nn.functional import layer_norm

from attnbench.mechanisms.sinkhorn import reference
from tests.mechanisms.building import build, core, qkv


@pytest.mark.parametrize("form", ["eager", "sdpa"])
@pytest.mark.parametrize("causal", [False, True])
def test_noise_of_sinkhorn_is_drawn_in_training_and_can_be_reproduced(form, causal):
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


def test_centroids_of_routing_transformer_move_to_the_mean_of_their_tokens():
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
