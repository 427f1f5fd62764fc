"""What mechanisms have in common: chunks of any size, recomputing, and frozen assignments."""

from itertools import product

import pytest
import torch

from attnbench.attention.checks.trial import causal_values
from attnbench.mechanisms.catalogue.registry import card
from tests.kept import kept_bytes
from tests.mechanisms.building import build

LOGITS = "attnbench.attention.logits_at_once"
WINDOW = "attnbench.mechanisms.sliding_window.BLOCK"
BLOCK = "attnbench.mechanisms.performer.Chunked.block"
HASHED = {"chunk": 4, "rounds": 3, "buckets": 8}
WINDOWED = (
    {"window": 7},
    {"window": 150},
    {"window": 5, "sink_tokens": 3, "kv_heads": 2},
    {"window": 9, "sink_tokens": 4, "sink_logit": True, "kv_heads": 1},
)
KERNELS = ({"epsilon": 0.01}, {"kernel": "relu"}, {"kernel": "trigonometric"})
# a form, its options, N, and what says how much it computes at once, here so much
CHUNKED = (
    *(("adaptively_sparse", "chunked", {}, 19, LOGITS, size) for size in (5, 40, 200, 700)),
    *(
        ("reformer", "chunked", {**HASHED, "within_bucket": within}, 19, LOGITS, size)
        for within, size in product((False, True), (1, 40, 100, 1000))
    ),
    *(
        ("sliding_window", form, options, 300, WINDOW, size)
        for form, options, size in product(("masked", "blocked"), WINDOWED, (16, 64))
    ),
    *(
        ("performer", "chunked", {"features": 12, "chunk": 3, **kernel}, 21, BLOCK, 8)
        for kernel in KERNELS
    ),
)


def chunked():
    """Each of them in each causality, with padding, and without in long tests."""
    for row in CHUNKED:
        for causal, masked in product(causal_values(card(row[0]).causality), (False, True)):
            yield pytest.param(*row, causal, masked, marks=() if masked else pytest.mark.long)


@pytest.mark.parametrize(
    ("name", "form", "options", "seq_len", "what", "size", "causal", "masked"), [*chunked()]
)
def test_chunks_of_any_size_agree_with_eager(
    monkeypatch, name, form, options, seq_len, what, size, causal, masked
):
    monkeypatch.setattr(what, (lambda device: size) if what is LOGITS else size)
    x = torch.randn(2, seq_len, 16, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(seq_len) < torch.tensor([[seq_len], [seq_len // 3]])
    results = []
    for built in ("eager", form):
        module = build(name, built, seq_len=seq_len, causal=causal, **options)
        for parameter in module.parameters():
            if not parameter.any():
                torch.nn.init.normal_(parameter)
        torch.manual_seed(7)
        y = module(x, mask if masked else None)[mask]
        inputs = [x, *module.parameters()]
        results.append([y, *torch.autograd.grad((y * y.detach().cos()).sum(), inputs)])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "options", "keys", "most"),
    [
        ("transformer_xl", {"segment": 32, "memory": 32}, 64, 0.6),
        ("compressive_transformer", {"segment": 32, "memory": 32, "compressed": 32}, 96, 0.7),
    ],
)
def test_recomputing_keeps_no_scores(name, options, keys, most):
    x = torch.randn(2, 256, 16, dtype=torch.float64, requires_grad=True)
    eager, recomputed = (
        kept_bytes(build(name, form, seq_len=256, **options), x) for form in ("eager", "recomputed")
    )
    torch.testing.assert_close(eager[1], recomputed[1])
    scores = 2 * 4 * 256 * keys * 8
    assert eager[0] > scores * 0.9
    assert recomputed[0] < scores * most


@pytest.mark.parametrize(
    ("name", "form", "options"),
    [
        *(
            ("reformer", form, {"chunk": 4, "rounds": 2, "buckets": 4, "within_bucket": within})
            for form, within in product(("eager", "chunked"), (False, True))
        ),
        *(
            ("routing_transformer", form, {"clusters": 3, "members": 7, "window": 5})
            for form in ("eager", "sdpa")
        ),
    ],
)
def test_causal_attention_ignores_the_future_if_assignments_are_frozen(
    name, form, options, monkeypatch
):
    module = build(name, form, seq_len=18, causal=True, **options).eval()
    x = torch.randn(2, 18, 16, dtype=torch.float64, requires_grad=True)
    y = module(x)
    if name == "reformer":
        found = module.buckets
        monkeypatch.setattr(module, "hash", lambda q, mask: found)
    else:
        found = module.members[0]
        monkeypatch.setattr(module, "assign", lambda x, mask: (found, found))
    for i in (0, 1, 9, 16):
        (gradient,) = torch.autograd.grad(y[:, i].sum(), x, retain_graph=True)
        assert (gradient[:, i + 1 :] == 0).all()
        other = x.detach().clone()
        other[:, i + 1 :] = 3 * other[:, i + 1 :] + 1
        torch.testing.assert_close(module(other)[:, : i + 1], y[:, : i + 1])
