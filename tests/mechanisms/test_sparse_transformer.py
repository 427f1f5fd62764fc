"""Sparse Transformer: limit cases, strides and summaries."""

import pytest
import torch

from attnbench.attention.primitives import softmax_attention
from attnbench.mechanisms.sparse_transformer import Config
from tests.mechanisms.building import core, qkv


@pytest.mark.parametrize("form", ["eager", "sdpa"])
def test_with_a_stride_beyond_n_local_heads_are_softmax_and_others_return_the_value(form):
    q, k, v = qkv(37)
    o = core("sparse_transformer", form, seq_len=37, stride=64).attend(q, k, v, None)
    torch.testing.assert_close(o[:, :2], softmax_attention(q, k, v, None)[:, :2])
    assert torch.equal(o[:, 2:], v[:, 2:])


@pytest.mark.parametrize(("seq_len", "stride"), [(1, 1), (512, 16), (1000, 32), (65_536, 256)])
def test_without_a_stride_it_takes_the_power_of_two_nearest_the_root(seq_len, stride):
    assert Config(stride=None).span(seq_len) == stride


@pytest.mark.parametrize("seq_len", [1, 5, 6, 7, 37])
def test_summaries_are_counted_correctly(seq_len):
    config = Config(pattern="fixed", stride=7, summary=2)
    assert config.summaries(seq_len) == sum(j % 7 >= 5 for j in range(seq_len))
