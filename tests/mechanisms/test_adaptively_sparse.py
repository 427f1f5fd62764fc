"""α-entmax: both limits of α, and its root."""

import pytest
import torch

from attnbench.mechanisms.adaptively_sparse import (
    AdaptivelySparse,
    Chunked,
    Config,
    Entmax,
    threshold,
)
from attnbench.records import Level, Workload


def entmax(z, alpha):
    a = torch.full((z.shape[1], 1, 1), alpha - 1, dtype=z.dtype)
    return Entmax.apply(z, a)


def sparsemax(z):
    """Projection onto the simplex by sorting, one row at a time."""
    rows = []
    for row in z.flatten(0, -2):
        ordered, sums = row.sort(descending=True).values, 0.0
        for count, value in enumerate(ordered.tolist(), start=1):
            if value * count <= sums - 1 + value:
                break
            sums += value
            tau = (sums - 1) / count
        rows.append((row - tau).clamp(min=0))
    return torch.stack(rows).view_as(z)


def test_at_two_it_is_sparsemax():
    torch.manual_seed(0)
    z = torch.randn(2, 3, 5, 11, dtype=torch.float64)
    torch.testing.assert_close(entmax(z, 2 - 1e-9), sparsemax(z), rtol=1e-6, atol=1e-7)


def test_towards_one_it_is_softmax():
    torch.manual_seed(0)
    z = torch.randn(2, 3, 5, 11, dtype=torch.float64)
    gaps = [(entmax(z, alpha) - z.softmax(-1)).abs().max() for alpha in (1.1, 1.03, 1.01)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.02


@pytest.mark.parametrize("length", [1, 2, 300])
@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 50.0])
@pytest.mark.parametrize("a", [0.01, 0.3, 0.99, 1 - 1e-6])
def test_newton_reaches_the_root(length, spread, a):
    torch.manual_seed(0)
    z = spread * torch.randn(8, length, dtype=torch.float64)
    a = torch.tensor(a, dtype=torch.float64)
    x = a * (z - z.amax(-1, keepdim=True))
    total = ((x - threshold(x, a)).clamp(min=0) ** (1 / a)).sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-11, atol=0)


def test_weights_are_a_distribution_with_zeros():
    z = 3 * torch.randn(2, 4, 6, 30, dtype=torch.float64)
    A = entmax(z, 1.5)
    torch.testing.assert_close(A.sum(-1), torch.ones(2, 4, 6, dtype=torch.float64))
    assert (A == 0).float().mean() > 0.3


@pytest.mark.parametrize("form", [AdaptivelySparse, Chunked])
def test_the_sparsest_head_in_a_narrow_type_has_no_gradient_where_a_weight_is_0(form):
    torch.manual_seed(0)
    module = form(Config(), Workload(batch=1, seq_len=20, width=4, heads=1, level=Level.CORE))
    module.a.data.fill_(20.0)
    q, k, v = torch.randn(3, 1, 1, 20, 4).bfloat16()
    q[..., 1:] = k[..., 1:] = 0
    q[..., 0], k[:, :, :10, 0], k[:, :, 10:, 0] = 8.0, 4.0, -4.0  # the last ten keys get nothing
    (gradient,) = torch.autograd.grad(
        module.bfloat16().attend(q, k.requires_grad_(), v, None).sum(), k
    )
    assert (gradient[:, :, 10:] == 0).all()
