"""Sparse Transformer: patterns against dense attention under their masks; limit cases."""

import pytest
import torch

from attnbench.attention.contract import merge
from attnbench.mechanisms.sparse_transformer import CARD, Config
from attnbench.mechanisms.transformer import Transformer
from attnbench.records import Workload

N = 37


def build(config, form="eager", seq_len=N, causal=False):
    torch.manual_seed(0)
    w = Workload(batch=2, seq_len=seq_len, width=16, heads=4, level="attention", causal=causal)
    return CARD.forms[form](config, w).double()


def pattern(config, causal, n=N):
    """[H, N, N]: which keys each head of four may use."""
    i, j = torch.arange(n)[:, None], torch.arange(n)
    far = (i - j) % config.stride == 0
    if config.pattern == "fixed":
        far = (j % config.stride >= config.stride - config.summary).expand(n, n)
    near = i // config.stride == j // config.stride
    return torch.stack([near, near, far, far]) & ((j <= i) | (not causal))


def masked_dense(module, x, allowed):
    q, k, v = (module.split(f(x)) for f in (module.query, module.key, module.value))
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~allowed, -torch.inf)
    return module.output(merge(scores.softmax(-1).nan_to_num(0) @ v))


@pytest.mark.parametrize("form", ["eager", "sdpa"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "config", [Config(stride=5), Config(pattern="fixed", stride=6, summary=2)], ids=str
)
def test_it_equals_dense_attention_under_its_mask(config, causal, form):
    module = build(config, form, causal=causal)
    x = torch.randn(2, N, 16, dtype=torch.float64)
    expected = masked_dense(module, x, pattern(config, causal))
    torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_with_a_stride_beyond_n_local_heads_are_softmax_and_others_return_the_value(form):
    module = build(Config(stride=64), form)
    plain = Transformer(Config(), Workload(batch=2, seq_len=N, width=16, heads=4)).double()
    q, k, v = torch.randn(3, 2, 4, N, 4, dtype=torch.float64)
    o = module.attend(q, k, v, None)
    torch.testing.assert_close(o[:, :2], plain.attend(q, k, v, None)[:, :2])
    assert torch.equal(o[:, 2:], v[:, 2:])


@pytest.mark.parametrize(("seq_len", "stride"), [(1, 1), (512, 16), (1000, 32), (65_536, 256)])
def test_without_a_stride_it_takes_the_power_of_two_nearest_the_root(seq_len, stride):
    assert Config(stride=None).span(seq_len) == stride


@pytest.mark.parametrize("seq_len", [1, 5, 6, 7, 37])
def test_summaries_are_counted_correctly(seq_len):
    config = Config(pattern="fixed", stride=7, summary=2)
    assert config.summaries(seq_len) == sum(j % 7 >= 5 for j in range(seq_len))


def test_impossible_options_are_refused():
    one_head = Workload(batch=1, seq_len=8, width=16, heads=1)
    assert "at least 2 heads" in CARD.refusal("eager", Config(), one_head)
