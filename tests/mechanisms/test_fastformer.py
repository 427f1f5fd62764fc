"""Fastformer: limit cases, shared parameters, and where each form runs."""

import pytest
import torch

from attnbench.mechanisms.fastformer import CARD, Config, Fastformer, Folded
from attnbench.records import Level, Workload

FORMS = pytest.mark.parametrize("cls", [Fastformer, Folded])
H, d, D = 4, 4, 16


def workload(seq_len, level=Level.ATTENTION, **changes):
    return Workload(batch=2, seq_len=seq_len, width=D, heads=H, level=level, **changes)


def build(cls, seq_len, level=Level.ATTENTION, **options):
    torch.manual_seed(0)
    return cls(Config(**options), workload(seq_len, level)).double()


def tokens(seq_len):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, seq_len, D, generator=generator, dtype=torch.float64)


def heads(x):
    """[B, N, D] to [B, N, H, d]."""
    return x.unflatten(-1, (H, d))


@FORMS
@pytest.mark.parametrize("masked", [False, True])
def test_without_logits_both_poolings_are_means_of_the_real_tokens(cls, masked):
    module = build(cls, 13, bias=True, share_query_value=False)
    module.w_q.data.zero_()
    module.w_k.data.zero_()
    x = tokens(13)
    mask = torch.arange(13) < torch.tensor([[13], [7]]) if masked else None
    q, k, v = module.query(x), module.key(x), module.value(x)
    real = torch.ones(2, 13, dtype=torch.bool) if mask is None else mask
    share = (real / real.sum(1, keepdim=True))[..., None]
    q_bar = (share * q).sum(1, keepdim=True)
    k_bar = (share * q_bar * k).sum(1, keepdim=True)
    expected = module.output(k_bar * v) + q
    torch.testing.assert_close(module(x, mask)[real], expected[real])


@FORMS
def test_with_one_real_token_both_poolings_return_it(cls):
    module = build(cls, 6)
    x, mask = tokens(6), torch.arange(6).expand(2, 6) == 2
    q, k = module.query(x), module.key(x)
    pooled = q[:, 2:3] * k[:, 2:3]
    torch.testing.assert_close(module(x, mask), module.output(pooled * q) + q)


@FORMS
def test_large_logits_select_one_token_per_head(cls):
    module = build(cls, 9)
    x = tokens(9)
    module.w_q.data.mul_(1e6)
    module.w_k.data.mul_(1e6)
    q, k = heads(module.query(x)), heads(module.key(x))
    chosen = (q * module.w_q).sum(-1).argmax(1)  # [B, H]
    q_bar = q.gather(1, chosen[:, None, :, None].expand(-1, -1, -1, d))
    p = q_bar * k
    chosen = (p * module.w_k).sum(-1).argmax(1)
    k_bar = p.gather(1, chosen[:, None, :, None].expand(-1, -1, -1, d))
    expected = module.output((k_bar * q).flatten(2)) + q.flatten(2)
    torch.testing.assert_close(module(x), expected)


@FORMS
def test_sharing_heads_equals_separate_heads_with_equal_parameters(cls):
    module, separate = build(cls, 7, share_heads=True), build(cls, 7)
    tied = {"query.weight", "key.weight", "w_q", "w_k"}
    for name, parameter in module.named_parameters():
        times = (H, 1) if name in tied else (1, 1)
        dict(separate.named_parameters())[name].data = parameter.detach().repeat(times)
    torch.testing.assert_close(module(tokens(7)), separate(tokens(7)))


@pytest.mark.parametrize("interaction", ["add", "concat"])
def test_with_add_or_concat_the_query_does_not_affect_the_pooling_of_keys(
    interaction,
):
    module = build(Fastformer, 10, Level.CORE, interaction=interaction)
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
    w = workload(8, **{"device": "cuda", **changes})
    assert reason in CARD.refusal("triton", Config(**options), w)
    assert CARD.refusal("triton", Config(), workload(8, device="cuda:1")) is None
    monkeypatch.setattr("attnbench.attention.kernels.find_spec", lambda name: None)
    assert "pip install triton" in CARD.refusal("triton", Config(), workload(8, device="cuda"))


def test_the_folded_form_is_the_default_where_it_is_cheaper():
    config = Config()
    assert CARD.default(config, workload(2 * D)) == "folded"
    assert CARD.default(config, workload(2 * D - 1)) == "eager"
    assert CARD.default(Config(interaction="add"), workload(2 * D)) == "eager"
    assert CARD.default(config, workload(2 * D, Level.CORE)) == "eager"
