"""Reformer (Kitaev et al., 2020): tokens attend to those with the same hash, which are similar.

    q, v = x W_Q, x W_V                                 [B, H, N, d] each
    k = q / ‖q‖                                         [B, H, N, d]
    h_r(q) = argmax([q R_r; −q R_r]), R_r normal           [B, H, N], for each round r
    sort the tokens of each round by (h_r, position), cut into chunks of M
    o_i = Σ_r Σ_j∈P_i^r exp(q_i · k_j − z_i) v_j           [B, H, N, d]

P_i^r: the chunk of i in round r and the previous chunk; z_i makes all weights of i sum to 1. As in
the authors' code, the rounds form one circle, so the first chunk of a round sees the last chunk of
the previous round. A token attends to itself only if it has no other key. With `within_bucket`,
only keys in the query's bucket count. Causal: j ≤ i by original position. As in that code, ‖q‖² is
d (mean square of q + 1e-6), and q · k is not divided by √d.

More than 64 buckets use two hashes, each of about the square root of that number, so no product
grows with N². Masked tokens go to a bucket after all others. `chunked` is exact: it reads
the chunks of some heads at a time by a fused kernel, merges the rounds by their log-sum-exp, and
keeps only o and z.

Left out: the correction log N_ij for keys that occur in several rounds; here they count each time
(the authors' default); and section 3, since all mechanisms have the same model around them.
Notation: our N is the paper's l, our M its m, `rounds` its n_rounds, `buckets` its n_buckets.
Source: arXiv:2001.04451, section 2.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnbench import attention as at

SELF_LOGIT = -5e4  # of a token with itself; a round number near the lowest of float16
EPSILON = 1e-6  # added to the mean square of q
SINGLE_HASH = 64  # more buckets than this use two hashes


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`chunk`: M; `rounds` of hashing; `buckets`: a power of 2; None: near 2 N / M;
    `within_bucket`: no keys of other buckets."""

    chunk: int = 64
    rounds: int = 4
    buckets: int | None = None
    within_bucket: bool = False

    def __post_init__(self) -> None:
        self.require_at_least(1, "chunk", "rounds")
        n = self.buckets
        if n is not None and (n < 2 or n & (n - 1)):
            raise ValueError(f"buckets is {n}; it must be None or a power of 2, at least 2")


class Sorted(NamedTuple):
    """All rounds as one circle of C chunks of M items, for G = B·H heads."""

    token: Tensor  # [G, C, M], position in the sequence
    valid: Tensor | None  # [G or 1, C, M]; None: all are valid
    bucket: Tensor | None  # [G, C, M]; None: keys need not share the query's
    rounds: int

    def places(self, N: int) -> Tensor:
        """Where each token is among the items of all heads, [G N, R]."""
        G, C, M = self.token.shape
        token = self.token.view(G, self.rounds, -1)[..., :N]
        numbers = torch.arange(max(N, G * self.rounds), device=token.device)
        place = torch.empty_like(token).scatter_(-1, token, numbers[:N].expand_as(token))
        first = numbers[: G * self.rounds] * (C * M // self.rounds)  # of each round
        return (place + first.view(G, -1, 1)).mT.flatten(0, 1)

    def heads(self, g: slice) -> "Sorted":
        """The items of some heads."""
        valid = self.valid if self.valid is None or len(self.valid) == 1 else self.valid[g]
        bucket = None if self.bucket is None else self.bucket[g]
        return Sorted(self.token[g], valid, bucket, self.rounds)

    def by_chunk(
        self, compute: Callable[..., tuple[Tensor, ...]], causal: bool, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """What is computed of chunks of tensors [G, C, ...] and of the bias of their logits."""
        like = tensors[0]
        if causal or self.valid is not None or self.bucket is not None:
            return compute(*tensors, self.bias(slice(None), causal, like))
        # within a round a token meets itself only on the diagonal of its chunk
        M = self.token.shape[2]
        itself = SELF_LOGIT * torch.eye(M, device=like.device, dtype=like.dtype)
        found = compute(*tensors, nn.functional.pad(itself, (M, 0))[None, None])
        first = slice(0, None, self.token.shape[1] // self.rounds)  # chunk of each round
        again = compute(*(x[:, first] for x in tensors), self.bias(first, causal, like))
        for every, some in zip(found, again, strict=True):
            every[:, first] = some
        return found

    def bias(self, chunks: slice, causal: bool, like: Tensor) -> Tensor:
        """What to add to the logits of some chunks, [G, c, M, 2 M]."""
        tokens = self.token[:, chunks, :, None]
        keys = look_back(self.token)[:, chunks, None]
        bias = like.new_zeros(1).where(tokens != keys, SELF_LOGIT)
        lowest = torch.finfo(like.dtype).min
        if causal:
            bias.masked_fill_(tokens < keys, lowest)
        if self.bucket is not None:
            own = self.bucket[:, chunks, :, None]
            others = look_back(self.bucket)[:, chunks, None]
            bias.masked_fill_(own != others, lowest)
        if self.valid is not None:
            bias.masked_fill_(~look_back(self.valid)[:, chunks, None], lowest)
        return bias


class Reformer(at.QKVAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        if workload.level is not at.Level.CORE:
            del self.key  # the queries serve as keys
        self.buckets = torch.empty(0)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q = self.split(self.query(x))
        v = self.split(self.value(x))
        return self.output(at.merge(self.attend(q, q, v, mask)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """The queries also serve as keys; `k` is ignored."""
        k = q / (q.square().mean(-1, keepdim=True) + EPSILON).sqrt()
        with torch.no_grad():
            self.buckets = self.hash(q, mask)  # [B, H, R, N]
            items = self.sort(self.buckets, mask)
        o = self.among(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), items).view_as(v)
        return o if mask is None else o * mask.any(-1)[:, None, None, None]

    def among(self, q: Tensor, k: Tensor, v: Tensor, items: Sorted) -> Tensor:
        """q, k, v [B·H, N, d] to [B·H, N, d]."""
        places = items.places(q.shape[1])
        q, k, v = (at.gather_tokens(x, items.token) for x in (q, k, v))  # [B·H, C, M, d]
        logits = at.widen(q @ look_back(k).mT / q.shape[-1] ** 0.5)  # [B·H, C, M, 2 M]
        logits = logits + items.bias(slice(None), self.causal, logits)
        o = logits.softmax(-1).to(v.dtype) @ look_back(v)
        o, _ = joined(o, logits.logsumexp(-1), places)
        return o.unflatten(0, (len(q), -1))

    def hash(self, q: Tensor, mask: Tensor | None) -> Tensor:
        """[B, H, N, d] to [B, H, R, N], one rotation per round and head for the whole batch."""
        _, H, N, d = q.shape
        sizes = factors(self.config, N)
        total = 1
        rounds: list[Tensor] = []
        for size in sizes:
            for r in range(self.config.rounds):
                rotation = torch.randn(H, d, size // 2, device=q.device).to(q.dtype)
                bucket = total * at.signed_argmax(rotation.mT @ q.mT)
                rounds[r : r + 1] = [rounds[r] + bucket if rounds[r:] else bucket]
            total *= size
        buckets = torch.stack(rounds, 2)
        return buckets if mask is None else buckets.where(mask[:, None, None], total)

    def sort(self, buckets: Tensor, mask: Tensor | None) -> Sorted:
        """Tokens [B, H, R, N] in the order of their buckets, each round padded to whole chunks."""
        B, H, R, N = buckets.shape
        M, n = shape(self.config, N)
        count = math.prod(factors(self.config, N)) + (mask is not None)
        order = at.ordered(buckets.flatten(0, 2), count)[0].view_as(buckets)
        token = nn.functional.pad(order, (0, n - N)).view(B * H, -1, M)
        valid = None
        if mask is not None:
            valid = mask[:, None, None].expand(B, H, R, N).gather(-1, order)
            valid = nn.functional.pad(valid, (0, n - N)).view(B * H, -1, M)
        elif n > N:
            valid = (torch.arange(n, device=buckets.device) < N).repeat(R).view(1, -1, M)
        if not self.config.within_bucket:
            return Sorted(token, valid, None, R)
        # so that no two rounds share a bucket
        offset = count * torch.arange(1, R + 1, device=buckets.device)[:, None]
        bucket = nn.functional.pad(buckets.gather(-1, order) + offset, (0, n - N))
        return Sorted(token, valid, bucket.view(B * H, -1, M), R)

    def draws(self, index: int) -> at.Draws:
        return {"buckets": self.buckets[index]}

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """W_QK, W_V, W_O; then the rotations, q kᵀ and A v of every round, and their sum."""
        M, n = shape(config, w.seq_len)
        hashing = w.tokens * w.width * config.rounds * sum(factors(config, w.seq_len))
        core = 2 * (2 * w.batch * n * config.rounds * 2 * M * w.width)
        core += 2 * w.tokens * config.rounds * w.width
        return at.Flops(at.projection_flops(w, 3), hashing + core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        M, n = shape(config, w.seq_len)
        items = config.rounds * w.batch * n
        return items * (3 * w.heads * 2 * M + 8 * w.width)


def reference(module: Reformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    d = module.width // module.heads
    M = min(module.config.chunk, len(x))
    q = module.query(x)
    v = module.value(x)
    heads = []
    for h in range(module.heads):
        part = slice(h * d, (h + 1) * d)
        circle: list[tuple[int, int, int] | None] = []  # round, bucket and token of each item
        for r, bucket in enumerate(draws["buckets"][h].tolist()):
            circle += sorted((r, bucket[t], t) for t in range(N))
            circle += [None] * (-N % M)
        chunks = [circle[c : c + M] for c in range(0, len(circle), M)]
        logits: list[list[Tensor]] = [[] for _ in range(N)]
        values: list[list[Tensor]] = [[] for _ in range(N)]
        for c, chunk in enumerate(chunks):
            keys = [key for key in chunks[c - 1] + chunk if key is not None]
            keys = [key for key in keys if mask is None or mask[key[2]]]
            for r, bucket, t in (item for item in chunk if item is not None):
                allowed = [
                    j
                    for s, other, j in keys
                    if (not module.causal or j <= t)
                    and (not module.config.within_bucket or (s, other) == (r, bucket))
                ]
                k = q[allowed, part] / (q[allowed, part].square().mean(-1) + 1e-6).sqrt()[:, None]
                itself = torch.tensor([j == t for j in allowed], dtype=torch.bool)
                logits[t].append((k @ q[t, part] / d**0.5).where(~itself, -5e4))
                values[t].append(v[allowed, part])
        rows = [torch.cat(logits[t]).softmax(0) @ torch.cat(values[t]) for t in range(N)]
        heads.append(torch.stack(rows))
    return module.output(torch.cat(heads, -1))


class Chunked(Reformer):
    def among(self, q: Tensor, k: Tensor, v: Tensor, items: Sorted) -> Tensor:
        return Rounds.apply(q, k, v, items, self.causal)

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """As eager, and the first chunk of each round twice if nothing is masked."""
        M = shape(config, w.seq_len)[0]
        once = super().flops(config, w)
        if w.causal or w.padding or config.within_bucket or w.seq_len % M:
            return once
        return replace(once, core=once.core + 8 * w.batch * config.rounds * M * M * w.width)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        tables = w.tokens * (2 * w.width + w.heads)  # k, o and z
        places = config.rounds * w.tokens * w.heads
        # a GPU has no kernel that stores no scores: a part has 4 for each number that fills it
        scores = places * 2 * shape(config, w.seq_len)[0]
        part = at.part_elements(w, scores // 4, 6 if w.device == "cpu" else 20)
        return tables + 2 * places + part


class Rounds(at.Written):
    """q, k, v [G, N, d] to o [G, N, d]."""

    lowered = True

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, items: Sorted, causal: bool) -> Tensor:
        o = torch.empty_like(v)
        lse = at.widen(q.new_empty(q.shape[:2]))
        for g, part in groups(items, q):
            found, sums = part.by_chunk(attend, causal, *circle(q[g], k[g], v[g], part))
            merged = joined(found, sums, part.places(q.shape[1]))
            o[g], lse[g] = (x.unflatten(0, (-1, q.shape[1])) for x in merged)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.items = items
        ctx.causal = causal
        return o

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, o, lse = ctx.saved_tensors
        # digits of these sums are lost, so what sees only itself is left to the last line
        alone = (lse < SELF_LOGIT / 2)[..., None]
        towards = grad.masked_fill(alone, 0)
        changes = [torch.empty_like(x) for x in (q, k, v)]
        for g, part in groups(ctx.items, q):
            both = torch.cat([towards[g], o[g]], -1)
            d_o, merged = at.gather_tokens(both, part.token).chunk(2, -1)
            sums = at.gather_tokens(lse[g, :, None], part.token).squeeze(-1)
            # the padding of the last chunk of a round holds no queries
            split_rounds(sums, part)[:, :, q.shape[1] :] = torch.finfo(q.dtype).max
            given = d_o, *circle(q[g], k[g], v[g], part), merged, sums
            found = part.by_chunk(attend_backward, ctx.causal, *given)
            places = part.places(q.shape[1])
            read = places, *[as_keys(places, part)] * 2
            for change, table, rows in zip(changes, found, read, strict=True):
                change[g] = at.row_sums(table.flatten(0, 2), rows).unflatten(0, (-1, q.shape[1]))
        dq, dk, dv = changes
        return dq, dk, dv + grad * alone, None, None


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """o and log-sum-exps of chunks."""
    return at.selection.attend(q, k, v, bias, False)


def attend_backward(
    d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, bias: Tensor
) -> tuple[Tensor, ...]:
    """The gradients of q, k and v of chunks."""
    return at.selection.attend_backward(d_o, q, k, v, bias, o, lse, False)


def groups(items: Sorted, q: Tensor) -> Iterator[tuple[slice, Sorted]]:
    """Slices of heads, about as many as the cache holds rows of, and their items."""
    _, C, M = items.token.shape
    step = max(1, at.logits_at_once(q.device.type) // max(1, C * M * M // 2))
    for first in range(0, len(q), step):
        g = slice(first, first + step)
        yield g, items.heads(g)


def circle(q: Tensor, k: Tensor, v: Tensor, items: Sorted) -> tuple[Tensor, Tensor, Tensor]:
    """q [G, C, M, d], k and v [G, C, 2 M, d] in sorted order: views of one table."""
    token = torch.cat([items.token[:, -1:], items.token], 1)
    q, k, v = at.gather_tokens(torch.cat([q, k, v], -1), token).chunk(3, -1)
    M = token.shape[2]
    k, v = (x.flatten(1, 2).unfold(1, 2 * M, M).mT for x in (k, v))
    return q[:, 1:], k, v


def look_back(x: Tensor) -> Tensor:
    """[G, C, M, ·] to [G, C, 2 M, ·]: each chunk preceded by the previous one of the circle."""
    return torch.cat([x.roll(1, 1), x], 2)


def as_keys(places: Tensor, items: Sorted) -> Tensor:
    """Where those at `places` are among the keys [G, C, 2 M] of all chunks, [G N, 2 R]."""
    _, C, M = items.token.shape
    chunk = places // M
    place = places % M
    after = chunk + 1 - C * (chunk % C == C - 1)
    return torch.cat([(2 * chunk + 1) * M + place, 2 * after * M + place], -1)


def joined(o: Tensor, lse: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Combines the rounds: o [G, C, M, d] to [G N, d], and log-sum-exps to those of all [G N]."""
    each = lse.flatten()[places.mT]  # [R, G N]
    share = each.softmax(0).mT.to(o.dtype)
    return at.row_sums(o.flatten(0, 2), places, share), each.logsumexp(0)


def split_rounds(x: Tensor, items: Sorted) -> Tensor:
    """[G, C, M, ·] to [G, R, n, ·], a view."""
    return x.unflatten(1, (items.rounds, -1)).flatten(2, 3)


def shape(config: Config, N: int) -> tuple[int, int]:
    """M, at most N, and N padded to a multiple of it."""
    M = min(config.chunk, N)
    return M, -(-N // M) * M


def factors(config: Config, N: int) -> tuple[int, ...]:
    """The sizes of the hashes; their product is the number of buckets."""
    n = config.buckets or 2 ** max(1, (2 * N // config.chunk).bit_length() - 1)
    if n <= SINGLE_HASH:
        return (n,)
    half = (n.bit_length() - 1) // 2
    return 2**half, n >> half


def parameters(config: Config, w: at.Workload) -> int:
    """W_QK, W_V and W_O."""
    return 3 * w.width * (w.width + config.bias)


CARD = at.Card(
    forms={"eager": Reformer, "chunked": Chunked},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.LEARNED,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Reformer: The Efficient Transformer", "Kitaev et al.", 2020, "arXiv:2001.04451"
    ),
    cost=at.Cost("O(N·log N)", time=1, memory=1),
    examples=(
        Config(chunk=4, rounds=2, buckets=4, bias=True),
        Config(chunk=4, rounds=3, within_bucket=True, buckets=128),
        Config(rounds=2),
    ),
    default="chunked",  # faster at every length
    exempt={
        at.Exemption.EXTRA_PADDING: "padding is part of the circle of chunks",
        at.Exemption.FUTURE_SELECTION: "a token's chunk depends on the tokens sorted before it",
    },
    no_decode_reason="its chunks are cut from all tokens sorted, so a further token moves past"
    " ones",
)
