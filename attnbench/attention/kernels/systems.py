"""The triangular systems of chunks of a recurrence, and the states before all chunks.

[U W] = (I + tril(L, −1))⁻¹ right                                  [n, B, H, C, dv + dk]
S⁺ = T U + (diag(last) − T W) S,  o = A U + (q − A W) S,  T = bᵀ
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnbench.attention.kernels.autograd import Written


class Solved(Written):
    """o and S of [U W] = (I + tril(L, −1))⁻¹ right, and what is `added` to A U and T U.

    q and b have their decays from the start and to the end of their chunks, which are `last`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        S: Tensor,
        L: Tensor,
        A: Tensor,
        right: Tensor,
        q: Tensor,
        b: Tensor,
        last: Tensor,
        *added: Tensor,
    ) -> tuple[Tensor, Tensor]:
        dk, dv = S.shape[2:]
        # reads L below its diagonal only; from the right, rows of the result are contiguous
        UW = torch.linalg.solve_triangular(
            L.mT, right.mT, upper=True, left=False, unitriangular=True
        ).mT
        AU, AW = (A @ UW).split([dv, dk], -1)
        TU, TW = (b.mT @ UW).split([dv, dk], -1)
        if added:
            AU = AU + added[0]
            TU = TU + added[1]
        factor = -TW
        factor.diagonal(0, -2, -1).add_(last.squeeze(-2))
        reads = q - AW
        sequences = S.flatten(0, 1)  # [B H, dk, dv]
        before, S = carried(torch.baddbmm, TU.flatten(1, 2), factor.flatten(1, 2), sequences)
        o = torch.baddbmm(AU.flatten(0, 2), reads.flatten(0, 2), before.flatten(0, 1))
        ctx.save_for_backward(L, A, UW, reads, b, before.view(TU.shape), factor)
        return o.unflatten(0, A.shape[:3]), S.unflatten(0, A.shape[1:3])

    @staticmethod
    def backward(ctx: Any, do: Tensor, dS: Tensor) -> tuple[Tensor | None, ...]:
        L, A, UW, reads, b, before, factor = ctx.saved_tensors
        d_before = (reads.mT @ do).flatten(1, 2)
        after = [dS.flatten(0, 1)]
        for d, f in zip(reversed(d_before), reversed(factor.flatten(1, 2)), strict=True):
            after.append(torch.baddbmm(d, f.mT, after[-1]))
        dS = after.pop().view(dS.shape)
        d_after = torch.stack(after[::-1]).view(before.shape)
        del d_before, after  # or they are part of the peak
        d_reads = do @ before.mT
        d_factor = d_after @ before.mT
        dA_UW = torch.cat([do, -d_reads], -1)
        dT_UW = torch.cat([d_after, -d_factor], -1)
        d_last = d_factor.diagonal(0, -2, -1)[..., None, :].clone()
        del d_factor
        d_UW = A.mT @ dA_UW
        d_UW.flatten(0, 2).baddbmm_(b.flatten(0, 2), dT_UW.flatten(0, 2))
        dA = dA_UW @ UW.mT
        db = UW @ dT_UW.mT
        del dA_UW, dT_UW
        d_right = torch.linalg.solve_triangular(
            L, d_UW.mT, upper=False, left=False, unitriangular=True
        ).mT
        dL = (d_right @ UW.mT).tril_(-1).neg_()
        found = dS, dL, dA, d_right, d_reads, db, d_last
        added = ctx.needs_input_grad[len(found) :]
        return *found, *(do, d_after)[: len(added)]


def carried(
    apply: Callable[[Tensor, Tensor, Tensor], Tensor], added: Tensor, factor: Tensor, S: Tensor
) -> tuple[Tensor, Tensor]:
    """The state before each chunk, with S⁺ = apply(added, factor, S), and the last state."""
    before = []
    for a, f in zip(added.unbind(), factor.unbind(), strict=True):
        before.append(S)
        S = apply(a, f, S)
    return torch.stack(before), S
