"""What mechanisms have in common: chunks of any size, recomputing, and frozen assignments."""

from itertools import product

import pytest
import torch

from tests.kept import kept_bytes
from tests.mechanisms.building import build

HASHED = {"chunk": 4, "rounds": 3, "buckets": 8}
CHUNKED = (
    *(("adaptively_sparse", {}, size) for size in (5, 40, 200, 700)),
    *(
        ("reformer", {**HASHED, "within_bucket": within}, size)
        for within, size in product((False, True), (1, 40, 100, 1000))
    ),
)


@pytest.mark.parametrize(("name", "options", "size"), CHUNKED)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_chunks_of_any_size_agree_with_eager(monkeypatch, name, options, size, causal, masked):
    monkeypatch.setattr("attnbench.attention.logits_at_once", lambda device: size)
    x = torch.randn(2, 19, 16, dtype=torch.float64)
    mask = torch.arange(19) < torch.tensor([[19], [6]]) if masked else None
    results = []
    for form in ("eager", "chunked"):
        module = build(name, form, seq_len=19, causal=causal, **options)
        torch.manual_seed(7)
        y = module(x, mask)
        y = y[mask] if masked else y
        results.append([y, *torch.autograd.grad(y.square().sum(), list(module.parameters()))])
    torch.testing.assert_close(*results)


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
