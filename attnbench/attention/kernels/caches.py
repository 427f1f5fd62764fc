"""Keys and values of past tokens, for attention that continues a sequence token by token.

A cache of S slots keeps the first `fixed` tokens in slots of their own and the last S − fixed of
the others in a ring:
    token j lies in slot j                                   j < fixed
    token j lies in slot fixed + (j − fixed) mod (S − fixed) j ≥ fixed

With a slot for every token it is the plain cache, without fixed tokens the ring of a window. The
buffers are allocated once. Tokens are written into their own slots and nothing is moved, so an
earlier cache is valid again, and its next token can be written anew, as long as no token that it
still reads has been overwritten.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Piece = tuple[Tensor, Tensor]  # k and v of some tokens, [B, K, n, d] each


class Cache(NamedTuple):
    """Buffers of k and v [B, K, S, d], the numbers of fixed and of all past tokens."""

    k: Tensor
    v: Tensor
    fixed: int
    length: int

    def added(self, k: Tensor, v: Tensor) -> "Cache":
        """The cache after further tokens [B, K, n, d], which are written into its buffers."""
        start = self.length
        end = self.length + k.shape[2]
        ring = self.k.shape[2] - self.fixed
        spans = (start, min(end, self.fixed)), (max(start, self.fixed, end - ring), end)
        for first, stop in spans:
            for token, slot, count in self.runs(first, stop):
                kept = slice(slot, slot + count)
                new = slice(token - start, token - start + count)
                self.k[:, :, kept] = k[:, :, new]
                self.v[:, :, kept] = v[:, :, new]
        return self._replace(length=end)

    def runs(self, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Tokens `first` to `stop` − 1 in runs of neighbouring slots: token, slot and count."""
        slots = self.k.shape[2]
        while first < stop:
            fixed = first < self.fixed
            slot = first if fixed else self.fixed + (first - self.fixed) % (slots - self.fixed)
            count = min(stop - first, (self.fixed if fixed else slots) - slot)
            yield first, slot, count
            first += count

    def held(self) -> Piece:
        """k and v of all tokens that have a slot, in the order of slots."""
        filled = min(self.length, self.k.shape[2])
        return self.k[:, :, :filled], self.v[:, :, :filled]

    def numbers(self, count: int) -> tuple[Tensor, Tensor]:
        """Numbers of the last `count` tokens [count, 1], and of those in slots [slots]."""
        last = self.length - 1
        ring = max(1, self.k.shape[2] - self.fixed)
        slot = torch.arange(min(self.length, self.k.shape[2]), device=self.k.device)
        query = torch.arange(self.length - count, self.length, device=self.k.device)
        return query[:, None], torch.where(slot < self.fixed, slot, last - (last - slot) % ring)

    def since(self, first: int) -> list[Piece]:
        """k and v of the tokens from `first` on, oldest first."""
        runs = self.runs(first, self.length)
        return [(self.k[:, :, a : a + n], self.v[:, :, a : a + n]) for _, a, n in runs]


def empty(like: Tensor, batch: int, heads: int, slots: int, width: int, fixed: int = 0) -> Cache:
    """A cache without tokens, of the type and on the device of `like`."""
    k, v = like.new_empty(2, batch, heads, slots, width)
    return Cache(k, v, fixed, 0)


def next_output(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sink: Tensor | None = None
) -> Tensor:
    """softmax(q kᵀ / √d) v of a step's queries, [B, H, n, d], by torch's fused kernel.

    Heads that share one of the K heads of k and v [B, K, S, d] are rows of one product, which on a
    CPU is faster than `enable_gqa`. The mask is [n, S]. With a logit of each head for a `sink` [H],
    which takes weight and has no value, weights are stored.
    """
    queries, mask = rows(q, k, mask)
    if sink is None:
        o = scaled_dot_product_attention(queries, k, v, attn_mask=mask)
    else:
        first = sink.repeat_interleave(q.shape[2]).view(k.shape[1], -1, 1)
        logits = queries / q.shape[-1] ** 0.5 @ k.mT
        if mask is not None:
            logits = logits.masked_fill(~mask, -torch.inf)
        logits = torch.cat([first.expand(*queries.shape[:3], 1), logits], -1)
        o = logits.softmax(-1)[..., 1:] @ v
    return o.reshape(*q.shape[:3], v.shape[-1])


def rows(q: Tensor, k: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Queries [B, H, n, d] as the rows that read a head of k, [B, K, n H / K, d], with masks."""
    queries = q.reshape(*k.shape[:2], -1, q.shape[-1])
    return queries, None if mask is None else mask.repeat(q.shape[1] // k.shape[1], 1)


def read(
    q: Tensor, pieces: Sequence[Piece], position: Tensor | float = 0.0
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √d + position) v [B, H, n, d] over k and v in pieces, and the weights."""
    q = q / q.shape[-1] ** 0.5
    logits = torch.cat([q @ k.mT for k, _ in pieces], -1)
    A = (logits + position).softmax(-1)
    first = 0
    o = torch.zeros_like(q)
    for k, v in pieces:
        o = o + A[..., first : first + k.shape[2]] @ v
        first += k.shape[2]
    return o, A
