"""Poolingformer against dense attention, level by level; its weights; published sizes."""

import pytest
import torch
import torch.nn.functional as F

from attnbench.attention.contract import merge
from attnbench.mechanisms.poolingformer import CARD, Config
from attnbench.records import Level, Workload


def workload(seq_len, **sizes):
    return Workload(
        **{"batch": 2, "width": 32, "heads": 4, "dtype": "float64", **sizes},
        seq_len=seq_len,
        level=Level.ATTENTION,
    )


def build(config, seq_len, form="eager"):
    torch.manual_seed(0)
    module = CARD.forms[form](config, workload(seq_len)).double()
    return module, torch.randn(2, seq_len, 32, dtype=torch.float64)


def dense(module, x, projections, k=None, v=None, allowed=None):
    """Softmax attention by three projections of `x`, over `allowed` keys."""
    q, *own = (module.split(projection(x)) for projection in projections)
    k, v = own if k is None else (k, v)
    logits = q @ k.mT / q.shape[-1] ** 0.5
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    return merge(logits.softmax(-1) @ v)


def levels(module):
    return (
        (module.query, module.key, module.value),
        (module.query_2, module.key_2, module.value_2),
    )


@pytest.mark.parametrize("form", ["eager", "blocked"])
@pytest.mark.parametrize("seq_len", [64, 101])
def test_it_equals_dense_attention_to_averaged_keys(form, seq_len):
    config = Config(window=12, pool_window=40, kernel=5, stride=4, pooling="mean")
    module, x = build(config, seq_len, form)
    first, second = levels(module)
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


def test_learned_weights_depend_on_the_centre_and_sum_to_one():
    module, _ = build(Config(kernel=7, stride=3), 33)
    used = module.covered(torch.ones(1, 33, dtype=torch.bool))
    flat = torch.ones(1, 4, 33, 8, dtype=torch.float64)
    torch.testing.assert_close(module.pooled(flat, used), flat[:, :, :11])
    x = torch.randn(1, 4, 33, 8, dtype=torch.float64)
    with torch.no_grad():
        # centre 16 of pooled key 5; tokens 13 to 19
        weights = F.softmax(x[0, 2, 16] @ module.W_p.T, -1)
        torch.testing.assert_close(module.pooled(x, used)[0, 2, 5], weights @ x[0, 2, 13:20])


def test_a_kernel_wider_than_the_stride_weights_all_its_tokens():
    module, x = build(Config(window=4, pool_window=8, kernel=64, stride=4), 90, "blocked")
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(module(x)[0, 45].sum(), x)
    reached = gradient[0].abs().sum(-1).nonzero().flatten()
    # pooled centres 42 and 46, 32 tokens to each side and half the first window, cut at the end
    assert reached.min() == 42 - 32 - 2
    assert reached.max() == 46 + 31 + 2


@pytest.mark.parametrize(
    ("pooling", "expected"), [("max", 1.040), ("mean", 1.042), ("ldconv", 1.043)]
)
def test_flops_per_token_match_the_published_sizes(pooling, expected):
    config = Config(window=16, pool_window=256, pooling=pooling)
    w = workload(2048, width=256, heads=16)
    flops = CARD.forms["eager"].flops(config, w)
    total = flops.projections + flops.core
    assert total / w.tokens / 1e6 == pytest.approx(expected, abs=5e-4)
