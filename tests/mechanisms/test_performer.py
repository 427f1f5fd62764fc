"""Performer: what the features estimate, how they are drawn, and blocks of tokens."""

import pytest
import torch

from attnbench.attention.kernels.primitives import masked_softmax
from attnbench.mechanisms.performer import Chunked, draw
from tests.mechanisms.building import core, qkv

N, d = 21, 4
FORMS = pytest.mark.parametrize("form", ["eager", "chunked"])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(Chunked, "block", 8)


def built(form="eager", causal=False, **options):
    return core("performer", form, seq_len=N, causal=causal, **options).eval()


@pytest.mark.parametrize("kernel", ["positive", "trigonometric"])
@pytest.mark.parametrize("causal", [False, True])
@FORMS
def test_many_features_give_softmax_attention(kernel, causal, form):
    q, k, v = qkv(N)
    q, k = q / 2, k / 2  # the variance of the estimate grows exponentially with them
    module = built(form, causal, kernel=kernel, features=20_000)
    allowed = torch.ones(N, N, dtype=torch.bool).tril() if causal else None
    expected = masked_softmax(q @ k.mT / d**0.5, allowed) @ v
    error = (module.attend(q, k, v, None) - expected).abs().max()
    other_scale = (masked_softmax(q @ k.mT, allowed) @ v - expected).abs().max()
    assert error < 0.04 < other_scale / 4


def test_rows_of_omega_are_orthogonal_in_blocks():
    omega = draw(10, d, orthogonal=True).double()
    products = omega @ omega.T
    blocks = torch.block_diag(*[torch.ones(n, n) for n in (4, 4, 2)]).bool()
    apart = blocks & ~torch.eye(10, dtype=torch.bool)
    assert products[apart].abs().max() < 1e-5
    assert products[~blocks].abs().max() > 1e-2


@pytest.mark.parametrize("orthogonal", [True, False])
def test_each_row_of_omega_is_a_standard_gaussian(orthogonal):
    torch.manual_seed(0)
    omega = draw(40_000, d, orthogonal)
    for rows in omega.unflatten(0, (-1, d)).unbind(1):  # first rows of blocks, second rows, …
        torch.testing.assert_close(rows.mean(0), torch.zeros(d), rtol=0, atol=0.05)
        torch.testing.assert_close(rows.T.cov(), torch.eye(d), rtol=0, atol=0.06)


@pytest.mark.parametrize("causal", [False, True])
def test_a_block_of_padding_contributes_nothing(causal):
    q, k, v = qkv(N)
    k = k - 3 * k.abs().amax()  # the maximum over real keys may be below that of no key
    module = built("chunked", causal, features=2, epsilon=0.1)
    o = module.attend(q[:, :, :8], k[:, :, :8], v[:, :, :8], None)
    mask = (torch.arange(N) < 8).expand(2, N)
    torch.testing.assert_close(module.attend(q, k, v, mask)[:, :, :8], o)


def test_omega_is_redrawn_only_in_training():
    module = built(features=8, redraw=True)
    q, k, v = qkv(N)
    fixed = module.omega.clone()
    module.attend(q, k, v, None)
    assert torch.equal(module.omega, fixed)
    module.train()
    outputs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        outputs.append(module.attend(q, k, v, None))
    assert not torch.equal(module.omega, fixed)
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])


@FORMS
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 40])
def test_16_bit_types_and_large_inputs_stay_finite(form, causal, dtype, size):
    q, k, v = qkv(N).to(dtype)
    module = built(form, causal, features=16)
    o = module.attend(size * q, size * k, v, None)
    assert o.dtype == dtype
    exact = module.attend(size * q.double(), size * k.double(), v.double(), None)
    digits = 0.02 if dtype == torch.bfloat16 else 1e-3
    torch.testing.assert_close(o.double(), exact, rtol=digits, atol=digits)
