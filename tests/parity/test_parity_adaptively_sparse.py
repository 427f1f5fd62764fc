"""α-entmax against the entmax package: weights and both gradients."""

import pytest
import torch

from attnbench.mechanisms.adaptively_sparse import Entmax

entmax = pytest.importorskip("entmax", reason="entmax is not installed")


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_weights_and_gradients(spread):
    torch.manual_seed(0)
    logits = spread * torch.randn(2, 4, 6, 50, dtype=torch.float64)
    alpha = torch.tensor([1.05, 1.3, 1.5, 1.9], dtype=torch.float64).view(1, 4, 1, 1)
    grad, results = torch.randn_like(logits), []
    for function in (
        lambda z, alpha: Entmax.apply(z, alpha[0] - 1),
        lambda z, alpha: entmax.entmax_bisect(z, alpha.expand(2, 4, 6, 1), n_iter=100),
    ):
        z, a = logits.clone().requires_grad_(), alpha.clone().requires_grad_()
        p = function(z, a)
        results.append([p, *torch.autograd.grad((p * grad).sum(), [z, a])])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-8)


def test_alpha_1_5_equals_the_exact_sorting_algorithm():
    torch.manual_seed(0)
    logits = 3 * torch.randn(2, 4, 6, 50, dtype=torch.float64)
    half = torch.full((4, 1, 1), 0.5, dtype=torch.float64)
    torch.testing.assert_close(Entmax.apply(logits, half), entmax.entmax15(logits, dim=-1))
