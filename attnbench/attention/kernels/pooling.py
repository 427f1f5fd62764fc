"""Additive pooling as Triton kernels that read the tokens once forward and once backward.

    a_i = exp(s w · x_i) / Σ exp(s w · x_j)          [B, H, N]
    o = Σ a_i x_i                                    [B, H, d]
    dx_i = a_i (do + (do · x_i − do · o) s w)        [B, H, N, d]
    dw = s Σ a_i (do · x_i − do · o) x_i             [B, H, d]

No weight is stored. The tokens of a head are divided into at most `MOST_PARTS` parts, one program
each, which reduces its tokens by online softmax; the parts are joined by their log-sum-exp. All
sums are float32, whatever the type of x.

This module needs triton, so forms import it when they are built. Where TRITON_INTERPRET=1 was set
before the import, the kernels run on a CPU without being compiled; that is for tests.
Source of the online softmax: arXiv:1805.02867, algorithm 3.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

TILE = 4096  # numbers that a program holds at a time: 32 registers of each of its 128 threads
FEWEST = 1024  # tokens of a part, unless there are fewer
MOST_PARTS = 64


@triton.jit
def load_row(x, columns, inside):
    """Columns of one row as float32, 0 outside of it."""
    return tl.load(x + columns, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def load_tile(x, tokens, columns, real, inside, x_n):
    """Tokens × columns of x as float32, 0 outside of it."""
    places = x + tokens[:, None] * x_n + columns[None, :]
    return tl.load(places, mask=real[:, None] & inside[None, :], other=0.0).to(tl.float32)


@triton.jit
def load_real(mask, tokens, within, MASKED: tl.constexpr):
    """Which tokens exist and are not padding."""
    if MASKED:
        within = within & (tl.load(mask + tokens, mask=within, other=0) != 0)
    return within


@triton.jit
def pool_part(
    x,
    w,
    mask,
    o,
    lse,
    scale,
    N,
    H,
    d,
    x_b,
    x_h,
    x_n,
    MASKED: tl.constexpr,
    PART: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """o and the log-sum-exp of one part of the tokens of one head."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    b, h, first = row // H, row % H, part * PART
    columns = tl.arange(0, BLOCK_D)
    inside = columns < d
    x += b * x_b + h * x_h + first.to(tl.int64) * x_n
    mask += b * N + first
    weight = load_row(w + row * d, columns, inside) * scale
    top = tl.full((), float("-inf"), tl.float32)
    norm = tl.full((), 0.0, tl.float32)
    total = tl.zeros((BLOCK_D,), tl.float32)
    for start in range(0, PART, BLOCK_N):
        tokens = start + tl.arange(0, BLOCK_N)
        real = load_real(mask, tokens, first + tokens < N, MASKED)
        tile = load_tile(x, tokens, columns, real, inside, x_n)
        logits = tl.where(real, tl.sum(tile * weight[None, :], 1), float("-inf"))
        new = tl.maximum(top, tl.max(logits, 0))
        finite = tl.where(new == float("-inf"), 0.0, new)
        keep = tl.exp(top - finite)
        share = tl.exp(logits - finite)
        norm = norm * keep + tl.sum(share, 0)
        total = total * keep + tl.sum(share[:, None] * tile, 0)
        top = new
    place = row * tl.num_programs(1) + part
    some = tl.where(norm > 0.0, norm, 1.0)
    tl.store(o + place * d + columns, total / some, mask=inside)
    tl.store(lse + place, top + tl.log(some))


@triton.jit
def join_parts(parts_o, parts_lse, o, lse, P, d, BLOCK_P: tl.constexpr, BLOCK_D: tl.constexpr):
    """o and the log-sum-exp of one head from those of its parts."""
    row = tl.program_id(0).to(tl.int64)
    parts, columns = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_D)
    known, inside = parts < P, columns < d
    each = tl.load(parts_lse + row * P + parts, mask=known, other=float("-inf"))
    top = tl.max(each, 0)
    share = tl.exp(each - tl.where(top == float("-inf"), 0.0, top))
    norm = tl.sum(share, 0)
    some = tl.where(norm > 0.0, norm, 1.0)
    tile = load_tile(parts_o + row * P * d, parts, columns, known, inside, d)
    tl.store(o + row * d + columns, tl.sum(share[:, None] * tile, 0) / some, mask=inside)
    tl.store(lse + row, top + tl.log(some))


@triton.jit
def gradient_of_part(
    x,
    w,
    mask,
    o,
    lse,
    do,
    dx,
    dw,
    scale,
    N,
    H,
    d,
    x_b,
    x_h,
    x_n,
    MASKED: tl.constexpr,
    PART: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """dx of one part of the tokens of one head, and what the part adds to dw."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    b, h, first = row // H, row % H, part * PART
    columns = tl.arange(0, BLOCK_D)
    inside = columns < d
    x += b * x_b + h * x_h + first.to(tl.int64) * x_n
    dx += (b * N + first) * H * d + h * d  # as heads lie in tokens [B, N, D]
    mask += b * N + first
    weight = load_row(w + row * d, columns, inside) * scale
    slope = load_row(do + row * d, columns, inside)
    centre = tl.sum(slope * load_row(o + row * d, columns, inside), 0)
    level = tl.load(lse + row)
    total = tl.zeros((BLOCK_D,), tl.float32)
    for start in range(0, PART, BLOCK_N):
        tokens = start + tl.arange(0, BLOCK_N)
        real = load_real(mask, tokens, first + tokens < N, MASKED)
        tile = load_tile(x, tokens, columns, real, inside, x_n)
        logits = tl.sum(tile * weight[None, :], 1)
        a = tl.exp(tl.where(real, logits - level, float("-inf")))
        tilt = a * (tl.sum(tile * slope[None, :], 1) - centre)
        total += tl.sum(tilt[:, None] * tile, 0)
        gradient = a[:, None] * slope[None, :] + tilt[:, None] * weight[None, :]
        tl.store(
            dx + tokens[:, None] * (H * d) + columns[None, :],
            gradient.to(dx.dtype.element_ty),
            mask=(first + tokens < N)[:, None] & inside[None, :],
        )
    place = row * tl.num_programs(1) + part
    tl.store(dw + place * d + columns, total * scale, mask=inside)


class Pooling(torch.autograd.Function):
    """x [B, H, N, d], w [B, H, d], a mask [B, N] or None and a scale to o [B, H, d]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        B, H, N, d = x.shape
        part, block = sizes(N, d)
        count = triton.cdiv(N, part)
        o = x.new_empty(B, H, count, d, dtype=torch.float32)
        lse = x.new_empty(B, H, count, dtype=torch.float32)
        counts = (scale, N, H, d, *x.stride()[:3], mask is not None)
        pool_part[B * H, count](x, w, x if mask is None else mask, o, lse, *counts, **block)
        if count > 1:
            parts_o, parts_lse = o, lse
            o, lse = o.new_empty(B, H, 1, d), lse.new_empty(B, H, 1)
            rows = {"BLOCK_P": triton.next_power_of_2(count), "BLOCK_D": block["BLOCK_D"]}
            join_parts[B * H,](parts_o, parts_lse, o, lse, count, d, **rows)
        ctx.save_for_backward(x, w, mask, o, lse)
        ctx.counts = counts
        return o.squeeze(2).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, w, mask, o, lse = ctx.saved_tensors
        B, H, N, d = x.shape
        part, block = sizes(N, d)
        count = triton.cdiv(N, part)
        dx, dw = x.new_empty(B, N, H, d).transpose(1, 2), o.new_empty(B, H, count, d)
        sources = (x, w, x if mask is None else mask, o, lse, do.contiguous())
        gradient_of_part[B * H, count](*sources, dx, dw, *ctx.counts, **block)
        return dx, dw.sum(2).to(w.dtype), None, None


def pooled(x: Tensor, w: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Σ softmax(s w · x_i) x_i over the tokens of each head, 0 without any.

    x [B, H, N, d], w [B or 1, H or 1, d], mask [B, N] or None; returns [B, H, d]. float32, float16
    and bfloat16, summed in float32. Where the numbers of a token do not lie side by side, x is
    copied.
    """
    x = x if x.stride(-1) == 1 else x.contiguous()
    mask = None if mask is None else mask.contiguous().view(torch.uint8)
    return Pooling.apply(x, w.expand(*x.shape[:2], -1).contiguous(), mask, scale)


def sizes(N: int, d: int) -> tuple[int, dict[str, int]]:
    """Tokens of a part, and the sizes for which kernels are compiled; all are powers of two."""
    columns = triton.next_power_of_2(d)
    most = triton.next_power_of_2(max(FEWEST, triton.cdiv(N, MOST_PARTS)))
    part = min(most, triton.next_power_of_2(N))
    rows = min(part, max(1, TILE // columns))
    return part, {"PART": part, "BLOCK_N": rows, "BLOCK_D": columns}
