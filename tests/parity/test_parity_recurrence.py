"""The recurrences against the plain ones of public packages.

Importing flash-linear-attention needs Triton; its naive references alone need only torch, and are
loaded as single files.
"""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from attnbench.attention.recurrence import decay_rule, delta_rule, dplr_rule
from attnbench.catalogue import registry
from attnbench.mechanisms.retention import decays
from attnbench.peers import fla
from attnbench.peers.transformers.sublayer import own
from attnbench.records import Level, Workload

B, H, N, D, DV = 2, 3, 70, 8, 12
CHUNKS = [None, 16, 64]
pytestmark = pytest.mark.filterwarnings("ignore")


def drawn():
    """q, k, v, β and g as [B, N, H, ...]."""
    torch.manual_seed(0)
    q, k = torch.randn(2, B, N, H, D)
    q, k = (t / t.norm(dim=-1, keepdim=True) for t in (q, k))
    return q, k, torch.randn(B, N, H, DV), torch.rand(B, N, H), -torch.rand(B, N, H)


def by_head(*tensors):
    """[B, N, H, ...] to [B, H, N, ...]."""
    return tuple(t.transpose(1, 2) for t in tensors)


def naive(operator):
    """The naive references of one operator of flash-linear-attention."""
    found = importlib.util.find_spec("fla")
    if found is None or not found.submodule_search_locations:
        pytest.skip("flash-linear-attention is not installed")
    file = Path(found.submodule_search_locations[0]) / "ops" / operator / "naive.py"
    spec = importlib.util.spec_from_file_location("fla_naive", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def qwen3_next(kind):
    """The gated delta rule of a model in transformers, by chunks or step by step."""
    public = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    return getattr(own(public), f"torch_{kind}_gated_delta_rule")


RULES = {
    # the package's rule, ours, and whether each channel has its own decay
    "gated_delta_chunk": (lambda: qwen3_next("chunk"), delta_rule, False),
    "gated_delta_recurrent": (lambda: qwen3_next("recurrent"), delta_rule, False),
    "kimi_delta": (lambda: naive("kda").naive_recurrent_kda, delta_rule, True),
    "gated_linear": (lambda: naive("gla").naive_recurrent_gla, decay_rule, True),
}


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_that_of_a_package(name, chunk):
    public, rule, by_channel = RULES[name]
    q, k, v, beta, g = drawn()
    g, S = -torch.rand(B, N, H, D) if by_channel else g, torch.randn(B, H, D, DV)
    steps = (beta,) if rule is delta_rule else ()
    expected, last = public()(q, k, v, g, *steps, initial_state=S, output_final_state=True)
    q, k, v, g, *steps = by_head(q, k, v, g, *steps)
    o, S = rule(S, g, q * D**-0.5, k, v, *steps, chunk)
    assert_close(o.transpose(1, 2), expected, rtol=1e-4, atol=1e-5)
    assert_close(S, last.to(S.dtype), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_retention_of_flash_linear_attention(chunk):
    q, k, v, *_ = by_head(*drawn())
    expected = naive("retention").naive_retention(q, k, v)
    o, _ = decay_rule(torch.zeros(B, H, D, 1, DV), decays(q), q * D**-0.5, k, v, chunk)
    assert_close(o, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_the_delta_rule_of_flash_linear_attention(chunk):
    q, k, v, beta, _ = by_head(*drawn())
    expected, last = naive("delta_rule").delta_rule_recurrence(q, k, v, beta)
    S, g = torch.zeros(B, H, D, DV), torch.zeros(1, 1, 1)
    o, S = delta_rule(S, g, q * D**-0.5, k, v, beta, chunk)
    assert_close(o, expected, rtol=1e-4, atol=1e-5)
    assert_close(S, last, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("theirs", ["recurrence", "chunkwise"])
def test_the_rule_of_rwkv7_of_flash_linear_attention(chunk, theirs):
    q, k, v, *_ = (t[:, :, :64] for t in by_head(*drawn()))
    g, S = -0.6 * torch.rand(B, H, 64, D), torch.randn(B, H, D, DV)
    kappa, rate = k / k.norm(dim=-1, keepdim=True), torch.rand(B, H, 64, D)
    rule = getattr(naive("generalized_delta_rule/dplr"), f"dplr_{theirs}")
    expected, last = rule(q, k, v, -kappa, rate * kappa, g, initial_state=S)
    # theirs reads S before its decay
    o, S = dplr_rule(S, g, q * D**-0.5, k, v, rate * kappa, kappa * (-g).exp(), chunk)
    assert_close(o, expected, rtol=1e-4, atol=1e-5)
    assert_close(S, last, rtol=1e-4, atol=1e-5)


def kernel_of(function, names):
    """A kernel of the package by its naive reference, whose arguments have other `names`."""

    def kernel(*, scale, **given):
        given = {names.get(key, key): x for key, x in given.items()}
        given["q"] = scale * given["q"] * given["q"].shape[-1] ** 0.5  # the naive ones divide by it
        return function(**given)

    return kernel


def rwkv7_by_head(**given):
    """That of dplr, which takes heads before tokens."""
    S = given.pop("initial_state")
    given = {key: x.transpose(1, 2) for key, x in given.items() if key != "output_final_state"}
    o, S = naive("generalized_delta_rule/dplr").dplr_recurrence(**given, initial_state=S)
    return o.transpose(1, 2), S


DPLR = {"r": "q", "a": "alpha", "b": "beta", "w": "gk"}
KERNELS = {
    "retention": lambda: ("chunk_simple_gla", naive("simple_gla").naive_recurrent_simple_gla, {}),
    "lightning": lambda: ("chunk_simple_gla", naive("simple_gla").naive_recurrent_simple_gla, {}),
    "mamba2": lambda: ("chunk_simple_gla", naive("simple_gla").naive_recurrent_simple_gla, {}),
    "gated_linear": lambda: ("chunk_gla", naive("gla").naive_recurrent_gla, {"g": "gk"}),
    "gated_delta_net": lambda: (
        "chunk_gated_delta_rule", naive("gated_delta_rule").naive_recurrent_gated_delta_rule, {}
    ),
    "kimi_delta": lambda: ("chunk_kda", naive("kda").naive_recurrent_kda, {}),
    "rwkv7": lambda: ("chunk_rwkv7", rwkv7_by_head, DPLR),
}  # fmt: skip


def peer(name, monkeypatch, **library):
    """The form of the package and `eager`, with the same parameters, and without its kernels."""
    card, form = registry.card(name), fla.FORMS[name]
    monkeypatch.setattr(form, "imported", classmethod(lambda cls: SimpleNamespace(**library)))
    monkeypatch.setattr("attnbench.peers.Kernel.try_out", lambda *_: None)
    w = Workload(batch=B, seq_len=N, width=H * D, heads=H, level=Level.ATTENTION, causal=True)
    theirs, ours = form(card.config(), w), card.forms["eager"](card.config(), w)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours, torch.randn(B, N, H * D)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_forms_of_flash_linear_attention_compute_the_mechanisms(name, masked, monkeypatch):
    called, function, names = KERNELS[name]()
    theirs, ours, x = peer(name, monkeypatch, **{called: kernel_of(function, names)})
    mask = (torch.arange(N) < N - 5).expand(B, -1) if masked else None
    assert_close(theirs(x, mask), ours(x, mask), rtol=1e-4, atol=1e-5)


def test_forgetting_of_flash_linear_attention(monkeypatch):
    naive_one = naive("forgetting_attn").naive_forgetting_attn
    theirs, ours, x = peer("forgetting", monkeypatch, parallel_forgetting_attn=naive_one)
    assert_close(theirs(x), ours(x), rtol=1e-4, atol=1e-5)
