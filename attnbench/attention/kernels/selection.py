"""Softmax attention of each query to chosen blocks of keys, exact for the choice made.

A block has C tokens. A query reads its own block up to itself, and of earlier ones those that were
chosen for it. With C = 1 it reads only chosen tokens, of which it may be one. Heads that share keys
share the choice: q is [B, H, N, d], k and v are [B, K, N, d], and a choice is True in
[B, K or 1, N, M] for the earlier of M = ⌈N / C⌉ blocks.

Gathering the keys of each query would move k · d numbers a query. `read_chosen` goes by block
instead: all queries that chose a block read it in one product, and what a query read of several
blocks is merged by their log-sum-exp. Nothing of the size of the scores is kept: the backward pass
computes them again from the merged log-sum-exp.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnbench.attention.contract import CoreAttention, Draws
from attnbench.attention.kernels.autograd import Written
from attnbench.attention.kernels.caches import Cache
from attnbench.attention.kernels.primitives import (
    additive,
    causal_mask,
    logits_at_once,
    masked_softmax,
    widen,
)

aten = torch.ops.aten


def top_blocks(scores: Tensor, count: int, first: int, C: int) -> Tensor:
    """The choice of `count` earlier blocks with the largest scores [..., n, M], or of all earlier.

    The queries are the tokens from `first` on. With C = 1 the own token counts as earlier.
    """
    own = torch.arange(first, first + scores.shape[-2], device=scores.device) // C
    block = torch.arange(scores.shape[-1], device=scores.device)
    # sums of ReLU often tie at 0, where `topk` has no order of its own
    scores = scores + torch.finfo(scores.dtype).tiny * block.to(scores.dtype)
    scores = scores.masked_fill(block >= own[:, None] + int(C == 1), -torch.inf)
    values, blocks = scores.topk(min(count, scores.shape[-1]))
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, blocks, values > -torch.inf)


def block_means(k: Tensor, mask: Tensor | None, C: int) -> Tensor:
    """Mean keys of blocks, [B, K, N, e] to [B, K, M, e]; a mask [B, N] leaves out padding."""
    more = -k.shape[2] % C
    real = k.new_ones(1, 1, k.shape[2], 1) if mask is None else mask[:, None, :, None].to(k.dtype)
    sums, counts = (pad(t, (0, 0, 0, more)).unflatten(2, (-1, C)).sum(3) for t in (k * real, real))
    return sums / counts.clamp(min=1)


def real_blocks(mask: Tensor | None, C: int) -> Tensor | None:
    """Which blocks have a real token, [B, N] to [B, 1, 1, M]; None without a mask."""
    if mask is None:
        return None
    return pad(mask, (0, -mask.shape[1] % C)).unflatten(1, (-1, C)).any(-1)[:, None, None]


def choose(
    score: Callable[[Tensor, int], Tensor],
    q: Tensor,
    keys: int,
    shares: int,
    count: int,
    C: int,
    real: Tensor | None = None,
) -> Tensor:
    """The choice of all queries [B, shares, N, M]; those with no more earlier blocks take them all.

    `score` gives [B, shares, n, M] for n of the others and the number of the first. Each part makes
    about as many scores as fit the cache, if every query has `keys` keys. Of the blocks only the
    `real` ones [B, 1, 1, M] may be chosen.
    """
    B, heads, N, _ = q.shape
    rows = max(16, logits_at_once(q.device.type) // (keys * B * heads))
    start = N - scored(N, C, count)

    def best(scores: Tensor, first: int) -> Tensor:
        if real is not None:
            scores = scores.masked_fill(~real, -torch.inf)
        return top_blocks(scores, count, first, C)

    with torch.no_grad():
        chosen = [best(torch.zeros(B, shares, start, -(-N // C), device=q.device), 0)]
        for first in range(start, N, rows):
            chosen.append(best(score(q[:, :, first : first + rows].detach(), first), first))
        return torch.cat(chosen, 2)


def scored(seq_len: int, C: int, count: int) -> int:
    """How many queries have more than `count` earlier blocks, so that a choice needs scores."""
    return max(0, seq_len - (count + (C > 1)) * C)


class Choosing(CoreAttention):
    """A core whose queries choose blocks; `choice` [B, K or 1, N, M] is the last pass's."""

    one_token_reason = "a query chooses what it reads"
    choice: Tensor | None = None

    def draws(self, index: int) -> Draws:
        """`choice` [K or 1, N, M]: the blocks that each query reads, besides its own if C > 1."""
        return {} if self.choice is None else {"choice": self.choice[index]}

    def read(self, q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None) -> Tensor:
        """The outputs for a choice, [B, H, N, d]; a fused form overrides it."""
        allowed = allowed_tokens(choice, 0, q.shape[2], self.config.block)
        return read_allowed(q, k, v, allowed, mask)


class ChosenState(NamedTuple):
    """k and v of past tokens [B, K, S, d], sums of index keys in blocks [B, ·, M, e], a length.

    Where values are the keys, v has width 0.
    """

    k: Tensor
    v: Tensor
    sums: Tensor
    length: int

    def added(self, k: Tensor, v: Tensor, index: Tensor, C: int) -> "ChosenState":
        """The state after further tokens; k and v are written into its buffers."""
        tokens = torch.arange(self.length, self.length + k.shape[2], device=k.device)
        cache = Cache(self.k, self.v, 0, self.length).added(k, v[..., : self.v.shape[-1]])
        sums = self.sums.index_add(2, tokens // C, index.to(self.sums.dtype))
        return ChosenState(cache.k, cache.v, sums, cache.length)

    def held(self) -> tuple[Tensor, Tensor]:
        """k and v of all past tokens."""
        values = self.v if self.v.shape[-1] else self.k
        return self.k[:, :, : self.length], values[:, :, : self.length]


def allowed_tokens(choice: Tensor, first: int, keys: int, C: int) -> Tensor:
    """True [B, K, n, keys] for what the queries from token `first` on may read."""
    if C == 1:
        return choice[..., :keys]
    i = torch.arange(first, first + choice.shape[2], device=choice.device)[:, None]
    j = torch.arange(keys, device=choice.device)
    return choice.repeat_interleave(C, -1)[..., :keys] | (j <= i) & (i // C == j // C)


def read_allowed(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q kᵀ / √d) v over allowed keys [B, K, N, N]; stores all weights."""
    if mask is not None:
        allowed = allowed & mask[:, None, None]
    shared = q.unflatten(1, (k.shape[1], -1))  # [B, K, G, N, d]
    logits = shared / q.shape[-1] ** 0.5 @ k[:, :, None].mT
    return (masked_softmax(logits, allowed[:, :, None]) @ v[:, :, None]).flatten(1, 2)


def read_next(q: Tensor, k: Tensor, v: Tensor, choice: Tensor, count: int, C: int) -> Tensor:
    """The output of the last query [B, H, 1, d], which gathers its keys.

    They are as many in every sequence, so that a GPU need not be asked how many: `count` earlier
    blocks, or all that there are, and what there is of its own.
    """
    B, K, S, d = k.shape
    earlier, more = divmod(S - 1, C)
    n = min(count, S) if C == 1 else min(count, earlier) * C + more + 1
    allowed = allowed_tokens(choice, S - 1, S, C).expand(B, K, 1, S)
    tokens = torch.nonzero_static(allowed, size=B * K * n)[:, -1].view(B, K, n, 1)
    tokens = tokens.expand(-1, -1, -1, d)
    k = k.gather(2, tokens)
    v = v.gather(2, tokens)
    A = (q.view(B, K, -1, d) / d**0.5 @ k.mT).softmax(-1)
    return (A @ v).view_as(q)


def read_chosen(
    q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None, C: int, first: int = 0
) -> Tensor:
    """The outputs [B, H, N − first, d] of the queries from token `first` on, by block of keys.

    A mask is [B, N]; `first` is a multiple of C.
    """
    N = q.shape[2]
    K = k.shape[1]
    shares = choice.shape[1]
    more = -q.shape[2] % C
    q = q[:, :, first:]
    choice = choice[:, :, first:]
    q = pad(q, (0, 0, 0, more)).unflatten(1, (shares, K // shares, -1)).transpose(3, 4)
    q = q.contiguous()  # or each selection of rows would copy it
    k, v = (pad(t, (0, 0, 0, more)).unflatten(1, (shares, -1)).flatten(0, 1) for t in (k, v))
    bias = None if mask is None else pad(additive(mask, q.dtype), (0, more))
    if bias is not None:
        bias = bias.repeat_interleave(shares, 0)
    o = ChosenBlocks.apply(q.flatten(0, 1), k, v, choice.flatten(0, 1), bias, C)
    o = o[:, :, : N - first].transpose(2, 3).reshape(len(choice), -1, N - first, o.shape[-1])
    return o if mask is None else o * mask.cummax(-1)[0][:, None, first:, None]


def chosen_flops(seq_len: int, C: int, count: int, heads: int, d: int, first: int = 0) -> int:
    """FLOPs of `read_chosen` for one sequence: each block by itself, and `count` earlier ones."""
    earlier = sum(min(i // C, count) for i in range(first, seq_len))
    return 4 * heads * d * C * (seq_len - first + -seq_len % C + earlier)


class ChosenBlocks(Written):
    """The outputs [P, S, n, G, d] of queries of the same shape, the last n tokens.

    k and v are [P, S, N, d] and a bias of keys is [P, N] or None; S heads of keys share one of the
    P choices [n, M].
    """

    lowered = True

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Tensor:
        choice, bias, C = others
        own, own_lse = attend(by_block(q, C), *own_blocks(k, v, bias, q.shape[2], C), True)
        o = widen(by_token(own, q))
        lse = by_token(own_lse[..., None], q)
        for p, rows, keys in readers(choice, C):
            block = k[p, None, :, keys], v[p, None, :, keys], key_bias(bias, p, keys)
            part, found = attend(as_rows(q, p, rows), *block, False)
            merged = o[p].index_select(1, rows)
            before = lse[p].index_select(1, rows)
            found = found.view_as(before)
            merged.lerp_(part.view_as(merged).to(o.dtype), (found - before).sigmoid_())
            o[p].index_copy_(1, rows, merged)
            lse[p].index_copy_(1, rows, torch.logaddexp(before, found))
        o = o.to(q.dtype)
        ctx.save_for_backward(q, k, v, o, lse, choice, bias)
        ctx.C = C
        return o

    @staticmethod
    def backward(ctx: Any, d_o: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, lse, choice, bias = ctx.saved_tensors
        C = ctx.C
        d_o = d_o.contiguous()
        d_own, own, own_lse = (by_block(t, C) for t in (d_o, o, lse))
        n = q.shape[2]
        own_k, own_v, there = own_blocks(k, v, bias, n, C)
        read = (by_block(q, C), own_k, own_v)
        merged = (own, own_lse.squeeze(-1))
        dq, *owned = attend_backward(d_own, *read, there, *merged, True)
        dq = by_token(dq, q)
        dk = torch.zeros_like(k)
        dv = torch.zeros_like(v)
        for total, change in zip((dk, dv), owned, strict=True):
            total[:, :, -n:] = change.sum(1).view_as(total[:, :, -n:])
        for p, rows, keys in readers(choice, C):
            d_rows, q_rows, o_rows, lse_rows = (as_rows(t, p, rows) for t in (d_o, q, o, lse))
            block = k[p, None, :, keys], v[p, None, :, keys], key_bias(bias, p, keys)
            merged = o_rows, lse_rows.squeeze(-1)
            changes = attend_backward(d_rows, q_rows, *block, *merged, False)
            total = dq[p].index_select(1, rows)
            dq[p].index_copy_(1, rows, total.add_(changes[0].view_as(total)))
            dk[p, :, keys] += changes[1][0]
            dv[p, :, keys] += changes[2][0]
        return dq, dk, dv, None, None, None


def readers(choice: Tensor, C: int) -> Iterator[tuple[int, Tensor, slice]]:
    """For each block that queries chose: number of the choice, those queries, tokens of the block.

    `choice` is [P, N, M].
    """
    for p, chosen in enumerate(choice):
        counts = chosen.sum(0).tolist()
        for block, rows in enumerate(chosen.mT.nonzero()[:, 1].split(counts)):
            if len(rows):
                yield p, rows, slice(block * C, (block + 1) * C)


def as_rows(t: Tensor, p: int, rows: Tensor) -> Tensor:
    """[P, S, N, G, d] to the rows [1, S, n G, d] of some tokens."""
    return t[p].index_select(1, rows).flatten(1, 2)[None]


def by_block(t: Tensor, C: int) -> Tensor:
    """[P, S, N, G, d] to [P S M, G, C, d]; without groups to [P S M, 1, C, d]."""
    t = t[:, :, :, None] if t.dim() == 4 else t
    return t.unflatten(2, (-1, C)).transpose(3, 4).flatten(0, 2)


def by_token(t: Tensor, like: Tensor) -> Tensor:
    """[P S M, G, C, d] to [P, S, N, G, d], a new tensor."""
    t = t.view(*like.shape[:2], -1, *t.shape[1:]).transpose(3, 4)
    return t.flatten(2, 3).contiguous()


def own_blocks(
    k: Tensor, v: Tensor, bias: Tensor | None, n: int, C: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The blocks of the last n tokens of k, v [P, S, N, d] and a bias [P, N] or None, by block."""
    k = k[:, :, -n:]
    v = v[:, :, -n:]
    if bias is not None:
        bias = bias[:, None, -n:].expand(k.shape[:3]).unflatten(2, (-1, C)).flatten(0, 2)
        bias = bias[:, None, None]  # [P S M, 1, 1, C]
    return by_block(k, C), by_block(v, C), bias


def key_bias(bias: Tensor | None, p: int, keys: slice) -> Tensor | None:
    return None if bias is None else bias[p, None, None, None, keys]


def fused(q: Tensor) -> bool:
    """Whether there is a kernel that gives the log-sum-exp, and gradients from a merged one."""
    return q.is_cpu


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √d + bias) v, and the log-sum-exp of each row; one head of keys serves all."""
    k, v = (t.expand(-1, q.shape[1], -1, -1) for t in (k, v))
    if fused(q):
        kernel = aten._scaled_dot_product_flash_attention_for_cpu
        return kernel(q, k, v, 0.0, causal, attn_mask=widened(bias, q, k))
    logits = scores(q, k, bias, causal)
    lse = logits.logsumexp(-1)
    return (logits - lse[..., None]).exp().to(v.dtype) @ v, lse


def attend_backward(
    d_o: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    o: Tensor,
    lse: Tensor,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v from merged outputs o and log-sum-exps of the rows."""
    k, v = (t.expand(-1, q.shape[1], -1, -1) for t in (k, v))
    if fused(q):
        kernel = aten._scaled_dot_product_flash_attention_for_cpu_backward
        mask = widened(bias, q, k)
        return kernel(d_o, q, k, v, o, lse, 0.0, causal, attn_mask=mask)
    A = (scores(q, k, bias, causal) - lse[..., None]).exp()
    d_logits = A * (d_o @ v.mT - (d_o * o).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
    return d_logits.to(k.dtype) @ k, d_logits.to(q.dtype).mT @ q, A.to(d_o.dtype).mT @ d_o


def scores(q: Tensor, k: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    logits = widen(q @ k.mT / q.shape[-1] ** 0.5)
    if bias is not None:
        logits = logits + bias
    if causal:
        logits = logits + additive(causal_mask(q.shape[-2], k.shape[-2], q.device), q.dtype)
    return logits


def widened(bias: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    return None if bias is None else bias.expand(len(q), q.shape[1], q.shape[2], k.shape[2])
