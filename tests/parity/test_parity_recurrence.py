"""The recurrences, token by token, against the plain ones of flash-linear-attention.

Importing flash-linear-attention needs Triton; its naive references alone need only torch, and are
loaded as single files.
"""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from attnbench.catalogue import registry
from attnbench.peers import fla
from attnbench.records import Level, Workload

B, H, N, D = 2, 3, 70, 8
pytestmark = pytest.mark.filterwarnings("ignore")


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
