"""Big Bird against transformers' block-sparse attention, with its weights and random blocks.

The public layer departs from the paper: its global blocks are the first and the last. Moving the
last block to second position makes both layouts equal, with two global blocks at the start. In
evaluation mode that layer draws block 0 for every query, so it is compared in training mode.
"""

import warnings

import pytest
import torch
from torch import nn

from attnbench.mechanisms.bigbird import CARD, Config
from attnbench.records import Level, Workload

BLOCK, BLOCKS, DRAWN, SEED = 4, 16, 2, 5


@pytest.fixture(scope="module")
def package():
    pytest.importorskip("transformers", reason="parity with transformers' BigBird")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.models.big_bird import modeling_big_bird

    return modeling_big_bird


def public(package):
    """The public layer of width 32, and its random blocks [H, n − 2, r / b]."""
    import numpy as np

    config = package.BigBirdConfig(
        hidden_size=32, num_attention_heads=4, block_size=BLOCK, num_random_blocks=DRAWN
    )
    torch.manual_seed(0)
    layer = package.BigBirdBlockSparseAttention(config, seed=SEED).train()
    N = BLOCK * BLOCKS
    plan = layer._get_rand_attn_plan(N, BLOCK, DRAWN)
    np.random.seed(SEED)
    random = layer._bigbird_block_rand_mask_with_head(N, N, BLOCK, BLOCK, 4, *plan)
    return layer, torch.as_tensor(np.stack(random), dtype=torch.long)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("padded", [False, True])
def test_outputs_and_gradients_agree(package, padded):
    layer, random = public(package)
    N = BLOCK * BLOCKS
    w = Workload(batch=2, seq_len=N, width=32, heads=4, level=Level.ATTENTION)
    config = Config(block=BLOCK, global_tokens=2 * BLOCK, random_tokens=DRAWN * BLOCK, bias=True)
    module = CARD.forms["eager"](config, w)
    module.load_state_dict(layer.state_dict(), strict=False)
    module.output = nn.Identity()
    module.random[:, 2:] = random + 1  # one block was moved in front of them

    mask = torch.ones(2, N, dtype=torch.bool)
    if padded:
        mask[1, 37:53] = False
    order = torch.arange(N).view(BLOCKS, BLOCK)
    order = torch.cat([order[:1], order[-1:], order[1:-1]]).flatten()
    x = torch.randn(2, N, 32, generator=torch.Generator().manual_seed(1), requires_grad=True)

    blocked, band, rows, keys = package.BigBirdModel.create_masks_for_block_sparse_attn(
        mask.float(), BLOCK
    )
    expected = layer(
        x,
        band_mask=band,
        from_mask=rows,
        to_mask=keys,
        from_blocked_mask=blocked,
        to_blocked_mask=blocked,
    )[0]
    expected, real = expected[:, order], mask[:, order]
    y = module(x[:, order], real if padded else None)
    torch.testing.assert_close(y[real], expected[real], rtol=1e-4, atol=1e-5)
    weights = torch.randn(y[real].shape, generator=torch.Generator().manual_seed(2))
    (ours,) = torch.autograd.grad((y[real] * weights).sum(), x)
    (theirs,) = torch.autograd.grad((expected[real] * weights).sum(), x)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
