"""Transformer: the block mask for flex_attention equals torch's."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from attnbench.mechanisms.transformer import past, triangle

CPU = torch.device("cpu")
PARTS = ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks")


@pytest.mark.parametrize("N", [1, 127, 128, 129, 500, 1024])
def test_the_causal_block_mask_equals_torchs(N):
    ours, theirs = triangle(N, CPU), create_block_mask(past, None, None, N, N, device="cpu")
    assert ours.seq_lengths == (N, N)
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    for part in PARTS:
        assert torch.equal(getattr(ours, part), getattr(theirs, part)), part
