"""Attention within patterns that are fixed beforehand: dense attention under their masks."""

from itertools import product

import pytest
import torch

from attnbench.catalogue.registry import card
from attnbench.records import Level, Workload
from attnbench.verify.trial import causal_values

HEADS = 4


def same_block(module, i, j):
    return i // module.config.block == j // module.config.block


def permuted_blocks(module, i, j):
    block = i.flatten() // -(-len(i) // module.config.blocks)
    return module.pi[:, block, None] == block


def rows_and_columns(module, i, j):
    c = module.config
    far = (i - j) % c.stride == 0
    if c.pattern == "fixed":
        far = (j % c.stride >= c.stride - c.summary).expand_as(far)
    near = i // c.stride == j // c.stride
    return torch.stack([near, near, far, far])


def line(module, i, j):
    """The block of each token and the memory before it."""
    start = i // module.config.block * module.config.block
    return (j >= start - module.config.memory) & (j < start + module.config.block)


def picture(module, i, j):
    """From an image of [down, across] blocks, painted one block after another."""
    c = module.config
    down = -(-len(i) // (c.rows * c.columns * c.across))
    image = torch.full((down * c.rows, c.across * c.columns), -1)
    corners = [(r * c.rows, b * c.columns) for r in range(down) for b in range(c.across)]
    for block, (top, left) in enumerate(corners):
        own = torch.arange(c.rows * c.columns) + block * c.rows * c.columns
        image[top : top + c.rows, left : left + c.columns] = own.view(c.rows, c.columns)
    allowed = torch.zeros(image.numel(), image.numel(), dtype=torch.bool)
    for top, left in corners:
        columns = slice(max(0, left - c.beside), left + c.columns + c.beside)
        near = image[max(0, top - c.above) : top + c.rows, columns]
        for token in image[top : top + c.rows, left : left + c.columns].flatten():
            allowed[token, near.flatten()] = True
    return allowed[: len(i), : len(i)]


def window_and_globals(module, i, j):
    c, distance = module.config, (i - j).abs()
    reach = distance <= c.window // 2 * c.dilation
    return reach & (distance % c.dilation == 0) | (i < c.global_tokens) | (j < c.global_tokens)


def random_blocks(module, i, j):
    c = module.config
    allowed = ((i // c.block - j // c.block).abs() <= 1) | (i < c.global_tokens)
    allowed = (allowed | (j < c.global_tokens)).repeat(HEADS, 1, 1)
    for h, heads in enumerate(module.random.tolist()):
        for block, chosen in enumerate(heads):
            for other in (c for c in chosen if c >= 0):
                allowed[h] |= (i // c.block == block) & (j // c.block == other)
    return allowed


WIDE = {"layout": "2d", "rows": 2, "columns": 3, "above": 1, "beside": 2, "across": 3}
NARROW = {"layout": "2d", "rows": 3, "columns": 2, "above": 4, "beside": 3, "across": 1}
CASES = (
    ("local", same_block, {"block": 1}, {"block": 8}, {"block": 20}),
    ("blockwise", permuted_blocks, {"blocks": 3}, {"blocks": 5, "permutation": "random"}),
    (
        "sparse_transformer",
        rows_and_columns,
        {"stride": 5},
        {"pattern": "fixed", "stride": 6, "summary": 2},
    ),
    (
        "image_transformer",
        line,
        {"block": 6, "memory": 6},
        {"block": 4, "memory": 10},
        {"block": 4, "memory": 0},
    ),
    ("image_transformer", picture, WIDE, NARROW),
    (
        "longformer",
        window_and_globals,
        {"window": 16, "global_tokens": 5},
        {"window": 34, "global_tokens": 0},
        {"window": 4, "global_tokens": 3, "dilation": 3},
        {"window": 300, "global_tokens": 200},
    ),
    (
        "bigbird",
        random_blocks,
        {"block": 4, "global_tokens": 8, "random_tokens": 8},
        {"block": 8, "global_tokens": 5, "random_tokens": 16, "seed": 3},
        {"block": 3, "global_tokens": 0, "random_tokens": 3},
        {"block": 16, "global_tokens": 16, "random_tokens": 48},
    ),
)


def every():
    """Each form that runs here, in each causality, with all its options."""
    for name, pattern, *options in CASES:
        known = card(name)
        for form, causal in product(known.own_forms, causal_values(known.causality)):
            configs = [known.configure(chosen) for chosen in options]
            reasons = [known.refusal(form, config, workload(64, causal)) for config in configs]
            if not known.forms[form].compiles and not any(reasons):
                label = f"{name}-{pattern.__name__}-{form}" + "-causal" * causal
                yield pytest.param(known.forms[form], configs, pattern, causal, id=label)


def workload(seq_len, causal):
    sizes = {"width": 32, "heads": HEADS, "level": Level.CORE, "dtype": "float64"}
    return Workload(batch=2, seq_len=seq_len, causal=causal, **sizes)


def dense(q, k, v, allowed):
    logits = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~allowed, -torch.inf)
    return logits.softmax(-1).nan_to_num(0) @ v


@pytest.mark.parametrize(("form", "configs", "pattern", "causal"), [*every()])
@pytest.mark.parametrize("N", [64, 101])
def test_it_equals_dense_attention_under_its_mask(form, configs, pattern, causal, N):
    generator, i = torch.Generator().manual_seed(1), torch.arange(N)
    q, k, v = torch.randn(3, 2, HEADS, N, 8, generator=generator, dtype=torch.float64)
    mask = torch.rand(2, N, generator=generator) < 0.7
    mask[1, 50:] = False
    for config in configs:
        module = form(config, workload(N, causal))
        allowed = pattern(module, i[:, None], i)
        allowed = allowed.tril() if causal else allowed
        torch.testing.assert_close(module.attend(q, k, v, None), dense(q, k, v, allowed))
        padded = module.attend(q, k, v, mask), dense(q, k, v, allowed & mask[:, None, None])
        torch.testing.assert_close(*(o.transpose(1, 2)[mask] for o in padded))
