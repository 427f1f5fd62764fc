"""Image Transformer: both layouts against dense attention under their masks."""

import pytest
import torch

from attnbench.attention.contract import merge
from attnbench.mechanisms.image_transformer import CARD, Config
from attnbench.records import Workload


def build(config, form="eager", seq_len=40, causal=False):
    torch.manual_seed(0)
    w = Workload(batch=2, seq_len=seq_len, width=16, heads=4, level="attention", causal=causal)
    return CARD.forms[form](config, w).double()


def line(config, n):
    """[N, N]: the block of each token and the memory before it."""
    start = torch.arange(n)[:, None] // config.block * config.block
    j = torch.arange(n)
    return (j >= start - config.memory) & (j < start + config.block)


def picture(config, n):
    """[N, N] from an image of [down, across] blocks, painted one block after another."""
    rows, columns = config.rows, config.columns
    down = -(-n // (rows * columns * config.across))
    image = torch.full((down * rows, config.across * columns), -1)
    corners = [(r * rows, c * columns) for r in range(down) for c in range(config.across)]
    for block, (top, left) in enumerate(corners):
        own = torch.arange(rows * columns) + block * rows * columns
        image[top : top + rows, left : left + columns] = own.view(rows, columns)
    allowed = torch.zeros(image.numel(), image.numel(), dtype=torch.bool)
    for top, left in corners:
        right = left + columns + config.beside
        near = image[max(0, top - config.above) : top + rows, max(0, left - config.beside) : right]
        for i in image[top : top + rows, left : left + columns].flatten():
            allowed[i, near.flatten()] = True
    return allowed[:n, :n]


CONFIGS = {
    "line": (Config(block=6, memory=6), line),
    "long memory": (Config(block=4, memory=10), line),
    "no memory": (Config(block=4, memory=0), line),
    "picture": (Config(layout="2d", rows=2, columns=3, above=1, beside=2, across=3), picture),
    "narrow": (Config(layout="2d", rows=3, columns=2, above=4, beside=3, across=1), picture),
}


@pytest.mark.parametrize("form", ["eager", "sdpa"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", CONFIGS)
def test_it_equals_dense_attention_under_its_mask(case, causal, form):
    config, pattern = CONFIGS[case]
    module = build(config, form, causal=causal)
    x = torch.randn(2, 40, 16, dtype=torch.float64)
    allowed = pattern(config, 40)
    allowed = allowed.tril() if causal else allowed
    q, k, v = (module.split(f(x)) for f in (module.query, module.key, module.value))
    scores = (q @ k.mT / 2).masked_fill(~allowed, -torch.inf)
    torch.testing.assert_close(module(x), module.output(merge(scores.softmax(-1) @ v)))
