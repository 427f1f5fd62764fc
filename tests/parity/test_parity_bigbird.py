"""Big Bird against transformers' block-sparse attention, with its weights and random blocks.

The public layer departs from the paper: its global blocks are the first and the last. Moving the
last block to second position makes both layouts equal, with two global blocks at the start. In
evaluation mode that layer draws block 0 for every query, so it is compared in training mode.
"""

import numpy as np
import pytest
import torch

from attnbench.mechanisms.bigbird import Config
from attnbench.records import Level, Workload
from tests.oracles import pair

BLOCK, BLOCKS, DRAWN, SEED = 4, 16, 2, 5
N = BLOCK * BLOCKS
W = Workload(batch=2, seq_len=N, width=32, heads=4, level=Level.ATTENTION)
CONFIG = Config(
    block=BLOCK, global_tokens=2 * BLOCK, random_tokens=DRAWN * BLOCK, bias=True, seed=SEED
)


def same_blocks():
    """The package's form, and ours with its parameters and random blocks."""
    theirs, ours = pair("bigbird", ("transformers", "eager"), CONFIG, W)
    ours.load_state_dict(theirs.state_dict())
    layer = theirs.package_layer
    plan = layer._get_rand_attn_plan(N, BLOCK, DRAWN)
    np.random.seed(SEED)
    random = layer._bigbird_block_rand_mask_with_head(N, N, BLOCK, BLOCK, 4, *plan)
    random = torch.as_tensor(np.stack(random), dtype=torch.long)  # [H, n − 2, r / b]
    ours.random[:, 2:] = random + 1  # one block was moved in front of them
    return theirs, ours


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("padded", [False, True])
def test_outputs_and_gradients_agree(padded):
    theirs, ours = same_blocks()
    mask = torch.ones(2, N, dtype=torch.bool)
    if padded:
        mask[1, 37:53] = False
    order = torch.arange(N).view(BLOCKS, BLOCK)
    order = torch.cat([order[:1], order[-1:], order[1:-1]]).flatten()
    x = torch.randn(2, N, 32, dtype=torch.float64, requires_grad=True)
    expected, real = theirs(x, mask)[:, order], mask[:, order]
    y = ours(x[:, order], real if padded else None)
    torch.testing.assert_close(y[real], expected[real], rtol=1e-4, atol=1e-5)
    (a,) = torch.autograd.grad(y[real].square().sum(), x)
    (b,) = torch.autograd.grad(expected[real].square().sum(), x)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
