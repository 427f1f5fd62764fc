"""How kernels of flash-linear-attention are called, by functions that compute the same on a CPU."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from attnbench.attention.kernels.recurrence import decay_rule, delta_rule
from attnbench.mechanisms import (
    gated_delta_net,
    gated_linear,
    linear_transformer,
    mamba2,
    retention,
)
from attnbench.mechanisms.peers import fla
from attnbench.records import Level, Workload

W = Workload(batch=2, seq_len=12, width=16, heads=4, level=Level.ATTENTION, causal=True)
GPU = replace(W, device="cuda")


def by_head(tensors):
    """[B, N, H, …] as the package has it, to [B, H, N, …]."""
    return {name: x.transpose(1, 2) for name, x in tensors.items()}


def chunk_simple_gla(q, k, v, g, scale, initial_state, output_final_state):
    """One decay for each token and head, and keys of each head's own."""
    x = by_head({"g": g, "q": q * scale, "k": k, "v": v})
    assert x["q"].shape[1] == x["v"].shape[1], "heads share no keys in the package"
    o, S = decay_rule(initial_state.unsqueeze(3), *x.values(), None)
    return o.transpose(1, 2), S.squeeze(3)


def chunk_gla(q, k, v, g, scale, initial_state, output_final_state):
    x = by_head({"g": g, "q": q * scale, "k": k, "v": v})
    o, S = decay_rule(initial_state, *x.values(), None)
    return o.transpose(1, 2), S


def chunk_gated_delta_rule(q, k, v, g, beta, scale, initial_state, output_final_state):
    x = by_head({"g": g, "q": q * scale, "k": k, "v": v, "beta": beta})
    o, S = delta_rule(initial_state, *x.values(), None)
    return o.transpose(1, 2), S


def chunk_linear_attn(q, k, v, scale, normalize):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    weights = (q @ k.mT * scale).tril()
    o = weights @ v / weights.sum(-1, keepdim=True) if normalize else weights @ v
    return o.transpose(1, 2), None


LIBRARY = SimpleNamespace(
    chunk_simple_gla=chunk_simple_gla,
    chunk_gla=chunk_gla,
    chunk_gated_delta_rule=chunk_gated_delta_rule,
    chunk_linear_attn=chunk_linear_attn,
)


def with_same_weights(mechanism, monkeypatch):
    """The mechanism as its paper writes it, and by the kernels of the package."""
    card = mechanism.CARD
    kind = fla.FORMS[mechanism.__name__.rpartition(".")[2]]
    monkeypatch.setattr(kind, "imported", classmethod(lambda cls: LIBRARY))
    torch.manual_seed(0)
    eager = card.forms["eager"](card.config(), W).eval()
    form = kind(card.config(), W).eval()
    form.load_state_dict(eager.state_dict())
    return eager, form


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "mechanism", [gated_linear, gated_delta_net, retention, linear_transformer]
)
def test_a_kernel_of_the_package_computes_the_mechanism(mechanism, masked, monkeypatch):
    eager, form = with_same_weights(mechanism, monkeypatch)
    x = torch.randn(2, 12, 16)
    mask = torch.arange(12).expand(2, -1) < 9 if masked else None
    with torch.no_grad():
        found, expected = form(x, mask), eager(x, mask)
    assert_close(found[:, :9], expected[:, :9], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mechanism", [gated_linear, gated_delta_net, retention, mamba2])
def test_a_state_has_the_layout_of_the_mechanism(mechanism, monkeypatch):
    """Also where heads of a group share keys, which the package does not know."""
    eager, form = with_same_weights(mechanism, monkeypatch)
    x = torch.randn(2, 12, 16)
    with torch.no_grad():
        states = [module.prefill(x, module.start(2, 12))[1] for module in (form, eager)]
    for found, expected in zip(*states, strict=True):
        assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_a_single_token_is_computed_by_this_package(monkeypatch):
    kind = fla.FORMS["gated_linear"]
    monkeypatch.setattr(kind, "imported", classmethod(lambda cls: LIBRARY))
    form = kind(gated_linear.CARD.config(), W)
    form.library = None
    with torch.no_grad():
        assert form(torch.randn(2, 1, 16)).isfinite().all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"causal": False}, "is causal only; add --causal"),
        ({"device": "cpu"}, "has no CPU kernel"),
        ({"dtype": "float64"}, "has no float64 kernel"),
        ({"seq_len": 3}, "takes no fewer tokens than heads, 4"),
    ],
)
def test_what_its_kernels_do_not_take_is_said(changes, said):
    for kind in fla.FORMS.values():
        found = kind.unsupported_reason(None, replace(GPU, **changes))
        assert (found is None) is (said is None)
        assert said is None or found.endswith(said)


def test_tensors_are_turned_and_named():
    q, k = torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 5)
    assert [tuple(x.shape) for x in fla.by_token(q, k)] == [(2, 5, 3, 7), (2, 5, 3)]
    assert fla.named("qk", (q, k)) == {"q": q, "k": k}
