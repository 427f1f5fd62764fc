"""What decays between two tokens of a chunk: the ratio of two sums of logs, and products over it.

    Γ_ij = e^{G_i − G_j},  j ≤ i                       [..., C, C]

is for one decay for each token, with G the sum of its logs. `channel_products` has Γ inside,
where every channel decays at a rate of its own:

    A_ij = Σ_d x_id y_jd e^{b_id − b_jd},  j ≤ i      b_i = g_1 + … + g_i      [..., C, C]

Rows x, keys y and logs of decays g ≤ 0 are [..., C, dk]. A is 0 where j > i. Also returned are
e^{b_i} and e^{b_C − b_j}, [..., C, dk] each.

b is float64, and so are its differences until `exp` has made factors of them: sums of several
strong decays keep the digits of their differences. A factor e^{−b_j} could overflow, so keys are
taken in blocks of 32 tokens, and decays are counted from the middle of a block. Where all chunks
leave at least e^−40, factors and products are float32 on a CPU. Else, and on a GPU, which would
have to wait to know it, they are float64, which consumer GPUs multiply 32 to 64 times as slowly; a
decay below e^−35, far less than the rounding of float32, then leaves that much, so that factors are
at most e^560.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import pad, scaled_dot_product_attention

from attnbench.attention.kernels.autograd import Written
from attnbench.attention.kernels.primitives import (
    additive,
    causal_mask,
    further_columns,
    logits_at_once,
    widen,
)

BLOCK = 32  # keys whose decays are counted from one token
STRONGEST = -35.0  # log of a decay: what leaves less counts as this; e^{16 · 35} is a float64
LEFT = -40.0  # log of what a chunk leaves, beside which factors and products fit float32
FADING_BLOCK = 128  # queries of `Fading` at a time
FADING_GROUP = 32  # queries for one column
GRID = 2.0**-10  # float32 adds multiples of it without rounding up to 2¹³


def decay_rates(heads: int) -> tuple[Tensor, Tensor]:
    """A and b of decays e^{−e^A softplus(· + b)}, [H] each, as Mamba-2 draws them.

    e^A is uniform in [1, 16], and softplus(b) log-uniform in [0.001, 0.1].
    """
    speed = 10 ** torch.empty(heads).uniform_(-3, -1)
    return torch.empty(heads).uniform_(1, 16).log(), speed.expm1().log()


class DecayRatio(Written):
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
    count = max(1, logits_at_once(gamma.device.type) // gamma.shape[-1] ** 2)
    parts = (x.flatten(0, first).split(count) for x in (gamma, *others))
    return zip(*parts, strict=True)


def channel_products(y: Tensor, g: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
    """y ⊙ e^{b_C − b_j}, e^{b_C} [..., 1, dk], and for all `rows` x ⊙ e^{b_i}, then their A."""
    return ChannelProducts.apply(y, g, *rows)


def channel_flops(C: int, dk: int) -> int:
    """FLOPs of A in one chunk."""
    return sum(2 * (C - start) * min(BLOCK, C - start) * dk for start in range(0, C, BLOCK))


class ChannelProducts(Written):
    """`channel_products`, whose gradients are added in place.

    What a row and its decay are multiplied to has one gradient: db_i is x ⊙ dx less y ⊙ dy, but
    for the end of the chunk, to which y decays. What no decay is between would cancel, and beside
    strong decays it is most of both: it is added to dx and dy after that.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, g: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
        b = g.clamp(min=STRONGEST).double().cumsum(-2)
        C = y.shape[-2]
        dtype = g.dtype
        working = working_type(g, b)
        growth, left, every = (*torch.empty(2, *b.shape, dtype=working, device=b.device), [])
        keys, *wide = (x.to(working) for x in (y, *rows))
        products = [x.new_empty(*x.shape[:-1], C) for x in rows]
        for part, later, middle, exact in blocks(b):
            decays = exact.to(working)
            own = decays[..., : part.stop - part.start, :]
            torch.mul(own, middle.exp(), out=growth[..., part, :])
            torch.div((b[..., -1:, :] - middle).exp_(), own, out=left[..., part, :])
            away = (keys[..., part, :] / own).mT
            for x, A in zip(wide, products, strict=True):
                A[..., later, part] = (x[..., later, :] * decays) @ away
            every.append(decays)
        ctx.save_for_backward(y, g, growth, left, *rows, *every)
        ended = (keys * left).to(dtype), growth[..., -1:, :].to(dtype)
        decayed = [(x * growth).to(dtype) for x in wide]
        return *ended, *decayed, *(A.tril_() for A in products)

    @staticmethod
    def backward(ctx: Any, d_left: Tensor, d_last: Tensor, *changes: Tensor) -> tuple[Tensor, ...]:
        y, g, growth, left, *others = ctx.saved_tensors
        dtype = g.dtype
        working = growth.dtype
        count = len(changes) // 2
        keys, *rows = (x.to(working) for x in (y, *others[:count]))
        dy = d_left * left
        d_rows = [d * growth for d in changes[:count]]
        d_end = (keys * dy)[..., :-1, :].sum(-2) + (d_last * growth[..., -1:, :]).squeeze(-2)
        at_end = dy[..., -1, :].clone()
        dy[..., -1, :] = 0
        products = [change.tril(-1).to(working) for change in changes[count:]]
        for start, decays in zip(range(0, y.shape[-2], BLOCK), others[count:], strict=True):
            part = slice(start, start + BLOCK)
            later = slice(start, None)
            own = decays[..., :BLOCK, :]
            away = keys[..., part, :] / own
            d_away = torch.zeros_like(own)
            for x, dx, change in zip(rows, d_rows, products, strict=True):
                change = change[..., later, part]
                d_away += change.mT @ (x[..., later, :] * decays)
                dx[..., later, :].addcmul_(change @ away, decays)
            dy[..., part, :].addcdiv_(d_away, own)
        db = torch.mul(rows[0], d_rows[0])
        for x, dx in zip(rows[1:], d_rows[1:], strict=True):
            db.addcmul_(x, dx)
        db.addcmul_(keys, dy, value=-1)
        db[..., -1, :] += d_end
        dy[..., -1, :] += at_end
        for x, dx, change in zip(rows, d_rows, changes[count:], strict=True):
            alone = change.diagonal(0, -2, -1)[..., None].to(working)
            dx.addcmul_(alone, keys)
            dy.addcmul_(alone, x)
        dg = db.flip(-2).cumsum(-2).flip(-2).to(dtype)
        dg = torch.ops.aten.threshold_backward(dg, g, STRONGEST)
        return dy.to(dtype), dg, *(dx.to(dtype) for dx in d_rows)


def working_type(g: Tensor, b: Tensor) -> torch.dtype:
    """The type of factors and products beside decays with logs g and their sums b [..., C, dk].

    Float64, but on a CPU that of g where every chunk leaves enough.
    """
    asked = g.device.type == "cpu" and g.numel() > 0 and not torch.compiler.is_compiling()
    return g.dtype if asked and bool(b[..., -1, :].amin() >= LEFT) else torch.float64


def blocks(b: Tensor) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """For each block of keys: its tokens, these and all later ones, b_m, and decays of the latter.

    Those are e^{b_i − b_m}, m in the middle of the block.
    """
    C = b.shape[-2]
    for start in range(0, C, BLOCK):
        end = min(start + BLOCK, C)
        middle = b[..., (start + end) // 2, None, :]
        yield slice(start, end), slice(start, C), middle, (b[..., start:, :] - middle).exp_()


class WeakDecays(Written):
    """x ⊙ e^{b_i} of rows r and q, y ⊙ e^{−b_j} of keys b and k, and e^{b_C} [..., 1, dk].

    Then y ⊙ e^{b_C − b_j} of b and k. All but g ≥ −1 are [..., C, dk].
    """

    @staticmethod
    def forward(ctx: Any, g: Tensor, r: Tensor, q: Tensor, b: Tensor, k: Tensor) -> Any:
        growth = g.double().cumsum(-2).exp_().to(g.dtype)  # sums of logs lose no digits
        shrunk = growth.reciprocal()
        last = growth[..., -1:, :].clone()
        r = r * growth
        q = q * growth
        b = b * shrunk
        k = k * shrunk
        ctx.save_for_backward(growth, shrunk, r, q, b, k)
        return r, q, b, k, last, b * last, k * last

    @staticmethod
    def backward(ctx: Any, *changes: Tensor) -> tuple[Tensor, ...]:
        growth, shrunk, r, q, b, k = ctx.saved_tensors
        dr, dq, db, dk, d_last, db_last, dk_last = changes
        last = growth[..., -1:, :]
        d_last = d_last + torch.addcmul(b * db_last, k, dk_last).sum(-2, keepdim=True)
        db = torch.addcmul(db, db_last, last)
        dk = torch.addcmul(dk, dk_last, last)
        d_sums = torch.addcmul(r * dr, q, dq)
        d_sums.addcmul_(b, db, value=-1).addcmul_(k, dk, value=-1)
        d_sums[..., -1:, :] += d_last * last
        dg = d_sums.flip(-2).cumsum(-2).flip(-2)
        return dg, dr * growth, dq * growth, db * shrunk, dk * shrunk


@dataclass(frozen=True)
class Columns:
    """Further columns of q and k, before their own d: one of the query, `coarse` and `fine` ones.

    Groups of `group` queries in a block read a coarse column each. Fine ones hold digits that
    coarse ones lack: in wide types one for all queries, in narrow types one a group.
    """

    group: int
    fine: int

    @property
    def groups(self) -> int:
        return FADING_BLOCK // self.group

    @property
    def coarse(self) -> slice:
        return slice(1, 1 + self.groups)

    @property
    def total(self) -> int:
        return 1 + self.groups + self.fine


class Fading(Written):
    """o [B, H, N, d] of softmax(q kᵀ / √d + F_i − F_j) v, j ≤ i, for a block of queries at a time.

    F [B, H, N] is float64. Each group of queries in a block has a further column of k, F of its
    middle − F_j, read by a column of q that is √d in the group and 0 elsewhere. Beside strong
    decays such numbers are large, and a product would round to their digits. So in wide types
    coarse columns hold multiples of `GRID`, from which a column of the query, F_i − F of its
    middle, takes the same multiples off before a fine column and q kᵀ are added: sums of both are
    exact, where a kernel adds in that order. It then scales by a power of 2 near 1 / √d, and q by
    the rest.

    Columns of k are written in place, so that no block copies k. Keys where a mask [B, N] is False
    get the lowest number, and so do keys whose weights are below the square of the rounding:
    processors need long for the smallest numbers. The column of the query is 1 in k, and so finds
    what gradients of logits sum to over keys. Training keeps what the kernel made of each block.
    """

    lowered = True

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, F: Tensor, mask: Tensor | None
    ) -> Tensor:
        N, d, outputs = *q.shape[2:], []
        columns = fading_columns(q.dtype)
        wide = q.dtype.itemsize >= 4
        more = fading_width(d, q.dtype, q.device.type) - d
        past = additive(causal_mask(FADING_BLOCK, N, q.device), q.dtype)
        past = pad(past, (-N % 8, 0))  # as kernels of GPUs ask for
        reach = math.prod(vector_norm(widen(x), dim=-1).amax(-1) for x in (q, k)) * d**-0.5
        least = 2 * (math.log(torch.finfo(reach.dtype).eps) - reach)
        first = columns.total
        last = more - columns.total
        factor = reading(d, q.dtype)
        # three of a width, or torch uses a kernel that stores weights
        q = pad(q, (first, last))
        k = pad(k, (first, last))
        v = pad(v, (0, more))
        if factor != d**0.5:
            q *= factor / d**0.5
        k[..., 0] = 1
        steps = (F / GRID).round_().mul_(GRID) if wide else F
        if wide:
            k[..., columns.coarse.stop] = steps - F
        read_fading(columns, factor, q, steps, wide)
        ctx.save_for_backward(steps, mask)
        ctx.written = (k, least)
        ctx.blocks = []
        for start in range(0, N, FADING_BLOCK):
            end = min(start + FADING_BLOCK, N)
            write_fading(start, end, k, steps, mask, least, factor)
            # of `data`, since the graph of a block need not know what others write
            own = [x.data for x in (q[:, :, start:end], k[:, :, :end], v[:, :, :end])]
            with torch.set_grad_enabled(any(ctx.needs_input_grad)):
                own = [x.requires_grad_(torch.is_grad_enabled()) for x in own]
                bias = past[start - end :, -end:]
                if end % 8:  # as kernels of GPUs ask for: torch looks at strides alone
                    bias = bias.clone()
                o = scaled_dot_product_attention(own[0], own[1], own[2], bias, scale=1 / factor)
            outputs.append(o.detach()[..., :d])
            ctx.blocks.append((start, end, o, own))
        return torch.cat(outputs, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        F, mask = ctx.saved_tensors
        k, least = ctx.written
        d = gradient.shape[-1]
        columns = fading_columns(k.dtype)
        inner = slice(columns.total, columns.total + d)
        factor = reading(d, k.dtype)
        dq, dk, dv, dF = (torch.zeros_like(x) for x in (*(gradient,) * 3, F))
        gradient = pad(gradient, (0, k.shape[-1] - d))
        for start, end, o, own in ctx.blocks:
            write_fading(start, end, k, F, mask, least, factor)
            found = torch.autograd.grad(o, own, gradient[:, :, start:end], retain_graph=True)
            torch.mul(found[0][..., inner], factor / d**0.5, out=dq[:, :, start:end])
            dk[:, :, :end] += found[1][..., inner]
            dv[:, :, :end] += found[2][..., :d]
            by_query = found[0][..., 0].to(F) * factor
            by_key = found[1][..., columns.coarse].to(F)
            dF[..., start:end] += by_query
            dF[..., :end] -= balanced(by_key, by_query)
        return dq, dk, dv, dF, None


def balanced(by_key: Tensor, by_query: Tensor) -> Tensor:
    """[B, H, M] of gradients of logits, summed over the queries of a block.

    `by_key` [B, H, M, groups] has sums over each group, `by_query` [B, H, n ≤ block] over keys.
    Both add up to the same for a group but for rounding, which sums over later keys would collect:
    it is taken from where rounding is largest.
    """
    rest = (0, FADING_BLOCK - by_query.shape[-1])
    sums = pad(by_query, rest).unflatten(-1, (by_key.shape[-1], -1)).sum(-1)
    share = by_key.square()
    share /= share.sum(-2, keepdim=True).clamp(min=torch.finfo(by_key.dtype).tiny)
    rounding = by_key.sum(-2) - sums
    return (by_key - share * rounding[..., None, :]).sum(-1)


def read_fading(columns: Columns, factor: float, q: Tensor, F: Tensor, wide: bool) -> None:
    """The further columns of queries [B, H, N, ·]: what they read of keys, and their own.

    Of wide types, F [B, H, N] is multiples of `GRID`.
    """
    N = q.shape[2]
    size = columns.group
    token = torch.arange(N, device=q.device)
    group = token % FADING_BLOCK // size
    reads = torch.arange(columns.groups, device=q.device) == group[:, None]
    q[..., columns.coarse].masked_fill_(reads, factor)
    if wide:
        q[..., columns.coarse.stop] = factor
        middle = (token // size * size + size // 2).clamp(max=N - 1)
        q[..., 0] = (F - F[..., middle]) * factor
    else:
        q[..., columns.coarse.stop : columns.total].masked_fill_(reads, factor)


def write_fading(
    start: int,
    end: int,
    k: Tensor,
    F: Tensor,
    mask: Tensor | None,
    least: Tensor,
    factor: float,
) -> None:
    """The columns of keys for the queries from `start` to `end`; not the fine one of wide types.

    A key does not count if F of the first query of a group, less its own, is below `least`.

    k:      [B, H, N, ·], whose columns are written
    F:      [B, H, N], sums of logs of decays; of wide types multiples of `GRID`
    mask:   [B, N], True for real tokens, or None
    least:  [B, H], log weights below which a key is nothing
    factor: by which queries read the columns: with it no number may overflow
    """
    fades = F[..., :end, None]
    columns = fading_columns(k.dtype)
    own = pad(F[..., start:end], (0, start + FADING_BLOCK - end), mode="replicate")
    first, middle = (own[..., None, m :: columns.group] for m in (0, columns.group // 2))
    hidden = fades > first - least[..., None, None]
    if mask is not None:
        hidden = hidden | ~mask[:, None, :end, None]
    most = torch.finfo(k.dtype).max / (4 * factor)
    # later keys of the block, which no query reads, may be as far above
    faded = (middle - fades).clamp(max=most).masked_fill(hidden, -most)
    coarse = k[:, :, :end, columns.coarse]
    coarse.copy_(faded)
    if k.dtype.itemsize < 4:
        k[:, :, :end, columns.coarse.stop : columns.total] = faded - coarse


def reading(d: int, dtype: torch.dtype) -> float:
    """What queries read columns of keys by: √d, or in wide types, for exact sums, a power of 2."""
    return d**0.5 if dtype.itemsize < 4 else 2.0 ** round(math.log2(d) / 2)


def fading_columns(dtype: torch.dtype) -> Columns:
    """Smaller groups where a column rounds the sum of their gradients more."""
    if dtype.itemsize >= 4:
        return Columns(FADING_GROUP, 1)
    return Columns(FADING_GROUP // 2, FADING_BLOCK // (FADING_GROUP // 2))


def fading_width(d: int, dtype: torch.dtype, device: str) -> int:
    """The width of a head of d and its further columns."""
    return d + further_columns(d, fading_columns(dtype).total, device)
