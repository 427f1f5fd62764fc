"""Poolingformer against dense attention, level by level; its weights."""

import pytest
import torch

from attnbench.attention.contract import merge
from tests.mechanisms.building import build

NAME = "poolingformer"


def tokens(seq_len):
    return torch.randn(2, seq_len, 16, dtype=torch.float64)


def dense(module, x, projections, k=None, v=None, allowed=None):
    """Softmax attention by three projections of `x`, over `allowed` keys."""
    q, *own = (module.split(projection(x)) for projection in projections)
    k, v = own if k is None else (k, v)
    logits = q @ k.mT / q.shape[-1] ** 0.5
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    return merge(logits.softmax(-1) @ v)


@pytest.mark.parametrize("form", ["eager", "blocked"])
@pytest.mark.parametrize("seq_len", [64, 101])
def test_it_equals_dense_attention_to_averaged_keys(form, seq_len):
    options = {"window": 12, "pool_window": 40, "kernel": 5, "stride": 4, "pooling": "mean"}
    module, x = build(NAME, form, seq_len=seq_len, **options), tokens(seq_len)
    first = module.query, module.key, module.value
    second = module.query_2, module.key_2, module.value_2
    i = torch.arange(seq_len)
    y = dense(module, x, first, allowed=(i[:, None] - i).abs() <= 6)
    k, v = (module.split(averaged(m(y))) for m in second[1:])
    centre = 4 * torch.arange(k.shape[2]) + 2
    z = dense(module, y, second, k, v, allowed=(i[:, None] - centre).abs() <= 20)
    torch.testing.assert_close(module(x), module.output(y + z))


def averaged(x):
    """Mean of those tokens 4 m to 4 m + 4 that exist: [B, N, D] to [B, ⌈N / 4⌉, D]."""
    parts = [x[:, start : start + 5].mean(1) for start in range(0, x.shape[1], 4)]
    return torch.stack(parts, 1)
