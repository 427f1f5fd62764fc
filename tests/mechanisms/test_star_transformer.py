"""Star-Transformer: how the ring closes."""

import torch

from tests.mechanisms.building import build

N = 11


def test_the_ring_closes_over_real_tokens_at_any_position():
    module = build("star_transformer", "folded", seq_len=N, iterations=2)
    x = torch.randn(2, N, 16, dtype=torch.float64)
    mask = torch.tensor([0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0]).bool().expand(2, -1)
    alone = module(x[:, mask[0]])
    torch.testing.assert_close(module(x, mask)[:, mask[0]], alone)
