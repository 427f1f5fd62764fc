"""Nyströmformer against `transformers` and `nystrom-attention`, with their weights.

Both scale Z₀ by one number for the whole batch. With one head and one sequence this equals our
scale for each head, so few iterations are compared in this way; with many iterations the scale no
longer matters.
"""

import pytest
import torch

from attnbench.mechanisms.nystromformer import CARD, Config
from attnbench.records import Level, Workload


def ours(form, heads, iterations, batch, seq_len=24, taps=5, bias=False):
    w = Workload(batch=batch, seq_len=seq_len, width=16, heads=heads, level=Level.ATTENTION)
    config = Config(landmarks=6, iterations=iterations, conv_kernel=taps, bias=bias)
    return CARD.forms[form](config, w).double().eval()


@pytest.fixture(scope="module")
def transformers():
    reason = "the package transformers is not installed"
    name = "transformers.models.nystromformer.modeling_nystromformer"
    return pytest.importorskip(name, reason=reason)


@pytest.fixture(scope="module")
def nystrom_attention():
    reason = "the package nystrom-attention is not installed"
    return pytest.importorskip("nystrom_attention.nystrom_attention", reason=reason)


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize(("heads", "batch"), [(1, 1), (4, 3)])
@pytest.mark.parametrize("seq_len", [6, 24])
def test_it_equals_transformers(transformers, form, heads, batch, seq_len):
    torch.manual_seed(0)
    theirs = transformers.NystromformerSelfAttention(
        transformers.NystromformerConfig(
            hidden_size=16,
            num_attention_heads=heads,
            num_landmarks=6,
            segment_means_seq_len=seq_len,
            conv_kernel_size=5,
        )
    )
    theirs = theirs.double().eval()
    iterations = 6
    if heads > 1:
        iterations = 40
        theirs.iterative_inv = lambda A: type(theirs).iterative_inv(theirs, A, n_iter=40)
    module = ours(form, heads, iterations, batch, seq_len, bias=True)
    module.load_state_dict(theirs.state_dict(), strict=False)
    torch.nn.init.eye_(module.output.weight)
    torch.nn.init.zeros_(module.output.bias)
    x = torch.randn(batch, seq_len, 16, dtype=torch.float64)
    # the package's identity matrix is float32
    torch.testing.assert_close(module(x), theirs(x)[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", CARD.forms)
@pytest.mark.parametrize(
    ("heads", "iterations", "real"), [(1, 6, 24), (1, 6, 22), (4, 40, 24), (4, 40, 18)]
)
def test_it_equals_nystrom_attention(nystrom_attention, form, heads, iterations, real):
    torch.manual_seed(0)
    theirs = nystrom_attention.NystromAttention(
        16, 16 // heads, heads, 6, iterations, residual_conv_kernel=5, eps=0.0
    )
    theirs = theirs.double().eval()
    module = ours(form, heads, iterations, batch=1)
    state = theirs.state_dict()
    query, key, value = state["to_qkv.weight"].chunk(3)
    with torch.no_grad():
        module.query.weight.copy_(query)
        module.key.weight.copy_(key)
        module.value.weight.copy_(value)
        module.output.weight.copy_(state["to_out.0.weight"])
        module.conv.weight.copy_(state["res_conv.weight"])
    x = torch.randn(1, 24, 16, dtype=torch.float64)
    mask = None if real == 24 else torch.arange(24)[None] < real
    expected = theirs(x, mask=mask) - state["to_out.0.bias"]
    torch.testing.assert_close(module(x, mask)[:, :real], expected[:, :real], rtol=1e-5, atol=1e-5)
