"""The Triton kernels of additive pooling against float64, run by Triton's interpreter on a CPU.

`nox -s triton` runs these tests. Kernels loop over constants only: with numpy 2.4 the interpreter
takes no other bound.
"""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("TRITON_INTERPRET=1 is not set; run nox -s triton", allow_module_level=True)
pytest.importorskip("triton", reason="Triton is not installed; run nox -s triton")

from attnbench.attention.kernels.pooling import pooled
from attnbench.mechanisms.fastformer import CARD, Config
from attnbench.records import PASSES, Level, Workload

# largest error relative to the largest value: the kernels sum in float32
ALLOWED = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
MASKS = {
    "no mask": lambda B, N: None,
    "padding at the end": lambda B, N: torch.arange(N) < torch.arange(N, N - B, -1)[:, None],
    "padding anywhere": lambda B, N: torch.rand(B, N) < 0.5,
    "one sequence of padding": lambda B, N: torch.arange(B)[:, None].expand(B, N) > 0,
}
# how x [B, H, N, d] may lie in a larger tensor
VIEWS = {
    "heads beside one another": ((2, 40, 3, 8), lambda t: t.transpose(1, 2)),
    "every other token": ((2, 3, 80, 8), lambda t: t[:, :, ::2]),
    "every other column": ((2, 3, 40, 16), lambda t: t[..., ::2]),
    "columns first": ((2, 3, 8, 40), lambda t: t.mT),
    "one head for all": ((2, 1, 40, 8), lambda t: t.expand(-1, 3, -1, -1)),
    "reversed axes": ((8, 40, 3, 2), lambda t: t.permute(3, 2, 1, 0)),
}


def by_definition(x, w, mask, scale):
    logits = scale * torch.einsum("bhnd,bhd->bhn", x, w.expand(*x.shape[:2], -1))
    if mask is not None:
        logits = logits.masked_fill(~mask[:, None], -torch.inf)
    return torch.einsum("bhn,bhnd->bhd", logits.softmax(-1).nan_to_num(), x)


def agree(leaf, w, mask, view=lambda t: t, scale=0.3):
    """Output and both gradients of `view(leaf)` pooled, against float64."""
    found = []
    for function, dtype in ((pooled, leaf.dtype), (by_definition, torch.float64)):
        leaves = [t.to(dtype, copy=True).requires_grad_() for t in (leaf, w)]
        o = function(view(leaves[0]), leaves[1], mask, scale)
        torch.manual_seed(1)
        gradient = torch.randn(o.shape).to(leaf.dtype).to(dtype)
        found.append([o, *torch.autograd.grad(o, leaves, gradient)])
    for ours, expected in zip(*found, strict=True):
        assert ours.dtype == leaf.dtype
        error = (ours.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-3)
        assert error <= ALLOWED[leaf.dtype], float(error)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("rows", [(1, 1), (1, 3), (2, 3)], ids=str)
def test_any_strides(view, rows):
    shape, as_heads = VIEWS[view]
    mask = torch.rand(40, 2).T < 0.5
    agree(torch.randn(shape), torch.randn(*rows, 8), mask, as_heads)


@settings(max_examples=40)
@given(
    *(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2500), st.integers(1, 40)),
    st.sampled_from([*MASKS]),
    st.sampled_from([*ALLOWED]),
)
def test_any_size_padding_and_type(B, H, N, d, mask, dtype):
    """One part or several of them, the last one incomplete; widths that are no power of two."""
    torch.manual_seed(N)
    x, w = torch.randn(B, H, N, d).to(dtype), torch.randn(B, H, d).to(dtype)
    agree(x, w, MASKS[mask](B, N))


def test_large_logits_stay_finite():
    x, w = 100 * torch.randn(2, 2, 1500, 8), 100 * torch.randn(2, 2, 8)
    o = pooled(x, w, None, 1.0)
    chosen = torch.einsum("bhnd,bhd->bhn", x, w).argmax(-1)
    expected = x.gather(2, chosen[..., None, None].expand(-1, -1, 1, 8)).squeeze(2)
    torch.testing.assert_close(o, expected)


def test_what_is_masked_is_not_read():
    x, w, mask = torch.randn(1, 2, 30, 4), torch.randn(1, 2, 4), torch.arange(30)[None] < 20
    x[:, :, 20:] = torch.nan
    o = pooled(x, w, mask, 1.0)
    torch.testing.assert_close(o, pooled(x[:, :, :20], w, None, 1.0))


def forms(config, dtype, level=Level.ATTENTION):
    """The Triton form, and `eager` in float64 with the same parameters."""
    w = Workload(batch=2, seq_len=37, width=24, heads=4, level=level, dtype=dtype)
    assert CARD.refusal("triton", config, w) is None
    ours = CARD.forms["triton"](config, w).to(getattr(torch, dtype))
    exact = CARD.forms["eager"](config, w)
    exact.load_state_dict(ours.state_dict())
    return ours, exact.double()


CONFIGS = [Config(), Config(bias=True, share_query_value=False), Config(share_heads=True)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_form_equals_eager(config, mask, dtype):
    ours, exact = forms(config, dtype)
    real = MASKS[mask](2, 37)
    x = torch.randn(2, 37, 24).to(ours.query.weight.dtype)
    found = []
    for module in (ours, exact):
        leaf = x.to(module.query.weight.dtype, copy=True).requires_grad_()
        y = module(leaf, real)
        y = y if real is None else y * real[..., None]
        gradients = torch.autograd.grad(y.square().sum(), [leaf, *module.parameters()])
        found.append([y, *gradients])
    largest = max(gradient.abs().max() for gradient in found[1][1:])
    for index, (a, b) in enumerate(zip(*found, strict=True)):
        scale = largest if index else b.abs().max()
        assert (a.double() - b).abs().max() <= (1e-5 if dtype == "float32" else 5e-2) * scale


def test_the_core_equals_eagers():
    ours, exact = forms(Config(), "float32", Level.CORE)
    q, k, v = torch.randn(3, 2, 4, 37, 6)
    expected = exact.attend(q.double(), k.double(), v.double(), None)
    torch.testing.assert_close(ours.attend(q, k, v, None).double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", PASSES)
def test_a_kernel_that_does_not_run_is_unusable(mode, monkeypatch):
    from attnbench.attention.contract import Unusable

    monkeypatch.setattr("attnbench.attention.kernels.pooling.sizes", lambda N, d: 1 / 0)
    with pytest.raises(Unusable, match="the Triton kernel does not work here: ZeroDivisionError"):
        CARD.forms["triton"](Config(), Workload(batch=1, seq_len=8, mode=mode))
