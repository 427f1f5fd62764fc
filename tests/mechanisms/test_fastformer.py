"""Fastformer: shared parameters, and where each form runs."""

import pytest
import torch

from attnbench.mechanisms.fastformer import CARD, Config
from tests.mechanisms.building import build, core, workload

NAME = "fastformer"

FORMS = pytest.mark.parametrize("form", ["eager", "folded"])
H, d, D = 4, 4, 16


@FORMS
def test_sharing_heads_equals_separate_heads_with_equal_parameters(form):
    module, separate = (build(NAME, form, seq_len=7, share_heads=share) for share in (True, False))
    tied = {"query.weight", "key.weight", "w_q", "w_k"}
    for name, parameter in module.named_parameters():
        times = (H, 1) if name in tied else (1, 1)
        dict(separate.named_parameters())[name].data = parameter.detach().repeat(times)
    x = torch.randn(2, 7, D, dtype=torch.float64)
    torch.testing.assert_close(module(x), separate(x))


@pytest.mark.parametrize("interaction", ["add", "concat"])
def test_with_add_or_concat_the_query_does_not_affect_the_pooling_of_keys(
    interaction,
):
    module = core(NAME, seq_len=10, interaction=interaction)
    q, k, v = torch.randn(3, 2, H, 10, d, dtype=torch.float64)
    o = module.attend(q, k, v, None)
    alpha = ((q * module.w_q[:, None]).sum(-1) / d**0.5).softmax(-1)
    q_bar = (alpha[..., None] * q).sum(2, keepdim=True)
    beta = ((k * module.w_k[:, None, -d:]).sum(-1) / d**0.5).softmax(-1)
    k_bar = (beta[..., None] * k).sum(2, keepdim=True)
    if interaction == "add":
        expected = q_bar + k_bar + v
    else:
        expected = torch.cat([q_bar.expand_as(v), k_bar.expand_as(v), v], -1)
    torch.testing.assert_close(o, expected)


@pytest.mark.parametrize(
    ("options", "changes", "reason"),
    [
        ({"interaction": "add"}, {}, "only interaction=product"),
        ({}, {"device": "cpu"}, "Triton compiles for GPUs only"),
        ({}, {"device": "cuda", "dtype": "float64"}, "sums in float32"),
    ],
)
def test_the_triton_form_says_why_it_does_not_run(options, changes, reason, monkeypatch):
    monkeypatch.setattr("attnbench.attention.kernels.find_spec", lambda name: name)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    w = workload(NAME, seq_len=8, **{"device": "cuda", **changes})
    assert reason in CARD.refusal("triton", Config(**options), w)
    usual = workload(NAME, seq_len=8, device="cuda:1")
    assert CARD.refusal("triton", Config(), usual) is None
    monkeypatch.setattr("attnbench.attention.kernels.find_spec", lambda name: None)
    assert "pip install triton" in CARD.refusal("triton", Config(), usual)
