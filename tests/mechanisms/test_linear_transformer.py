"""Linear Transformer: normaliser, and sums in 16-bit types."""

import pytest
import torch

from tests.mechanisms.building import core, qkv

NAME = "linear_transformer"


@pytest.mark.parametrize("causal", [False, True])
def test_each_output_is_an_average_of_the_values(causal):
    q, k, _ = qkv(21)
    ones = torch.ones_like(q)
    o = core(NAME, causal=causal, seq_len=21, chunk=8).attend(q, k, ones, None)
    torch.testing.assert_close(o, ones, atol=1e-5, rtol=0)


def test_with_equal_keys_all_values_have_equal_weights():
    q, k, v = qkv(21)
    o = core(NAME, seq_len=21, chunk=8).attend(q, k[:, :, :1].expand_as(k), v, None)
    torch.testing.assert_close(o, v.mean(2, keepdim=True).expand_as(v), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_sums_over_many_tokens_do_not_overflow_narrow_types(dtype, causal):
    q, k, v = qkv(4096).to(dtype)
    k, v = 20 + k, 20 + v  # their sums pass 65,504 after some 160 tokens
    module = core(NAME, causal=causal, seq_len=4096, chunk=8)
    o = module.attend(q, k, v, None)
    assert o.dtype == dtype
    exact = module.attend(q.double(), k.double(), v.double(), None)
    torch.testing.assert_close(o.double(), exact, rtol=0.02, atol=0)
