"""What decays between two tokens of a chunk: the ratio of two sums of logs, and products over it.

    Γ_ij = e^{G_i − G_j},  j ≤ i                       [..., C, C]

is for one decay for each token, with G the sum of its logs. `channel_products` has Γ inside,
where every channel decays at a rate of its own:

    A_ij = Σ_d x_id y_jd e^{b_id − b_jd},  j ≤ i      b_i = g_1 + … + g_i      [..., C, C]

Rows x, keys y and logs of decays g ≤ 0 are [..., C, dk]. A is 0 where j > i. Also returned are
e^{b_i} and e^{b_C − b_j}, [..., C, dk] each.

A factor e^{−b_j} could overflow, so keys are taken in blocks of 8 tokens, and decays counted from
the middle of a block. A decay that leaves less than the rounding of its type, 1.2 · 10⁻⁷ in
float32, leaves that much: factors are then at most e^64, and sums of logs keep their digits.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from attnbench.attention.primitives import additive, causal_mask

BLOCK = 8  # keys whose decays are counted from one token


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


def channel_products(y: Tensor, g: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
    """e^{b_i}, e^{b_C − b_j}, and A for each of the `rows` x."""
    return ChannelProducts.apply(y, g, *rows)


def channel_flops(C: int, dk: int) -> int:
    """FLOPs of A in one chunk."""
    return sum(2 * (C - start) * min(BLOCK, C - start) * dk for start in range(0, C, BLOCK))


class ChannelProducts(torch.autograd.Function):
    """`channel_products`, whose gradients are added in place."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, g: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        C, least = y.shape[-2], math.log(torch.finfo(g.dtype).eps)
        b = g.clamp(min=least).cumsum(-2)
        products = [x.new_zeros(*x.shape[:-1], C) for x in rows]
        for keys, later, decays in blocks(b):
            away = (y[..., keys, :] / decays[..., : keys.stop - keys.start, :]).mT
            for x, A in zip(rows, products, strict=True):
                A[..., later, keys] = ((x[..., later, :] * decays) @ away).tril_()
        growth, left = b.exp(), (b[..., -1:, :] - b).exp()
        ctx.save_for_backward(y, b, g > least, growth, left, *rows)
        return growth, left, *products

    @staticmethod
    def backward(
        ctx: Any, d_growth: Tensor, d_left: Tensor, *changes: Tensor
    ) -> tuple[Tensor, ...]:
        y, b, weak, growth, left, *rows = ctx.saved_tensors
        d_left = d_left * left
        dy, db = torch.zeros_like(y), torch.addcmul(-d_left, d_growth, growth)
        db[..., -1, :] += d_left.sum(-2)
        d_rows = [torch.zeros_like(x) for x in rows]
        for keys, later, decays in blocks(b):
            own = decays[..., : keys.stop - keys.start, :]
            away, d_away = y[..., keys, :] / own, torch.zeros_like(own)
            for x, dx, change in zip(rows, d_rows, changes, strict=True):
                towards, change = x[..., later, :] * decays, change[..., later, keys].tril()
                d_towards = change @ away
                d_away += change.mT @ towards
                dx[..., later, :].addcmul_(d_towards, decays)
                db[..., later, :].addcmul_(d_towards, towards)
            dy[..., keys, :] = d_away / own
            db[..., keys, :].addcmul_(d_away, away, value=-1)
        dg = db.flip(-2).cumsum(-2).flip(-2) * weak
        return dy, dg, *d_rows


def blocks(b: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """For each block of keys: its tokens, these and all later ones, and decays of the latter.

    Those are e^{b_i − b_m}, m in the middle of the block.
    """
    C = b.shape[-2]
    for start in range(0, C, BLOCK):
        end = min(start + BLOCK, C)
        middle = (start + end) // 2
        decays = (b[..., start:, :] - b[..., middle : middle + 1, :]).exp()
        yield slice(start, end), slice(start, C), decays


class Fading(torch.autograd.Function):
    """o [B, H, N, ·] of softmax(q kᵀ / √d + F_i − F_j) v, j ≤ i, for a block of queries at a time.

    F [B, H, N] is float64, and `columns` those after the d of k: they hold F of the middle of the
    block − F_j, and q has √d there. They are written in place, so that no block copies k; keys
    where a mask [B, N] is False get the lowest number. Training keeps what the kernel made of each
    block.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        F: Tensor,
        mask: Tensor | None,
        block: int,
        columns: range,
    ) -> Tensor:
        N, outputs = q.shape[2], []
        past = additive(causal_mask(block, N, q.device), q.dtype)
        past = pad(past, (-N % 8, 0))  # as kernels of GPUs ask for
        ctx.written, ctx.blocks = (k.data, F.detach(), mask, columns), []
        for start in range(0, N, block):
            end = min(start + block, N)
            write_fading(start, end, *ctx.written)
            # of `data`, since the graph of a block need not know what others write
            own = [x.data for x in (q[:, :, start:end], k[:, :, :end], v[:, :, :end])]
            with torch.set_grad_enabled(any(ctx.needs_input_grad)):
                own = [x.requires_grad_(torch.is_grad_enabled()) for x in own]
                bias, scale = past[start - end :, -end:], columns.start**-0.5
                o = scaled_dot_product_attention(own[0], own[1], own[2], bias, scale=scale)
            outputs.append(o.detach())
            ctx.blocks.append((start, end, o, own))
        return torch.cat(outputs, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (_, F, _, columns), (*_, whole) = ctx.written, ctx.blocks[-1]
        dq, dk, dv, dF = (torch.zeros_like(x) for x in (gradient, *whole[1:], F))
        for start, end, o, own in ctx.blocks:
            write_fading(start, end, *ctx.written)
            found = torch.autograd.grad(o, own, gradient[:, :, start:end], retain_graph=True)
            dq[:, :, start:end] = found[0]
            dk[:, :, :end] += found[1]
            dv[:, :, :end] += found[2]
            faded = found[1][..., columns.start].double()
            dF[..., :end] -= faded
            dF[..., start] += faded.sum(-1)  # 0 but for rounding, which later sums would collect
        return dq, dk, dv, dF, None, None, None


def write_fading(
    start: int, end: int, k: Tensor, F: Tensor, mask: Tensor | None, columns: range
) -> None:
    """The `columns` of keys for the queries from `start` to `end`."""
    faded = F[..., (start + end) // 2, None] - F[..., :end]
    if mask is not None:
        faded = faded.masked_fill(~mask[:, None, :end], torch.finfo(k.dtype).min / 4)
    for column in columns:
        k[:, :, :end, column] = faded
        faded = faded - k[:, :, :end, column]
