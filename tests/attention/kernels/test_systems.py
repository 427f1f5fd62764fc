"""Triangular systems of chunks, and the states before them, against inverses and loops."""

import pytest
import torch
from torch.testing import assert_close

from attnbench.attention.kernels.systems import Solved, carried

n, B, H, C, DK, DV = 3, 2, 2, 5, 3, 4


def inputs():
    """S, L, A, right, q, b and last, and what is added to A U and T U; always the same."""
    chunks = (n, B, H)
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)

    return (
        drawn(B, H, DK, DV),
        drawn(*chunks, C, C),
        drawn(*chunks, C, C).tril(),
        drawn(*chunks, C, DV + DK),
        drawn(*chunks, C, DK),
        drawn(*chunks, C, DK),
        drawn(*chunks, 1, DK),
        drawn(*chunks, C, DV),
        drawn(*chunks, DK, DV),
    )


def by_definition(S, L, A, right, q, b, last, *added):
    """o and S, chunk by chunk, with the inverse of each system."""
    outputs = []
    for chunk in range(n):
        inverse = torch.linalg.inv(torch.eye(C).double() + L[chunk].tril(-1))
        U, W = (inverse @ right[chunk]).split([DV, DK], -1)
        T = b[chunk].mT
        AU, TU = A[chunk] @ U, T @ U
        if added:
            AU, TU = AU + added[0][chunk], TU + added[1][chunk]
        outputs.append(AU + (q[chunk] - A[chunk] @ W) @ S)
        S = TU + (torch.diag_embed(last[chunk].squeeze(-2)) - T @ W) @ S
    return torch.stack(outputs), S


@pytest.mark.parametrize("count", [7, 9])
def test_outputs_states_and_gradients_are_those_of_the_definition(count):
    """Without what is added, and with it."""
    results = []
    for function in (Solved.apply, by_definition):
        leaves = [x.clone().requires_grad_() for x in inputs()[:count]]
        o, S = function(*leaves)
        weighted = (o * o.detach().cos()).sum() + (S * S.detach().cos()).sum()
        results.append([o, S, *torch.autograd.grad(weighted, leaves)])
    for found, expected in zip(*results, strict=True):
        assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_nothing_above_the_diagonal_of_a_system_is_read():
    usual = inputs()
    S, L, *others = usual
    for found, expected in zip(
        Solved.apply(S, L + torch.rand_like(L).triu(), *others),
        Solved.apply(*usual),
        strict=True,
    ):
        assert_close(found, expected)


def test_states_are_those_before_each_chunk_and_the_last():
    added, factor = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 0.0, 5.0])
    before, last = carried(lambda a, f, S: a + f * S, added, factor, torch.tensor(10.0))
    assert before.tolist() == [10, 21, 2]
    assert last == 13
