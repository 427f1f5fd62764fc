"""Longformer against masked dense attention; separate projections; published sizes."""

import pytest
import torch

from attnbench.attention.contract import merge
from attnbench.mechanisms.longformer import CARD, Config
from attnbench.records import Level, Workload


def workload(seq_len, level=Level.CORE, **sizes):
    return Workload(
        batch=2, seq_len=seq_len, width=32, heads=4, level=level, dtype="float64", **sizes
    )


def qkv(w):
    generator = torch.Generator().manual_seed(1)
    shape = (3, w.batch, w.heads, w.seq_len, w.head_width)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def pattern(config, w):
    """Allowed keys [N, N] by counting distances alone."""
    i, j = torch.meshgrid(torch.arange(w.seq_len), torch.arange(w.seq_len), indexing="ij")
    distance = (i - j).abs()
    reach = distance <= config.window // 2 * config.dilation
    allowed = reach & (distance % config.dilation == 0)
    allowed |= j < config.global_tokens
    if w.causal:
        return allowed & (j <= i)
    return allowed | (i < config.global_tokens)


def dense(q, k, v, allowed):
    logits = q @ k.mT / q.shape[-1] ** 0.5
    weights = logits.masked_fill(~allowed, -torch.inf).softmax(-1)
    return weights.nan_to_num(0) @ v


CASES = [
    Config(window=16, global_tokens=5),
    Config(window=34, global_tokens=0),
    Config(window=4, global_tokens=3, dilation=3),
    Config(window=300, global_tokens=200),
]


@pytest.mark.parametrize("config", CASES, ids=str)
@pytest.mark.parametrize("form", ["eager", "blocked"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seq_len", [64, 101])
def test_blocks_equal_dense_attention_under_the_pattern(config, form, causal, seq_len):
    w = workload(seq_len, causal=causal)
    q, k, v = qkv(w)
    attend = CARD.forms[form](config, w).attend
    allowed = pattern(config, w)
    torch.testing.assert_close(attend(q, k, v, None), dense(q, k, v, allowed))
    mask = torch.rand(2, seq_len, generator=torch.Generator().manual_seed(2)) < 0.7
    allowed = allowed & mask[:, None, None, :] & mask[:, None, :, None]
    torch.testing.assert_close(attend(q, k, v, mask), dense(q, k, v, allowed))


@pytest.mark.parametrize("form", ["eager", "blocked", "folded"])
def test_global_rows_use_separate_projections(form):
    w = workload(20, level=Level.ATTENTION)
    module = CARD.forms[form](Config(window=4, global_tokens=3, bias=True), w).double()
    x = torch.randn(2, 20, 32, dtype=torch.float64)
    q, k, v = (
        module.split(m(x)) for m in (module.query_global, module.key_global, module.value_global)
    )
    full = module.output(merge(dense(q, k, v, torch.tensor(True))))
    torch.testing.assert_close(module(x)[:, :3], full[:, :3])
    assert not torch.allclose(module(x)[:, 3:], full[:, 3:])


def test_flops_per_token_match_the_published_sizes():
    config = Config(window=16, global_tokens=16)
    for seq_len, expected in [(128, 0.860), (512, 0.848), (2048, 0.845), (65536, 0.844)]:
        w = Workload(batch=1, seq_len=seq_len, level=Level.ATTENTION)
        flops = CARD.forms["eager"].flops(config, w)
        total = flops.projections + flops.core
        assert total / w.tokens / 1e6 == pytest.approx(expected, abs=5e-4)
