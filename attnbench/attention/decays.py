"""What decays between two tokens of a chunk: the ratio of two sums of logs, and products over it.

    Γ_ij = e^{G_i − G_j},  j ≤ i                       [..., C, C]

is for one decay for each token, with G the sum of its logs. `channel_products` has Γ inside,
where every channel decays at a rate of its own:

    A_ij = Σ_d x_id y_jd e^{b_id − b_jd},  j ≤ i      b_i = g_1 + … + g_i      [..., C, R, C]

There x holds R rows for each of C tokens, [..., C, R, dk]; keys y and logs of decays g ≤ 0 are
[..., C, dk]. A is 0 where j > i. Also returned are e^{b_i} and e^{b_C − b_j}, [..., C, dk] each.

A factor e^{−b_j} could overflow, so A is computed in squares below its diagonal. A square of s × s
has the last s tokens of 2 s as rows and the first s as columns; both decay towards the border
between them, x_i from it to i and y_j from j to it, so that every factor is at most 1. From s = 1
on, squares and decays twice as large follow from the last ones. Decays are only multiplied, never
subtracted, so neither they nor their gradients lose digits where decays are strong.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad


def decay_rates(heads: int) -> tuple[Tensor, Tensor]:
    """A and b of decays e^{−e^A softplus(· + b)}, [H] each, as Mamba-2 draws them.

    e^A is uniform in [1, 16], and softplus(b) log-uniform in [0.001, 0.1].
    """
    speed = 10 ** torch.empty(heads).uniform_(-3, -1)
    return torch.empty(heads).uniform_(1, 16).log(), speed.expm1().log()


class Ratio(torch.autograd.Function):
    """Γ [..., C, C] in a `dtype`, of G [..., C]: e^{G_i − G_j} for j ≤ i, else 0.

    Differences are masked before `exp`, which would overflow there, and by 0: it is slow at −∞.
    Their float64 stays in the cache, some squares of C × C at a time.
    """

    @staticmethod
    def forward(ctx: Any, G: Tensor, dtype: torch.dtype) -> Tensor:
        gamma = G.new_empty(*G.shape, G.shape[-1], dtype=dtype)
        for square, rows in squares(gamma, G):
            square.copy_(rows[:, :, None] - rows[:, None]).tril_().exp_().tril_()
        ctx.save_for_backward(gamma)
        return gamma

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (gamma,) = ctx.saved_tensors
        to = gamma.new_empty(gamma.shape[:-1], dtype=torch.float64)
        for change, square, rows in squares(gradient, gamma, to):
            differences = (change * square).double()
            torch.sub(differences.sum(-1), differences.sum(-2), out=rows)
        return to, None


def squares(gamma: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Parts of [..., C, C] and of others with the same first dimensions, which become one.

    Each part fits a core's cache, or fills a GPU.
    """
    first = gamma.dim() - 3
    count = max(1, (2**18 if gamma.is_cpu else 2**26) // gamma.shape[-1] ** 2)
    parts = (x.flatten(0, first).split(count) for x in (gamma, *others))
    return zip(*parts, strict=True)


def channel_products(x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A, e^{b_i} and e^{b_C − b_j}; C is padded to a power of 2 by tokens that add nothing."""
    C = y.shape[-2]
    more = padded_length(C) - C
    x, y, g = pad(x, (0, 0, 0, 0, 0, more)), pad(y, (0, 0, 0, more)), pad(g, (0, 0, 0, more))
    A, growth, left = ChannelProducts.apply(x, y, g)
    return A[..., :C, :, :C], growth[..., :C, :], left[..., :C, :]


def channel_flops(chunk: int, rows: int, dk: int) -> int:
    """FLOPs of the squares of one chunk."""
    C = padded_length(chunk)
    return rows * C * (C - 1) * dk


def padded_length(C: int) -> int:
    """The next power of 2."""
    return 1 << (C - 1).bit_length()


class ChannelProducts(torch.autograd.Function):
    """A, e^{b_i} and e^{b_C − b_j} of x, y and g, where C is a power of 2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        A = x.new_zeros(*x.shape[:-1], C := y.shape[-2])
        A.diagonal(dim1=-3, dim2=-1).copy_((x * y[..., None, :]).sum(-1).mT)
        growth, left, levels, s = g.exp(), torch.ones_like(g), [], 1
        while s < C:
            total, after = halves(growth, s)  # decays in either half, from its first token on
            before, _ = halves(left, s)  # of the first half, to its last token
            rows = halves(x, s, -3)[1] * after[..., None, :]
            keys = halves(y, s)[0] * before
            square(A, s).copy_((rows.flatten(-3, -2) @ keys.mT).unflatten(-2, (s, -1)))
            levels += [rows, keys, after.clone(), before.clone()]
            before *= after[..., -1:, :]
            after *= total[..., -1:, :]
            s *= 2
        ctx.save_for_backward(x, y, growth, left, *levels)
        return A, growth, left

    @staticmethod
    def backward(ctx: Any, dA: Tensor, d_growth: Tensor, d_left: Tensor) -> tuple[Tensor, ...]:
        x, y, growth, left, *levels = ctx.saved_tensors
        diagonal = dA.diagonal(dim1=-3, dim2=-1).mT[..., None]  # [..., C, R, 1]
        dx, dy = diagonal * y[..., None, :], (diagonal * x).sum(-2)
        # gradients with respect to the logs of both factors
        d_growth, d_left = d_growth * growth, d_left * left
        s = y.shape[-2] // 2
        while s:
            *levels, rows, keys, after, before = levels
            d_total, d_after = halves(d_growth, s)
            d_before, _ = halves(d_left, s)
            d_total[..., -1, :] += d_after.sum(-2)
            d_after[..., -1, :] += d_before.sum(-2)
            d_square = square(dA, s).flatten(-3, -2)  # [..., s R, s]
            d_rows = (d_square @ keys).unflatten(-2, (s, -1))
            d_keys = d_square.mT @ rows.flatten(-3, -2)
            halves(dx, s, -3)[1].addcmul_(d_rows, after[..., None, :])
            halves(dy, s)[0].addcmul_(d_keys, before)
            d_after += (d_rows * rows).sum(-2)
            d_before.addcmul_(d_keys, keys)
            s //= 2
        return dx, dy, d_growth


def halves(x: Tensor, s: int, dim: int = -2) -> tuple[Tensor, Tensor]:
    """Views of the first and the last s of every 2 s tokens in `dim`: [..., C / 2 s, s, ...]."""
    pairs = x.unflatten(dim, (-1, 2, s))
    return pairs.select(dim - 1, 0), pairs.select(dim - 1, 1)


def square(A: Tensor, s: int) -> Tensor:
    """The view [..., C / 2 s, s, R, s] of the squares of s × s in A [..., C, R, C]."""
    pairs = A.unflatten(-1, (-1, 2, s)).unflatten(-5, (-1, 2, s)).diagonal(dim1=-7, dim2=-3)
    return pairs[..., 1, :, :, 0, :, :].movedim(-1, -4)
