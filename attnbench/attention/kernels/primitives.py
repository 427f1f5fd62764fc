"""Tensor operations that mechanisms share: masks, softmax and linear attention, gathering.

Masks are True where a key may be used. No operation mixes the sequences of a batch.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend

from attnbench.attention.kernels.autograd import Written, differentiated, widened
from attnbench.records import Workload

Kernel = Callable[..., Tensor]  # of q, k, v and what masks or biases the scores, to o
# sequences that torch's fused kernels of GPUs take: one more is an "invalid configuration argument"
# (pytorch/pytorch issues 142228 and 146704)
MOST_SEQUENCES = (1 << 16) - 1


def key_mask(mask: Tensor | None) -> Tensor | None:
    """[B, N] to [B, 1, 1, N], or None: the keys that scores [B, H, N, N] may use."""
    return None if mask is None else mask[:, None, None, :]


def padded_mask(
    mask: Tensor | None, seq_len: int, extra: int, device: torch.device
) -> Tensor | None:
    """[B or 1, N + extra] with `extra` padding tokens at the end; None if every token is real."""
    if mask is not None:
        return F.pad(mask, (0, extra))
    return (torch.arange(seq_len + extra, device=device) < seq_len)[None] if extra else None


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """[queries, keys]: True where key j is not after query i; both end at the same token."""
    i = torch.arange(keys - queries, keys, device=device)[:, None]
    return torch.arange(keys, device=device) <= i


def allowed_keys(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """`mask` and, if causal, no key after its query: broadcastable to the scores; None: all keys.

    Only the lengths of q and k [..., N, d] matter.
    """
    if not causal:
        return mask
    past = causal_mask(q.shape[-2], k.shape[-2], q.device)
    return past if mask is None else mask & past


def masked_softmax(logits: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax of each row where `mask` (broadcastable) is True; 0 elsewhere and in empty rows."""
    if mask is None:
        return logits.softmax(-1)
    lowest = torch.finfo(logits.dtype).min
    weights = logits.masked_fill(~mask, lowest).softmax(-1)
    return weights * mask.any(-1, keepdim=True)


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool = False
) -> Tensor:
    """softmax(q kᵀ / √d) v, [..., N, d]; stores all weights. `mask` as in `masked_softmax`."""
    return masked_softmax(q / q.shape[-1] ** 0.5 @ k.mT, allowed_keys(q, k, mask, causal)) @ v


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool = False
) -> Tensor:
    """`softmax_attention` by `fused_kernel`; causal without a mask: for N keys only."""
    if mask is None:
        return fused_kernel(q, k, v, None, causal)
    allowed = mask & causal_mask(q.shape[-2], k.shape[-2], q.device) if causal else mask
    o = fused_kernel(q, k, v, additive(allowed, q.dtype))
    return o * allowed.any(-1, keepdim=True)


def fused_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(q kᵀ · scale + mask) v [B, H, N, d] by torch's fused kernel.

    Consecutive heads of q share a head of k and v [B, K, N, d]. Where no fused kernel of the GPU
    does that, as in float32 before torch 2.14, k and v are repeated: torch would store all weights.
    """
    if shared := q.shape[1] != k.shape[1]:
        shared = not q.is_cuda or can_share(q, k, v, mask, causal)
        if not shared:
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    kernel = partial(
        F.scaled_dot_product_attention, is_causal=causal, scale=scale, enable_gqa=shared
    )
    most = len(q) if q.is_cpu else MOST_SEQUENCES
    return some_at_a_time(kernel, most, q, k, v, in_reach_of_autocast(mask))


def in_reach_of_autocast(mask: Tensor | None) -> Tensor | None:
    """What is added to scores, with no number below the lowest of autocast's type, if that is on.

    Autocast of a GPU keeps norms in float32, and so masks for what they give; cast with all else
    that the kernel takes, float32's lowest number would become −∞, and rows without keys NaN.
    """
    if mask is None or mask.dtype != torch.float32:
        return mask
    if not torch.is_autocast_enabled(mask.device.type):
        return mask
    return mask.clamp(min=torch.finfo(torch.get_autocast_dtype(mask.device.type)).min)


def some_at_a_time(
    kernel: Kernel, most: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> Tensor:
    """The outputs of a kernel of q, k, v [B, ·, ·, d] and a mask, for at most so many sequences
    at a time.
    """
    if len(q) <= most:
        return kernel(q, k, v, attn_mask=mask)
    masks = repeat(mask) if mask is None or mask.dim() < 4 or len(mask) == 1 else mask.split(most)
    parts = zip(*(x.split(most) for x in (q, k, v)), masks, strict=False)
    return torch.cat([kernel(q, k, v, attn_mask=some) for q, k, v, some in parts])


def can_share(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> bool:
    """Whether torch would give heads of q that share those of k and v to a fused kernel of the GPU.

    That one could take them is not enough: on most GPUs cuDNN's comes after the one that stores all
    weights. A compiler cannot ask; it gets what flash attention takes, half types without a mask.
    """
    if torch.compiler.is_compiling():
        return mask is None and q.dtype.itemsize == 2
    choice = torch._fused_sdp_choice(q, k, v, mask, 0.0, causal, enable_gqa=True)
    return choice != SDPBackend.MATH.value


def fused_pairs(w: Workload, extra: int = 0) -> int:
    """How many pairs of a query and a key a fused kernel multiplies in each head, B sequences of
    N tokens and `extra` ones: those of no later key if it is causal and has no mask.
    """
    N = w.seq_len + extra
    return w.batch * (N * (N + 1) // 2 if w.causal and not w.padding else N**2)


def biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(q kᵀ / √d + bias) v for each block or cluster, [B, H, C, ·, d]."""
    logits = q @ (k.mT / q.shape[-1] ** 0.5)
    if bias is not None:
        logits = logits + bias
    A = logits.softmax(-1)
    del logits  # or it is part of the peak
    return A @ v


def fused_biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """`biased_attention` by torch's fused kernel, which takes four dimensions."""
    if bias is not None:
        bias = bias.expand(*q.shape[:-1], k.shape[-2]).flatten(0, 1)
    heads = q.shape[1]
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))  # [B·H, C, ·, d]
    return fused_kernel(q, k, v, bias).unflatten(0, (-1, heads))


class ByQueries(Written):
    """o [B, H, N, ·] of `step` queries at a time; the backward pass computes each part once more.

    `part` takes the first token of its queries, these, [B, H, step, ·], and of other tensors
    [B, H, N, ...] what is up to the last query. Gradients are added in place: slices would fill a
    whole tensor for each part.
    """

    lowered = twice = True

    @staticmethod
    def forward(ctx: Any, part: Kernel, step: int, *tensors: Tensor) -> Tensor:
        ctx.part = part
        ctx.step = step
        ctx.save_for_backward(*tensors)
        return by_queries(part, step, *tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        if torch.is_grad_enabled():
            whole = partial(by_queries, ctx.part, ctx.step)
            return None, None, *differentiated(whole, tensors, gradient)
        totals = [torch.zeros_like(x) for x in tensors]
        every = zip(parts(ctx.step, tensors), parts(ctx.step, totals), strict=True)
        for (start, given), (_, sums) in every:
            own = [x.detach().requires_grad_() for x in given]
            with torch.enable_grad():
                o = ctx.part(start, *own)
            found = torch.autograd.grad(o, own, gradient[:, :, start : start + ctx.step])
            for total, change in zip(sums, found, strict=True):
                total += change
        return None, None, *totals


def by_queries(part: Kernel, step: int, *tensors: Tensor) -> Tensor:
    """What `part` gives for `step` queries at a time."""
    return torch.cat([part(start, *given) for start, given in parts(step, tensors)], 2)


def parts(step: int, tensors: Sequence[Tensor]) -> Iterator[tuple[int, list[Tensor]]]:
    """The first token of each part, its queries, and the others up to its last query."""
    q, *others = tensors
    for start in range(0, q.shape[2], step):
        end = start + step
        yield start, [q[:, :, start:end], *(x[:, :, :end] for x in others)]


class UnitNorm(Written):
    """scale · x / √(Σ x² + ε) over the last dimension, with fewer passes back than by operators."""

    twice = True

    @staticmethod
    def forward(ctx: Any, x: Tensor, epsilon: float, scale: float = 1.0) -> Tensor:
        squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square()
        inverse = (squares + epsilon).rsqrt()
        ctx.save_for_backward(x, inverse)
        ctx.epsilon = epsilon
        ctx.scale = scale
        return x * (scale * inverse)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        x, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():  # the norm's own second derivative is not finite at 0
            inverse = (x.square().sum(-1, keepdim=True) + ctx.epsilon).rsqrt()
        along = (x * gradient).sum(-1, keepdim=True) * inverse.square()
        found = torch.addcmul(gradient, x, along, value=-1)
        return found.mul_(ctx.scale * inverse), None, None


def further_columns(width: int, needed: int, device: str) -> int:
    """How many columns to add to heads of a width where some are `needed`, the others zeros.

    On a GPU they are rounded up to a width that is a multiple of 8: torch's kernel for masks takes
    no other (pytorch/pytorch issue 110630), and its last resort stores all weights.
    """
    return needed + (-(width + needed) % 8 if needed and device.startswith("cuda") else 0)


@widened
def sum_rule(S: Tensor, q: Tensor, k: Tensor, v: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """o_t = S_tᵀ q_t of S_t = S_{t−1} + k_t v_tᵀ [B, H, dk, dv], and S after the tokens.

    q and k are [B, H, N, dk], v and o [B, H, N, dv]. The last chunk is padded.
    """
    N = q.shape[2]
    if N == 1:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        after = torch.baddbmm(S.flatten(0, 1), k.mT, v)
        return (q @ after).view(*S.shape[:2], 1, -1), after.view(S.shape)
    C = min(chunk, N)
    q, k, v = (F.pad(x, (0, 0, 0, -N % C)).unflatten(2, (-1, C)) for x in (q, k, v))
    states = torch.cat([S[:, :, None], k.mT @ v], 2).cumsum_(2)  # [B, H, N / C + 1, dk, dv]
    o = (q @ k.mT).tril() @ v + q @ states[:, :, :-1]
    # the rest of the states is freed with them
    return o.flatten(2, 3)[:, :, :N], states[:, :, -1].clone()


def sum_flops(seq_len: int, chunk: int, dk: int, dv: int) -> int:
    """FLOPs of `sum_rule` for one head of one sequence: k vᵀ and Sᵀ q for each token.

    In chunks, the last of which is padded, also Q Kᵀ and its product with V.
    """
    if seq_len == 1:
        return 4 * dk * dv
    C = min(chunk, seq_len)
    return 2 * (seq_len + -seq_len % C) * (2 * dk * dv + C * (dk + dv))


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where True, elsewhere the lowest number: −∞ would make rows without keys NaN."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


def widen(x: Tensor) -> Tensor:
    """float16 and bfloat16 converted to float32; other types as they are."""
    return x.float() if x.dtype.itemsize < 4 else x


def row_numbers(index: Tensor, rows: int) -> Tensor:
    """Token numbers [G, ...] as row numbers of a table [G · rows, ·], group after group."""
    first = rows * torch.arange(len(index), device=index.device)
    return (index.flatten(1) + first[:, None]).flatten()


def gather_tokens(x: Tensor, index: Tensor) -> Tensor:
    """The tokens of x [G, N, d] at `index` [G, ...], as [G, ..., d]."""
    numbers = row_numbers(index, x.shape[1])
    return x.flatten(0, 1).index_select(0, numbers).unflatten(0, index.shape)


class Picked(Written):
    """q [n, d], scaled, k and v [m, d], and the rows [n, K] of k and v that each q reads: [n, d].

    `valid` [n, K] says which of them count; None: all.
    """

    lowered = twice = True

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, rows: Tensor, valid: Tensor | None
    ) -> Tensor:
        a = masked_softmax(products(q, k, rows), valid)
        ctx.save_for_backward(q, k, v, rows, a)
        return row_sums(v, rows, a)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, rows, a = ctx.saved_tensors
        if torch.is_grad_enabled():
            read = partial(by_rows, rows, a > 0)
            return *differentiated(read, (q, k, v), grad), None, None
        to_a = products(grad, v, rows)
        to_logits = a * (to_a - (a * to_a).sum(-1, keepdim=True))
        sums = by_readers if q.is_cpu else scattered
        to_k, to_v = sums(rows, len(k), (q, to_logits), (grad, a))
        return row_sums(k, rows, to_logits), to_k, to_v, None, None


def by_readers(rows: Tensor, count: int, *weighed: tuple[Tensor, Tensor]) -> list[Tensor]:
    """For each x [n, d] and weights [n, K], sums for `count` rows of a table of what x reads there.

    `rows` [n, K] are those that each x reads. Sums are of bags, the readers of each row.
    """
    # who reads each row; numbers of few digits are sorted faster
    order = rows.flatten().to(torch.int16 if count <= 2**15 else torch.int32).argsort()
    readers = order // rows.shape[1]
    counts = rows.flatten().bincount(minlength=count)
    starts = counts.cumsum(0) - counts
    return [row_sums(x, readers, by.flatten()[order], starts) for x, by in weighed]


def scattered(rows: Tensor, count: int, *weighed: tuple[Tensor, Tensor]) -> list[Tensor]:
    """`by_readers` for a GPU, which would sum a bag one by one, and wait to count readers.

    Sums are at least float32, some x at a time.
    """
    found = []
    for x, weights in weighed:
        total = widen(x.new_zeros(count, x.shape[1]))
        step = max(1, logits_at_once(x.device.type) // (rows.shape[1] * x.shape[1]))
        for part in zip(x.split(step), rows.split(step), weights.split(step), strict=True):
            some, to, by = part
            total.index_add_(0, to.flatten(), (widen(by)[..., None] * some[:, None]).flatten(0, 1))
        found.append(total.to(x.dtype))
    return found


def by_rows(rows: Tensor, valid: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`Picked` by operators, which copy the rows of k and v that each q reads."""
    logits = (q[:, None] @ k[rows].mT)[:, 0]
    return (masked_softmax(logits, valid)[:, None] @ v[rows])[:, 0]


def products(q: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """The products of q [n, d] with rows [n, K] of a table [m, d], [n, K]."""
    step = max(1, logits_at_once(q.device.type) // (rows.shape[1] * q.shape[1]))
    found = []
    for some, read in zip(q.split(step), rows.split(step), strict=True):
        keys = table.index_select(0, read.flatten()).unflatten(0, read.shape)
        found.append((some[:, None] @ keys.mT)[:, 0])
    return torch.cat(found)


def row_sums(
    table: Tensor, rows: Tensor, weights: Tensor | None = None, starts: Tensor | None = None
) -> Tensor:
    """Sums of rows of a table [m, d], by weights if any, for rows as `embedding_bag` reads them."""
    return F.embedding_bag(rows, table, starts, mode="sum", per_sample_weights=weights)


def signed_argmax(x: Tensor) -> Tensor:
    """argmax([x; −x]) [..., N] of x [..., n, N] over 2 n rows; n is a power of 2.

    The last bits of |x|, which rounding fills anyway, hold the index: `amax` takes a tenth of the
    time of `argmax`.
    """
    n = x.shape[-2]
    wide = widen(x)
    bits = wide.view(torch.int32 if wide.dtype == torch.float32 else torch.int64)
    index = torch.arange(n, device=x.device, dtype=bits.dtype)[:, None]
    size = bits & torch.iinfo(bits.dtype).max - (n - 1)  # without the sign
    best = size.bitwise_or_(index).amax(-2, keepdim=True) & n - 1
    return (best + n * (x.gather(-2, best.long()) < 0)).squeeze(-2).long()


def ordered(groups: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The order [R, N] of each row by its groups [R, N] below `count`, and these as numbers [R N].

    No two rows share numbers, so they are sorted in one dimension; and they are as small as
    possible. Both make it several times as fast. Equal ones stay in place.
    """
    rows = torch.arange(len(groups), device=groups.device)[:, None]
    small = torch.int16 if len(rows) * count <= 2**15 else torch.int32
    numbers = (groups.to(small) + (count * rows).to(small)).flatten()
    return numbers.argsort(stable=True).view(groups.shape) - groups.shape[1] * rows, numbers


def logits_at_once(device: str) -> int:
    """How many logits to compute at a time: what a core's cache holds, or what fills a GPU."""
    return 2**18 if device == "cpu" else 2**26


def part_elements(w: Workload, count: int, each: int) -> int:
    """Elements of what one part of the tokens takes, `each` for every one of its numbers.

    Parts have as many numbers as a core's cache holds, or as fill a GPU, of `count` in all. In
    training a GPU's count half, since predictions count twice what is kept.
    """
    most = logits_at_once(w.device)
    return each * most if w.device == "cpu" else each * min(count, most) // (1 + w.trains)
