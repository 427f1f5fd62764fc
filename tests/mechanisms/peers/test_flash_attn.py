"""What FlashAttention takes, and how it is called, by a kernel that is softmax attention."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

from attnbench.mechanisms import transformer
from attnbench.mechanisms.peers.flash_attn import LARGEST, Transformer
from attnbench.records import Level, Workload

W = Workload(
    batch=2,
    seq_len=12,
    width=16,
    heads=4,
    level=Level.CORE,
    device="cuda",
    dtype="bfloat16",
)


def flash_attn_func(q, k, v, causal):
    """[B, N, H, d], as the package has it."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_given_tokens_before_heads_and_told_whether_it_is_causal(causal, monkeypatch):
    library = SimpleNamespace(flash_attn_func=flash_attn_func)
    monkeypatch.setattr(Transformer, "imported", classmethod(lambda cls: library))
    w = replace(W, device="cpu", dtype="float32", causal=causal)
    form = Transformer(transformer.CARD.config(), w)
    q, k, v = torch.randn(3, 2, 4, 12, 4)
    expected = scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert_close(form.attend(q, k, v, None), expected)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"dtype": "float16"}, None),
        ({"device": "cpu"}, "no CPU kernel"),
        ({"dtype": "float32"}, "has no float32 kernel; use float16 or bfloat16"),
        ({"width": 4 * LARGEST}, None),
        ({"width": 4 * LARGEST + 4}, "heads up to 256 wide, not 257"),
    ],
)
def test_what_its_kernels_do_not_take_is_said(changes, said):
    found = Transformer.unsupported_reason(transformer.CARD.config(), replace(W, **changes))
    assert (found is None) is (said is None)
    assert said is None or said in found


def test_it_keeps_one_number_for_each_query_and_head():
    assert Transformer.elements(None, W) == 4 * 2 * 12
