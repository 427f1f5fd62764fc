"""What xformers takes, and how it is called, by a kernel that is softmax attention."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

from attnbench.mechanisms import transformer
from attnbench.mechanisms.peers.xformers import Transformer
from attnbench.records import Level, Workload

W = Workload(batch=2, seq_len=12, width=16, heads=4, level=Level.CORE, device="cuda")


class LowerTriangularMask:
    """As the package has it."""


def memory_efficient_attention(q, k, v, attn_bias):
    """[B, N, H, d], as the package has it."""
    assert attn_bias is None or isinstance(attn_bias, LowerTriangularMask)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v, is_causal=attn_bias is not None).transpose(1, 2)


@pytest.mark.parametrize("causal", [False, True])
def test_it_is_given_tokens_before_heads_and_a_mask_where_it_is_causal(causal, monkeypatch):
    library = SimpleNamespace(
        LowerTriangularMask=LowerTriangularMask,
        memory_efficient_attention=memory_efficient_attention,
    )
    monkeypatch.setattr(Transformer, "imported", classmethod(lambda cls: library))
    form = Transformer(transformer.CARD.config(), replace(W, device="cpu", causal=causal))
    q, k, v = torch.randn(3, 2, 4, 12, 4)
    expected = scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert_close(form.attend(q, k, v, None), expected)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"dtype": "bfloat16"}, None),
        ({"device": "cpu"}, "no CPU kernel"),
        ({"dtype": "float64"}, "no float64 kernel"),
    ],
)
def test_what_its_kernels_do_not_take_is_said(changes, said):
    found = Transformer.unsupported_reason(transformer.CARD.config(), replace(W, **changes))
    assert (found is None) is (said is None)
    assert said is None or said in found
