"""Linear Transformer: normaliser, sums in 16-bit types, and the default form."""

from dataclasses import replace

import pytest
import torch

from attnbench.mechanisms.linear_transformer import CARD, Config, Folded, LinearTransformer
from attnbench.records import Level, Workload


def workload(seq_len=21, causal=False, level=Level.ATTENTION, dtype="float32"):
    return Workload(
        batch=2, seq_len=seq_len, width=16, heads=4, level=level, causal=causal, dtype=dtype
    )


def built(form=LinearTransformer, causal=False, chunk=8, seq_len=21):
    torch.manual_seed(0)
    return form(Config(chunk=chunk), workload(seq_len, causal)).double().eval()


def heads(seed=1, seq_len=21, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 2, 4, seq_len, 4, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("causal", [False, True])
def test_each_output_is_an_average_of_the_values(causal):
    q, k, _ = heads()
    ones = torch.ones_like(q)
    torch.testing.assert_close(
        built(causal=causal).attend(q, k, ones, None), ones, atol=1e-5, rtol=0
    )


def test_with_equal_keys_all_values_have_equal_weights():
    q, k, v = heads()
    o = built().attend(q, k[:, :, :1].expand_as(k), v, None)
    torch.testing.assert_close(o, v.mean(2, keepdim=True).expand_as(v), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_sums_over_many_tokens_do_not_overflow_narrow_types(dtype, causal):
    q, k, v = heads(seq_len=4096, dtype=dtype)
    k, v = 20 + k, 20 + v  # their sums pass 65,504 after some 160 tokens
    module = built(causal=causal, seq_len=4096)
    o = module.attend(q, k, v, None)
    assert o.dtype == dtype
    exact = module.attend(q.double(), k.double(), v.double(), None)
    torch.testing.assert_close(o.double(), exact, rtol=0.02, atol=0)


def test_the_default_form_folds_where_that_is_less_work():
    w = Workload(batch=1, seq_len=2048, level=Level.ATTENTION)
    assert CARD.default(Config(), w) == "folded"
    assert CARD.default(Config(), replace(w, seq_len=128)) == "eager"
    for other in ({"causal": True}, {"level": Level.CORE}, {"dtype": "bfloat16"}):
        assert CARD.default(Config(), replace(w, **other)) == "eager"
        assert Folded.needs(Config(), replace(w, **other))
