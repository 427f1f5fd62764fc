"""Linear Transformer: sums in 16-bit types."""

import pytest
import torch

from tests.mechanisms.building import core, qkv


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_sums_over_many_tokens_do_not_overflow_narrow_types(dtype, causal):
    q, k, v = qkv(4096).to(dtype)
    k, v = 20 + k, 20 + v  # their sums pass 65,504 after some 160 tokens
    module = core("linear_transformer", causal=causal, seq_len=4096, chunk=8)
    o = module.attend(q, k, v, None)
    assert o.dtype == dtype
    exact = module.attend(q.double(), k.double(), v.double(), None)
    torch.testing.assert_close(o.double(), exact, rtol=0.02, atol=0)
