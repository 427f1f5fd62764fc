"""Smart Bird (Wu et al., 2021): a cheap sketch of the attention chooses K keys for each query.

    q, k, v = x W_Q, x W_K, x W_V                                  [B, H, N, d] each
    E = x W_E      A = softmax(E W_q (E W_k)ᵀ / √d_s)              [B, N, s], [B, N, N]  (1)
    P_ij = 1 / log² A_ij                                                      [B, N, N]  (2)
    S_ij ~ U(0, P_ij), drawn separately for each head                      [B, H, N, N]  (3)
    c_i = the K keys with the largest S_ij                                 [B, H, N, K]
    o_i = softmax(q_i k_cᵀ / √d) v_c                                       [B, H, N, d]

Equations (1) to (3) are reconstructed from the paper's text and figures. `sampling` selects one of
the five methods that the paper compares: `squared` is (2), `inverse` is −1 / log A, `raw` is P = A,
`top` uses S = A (all heads agree), `random` uses P = 1 and needs no sketch.

A and P exist for some rows at a time. Only the largest S are drawn, from the order statistics: each
key emits events at the rate 1 in −log S, from its P on, and the first of them is its S. Together
they are a process whose rate at s is the number of keys with P > s, so an event is any of these
keys, each as likely, and the sum of exponential waiting times is G(s) = Σ_j log(P_j / s) over them.
Keys are sorted by levels of log P, which is faster than by P, and an event above its key's own P is
left out. So a row takes O(N) for all heads, and each head O(K); H N² draws would take longer.

No gradient passes through the selection. In training mode a trained sketch has an output head, and
`auxiliary_loss` is the mean squared error of A E W_v W_H [B, N, D] against the layer's output; its
gradient reaches the sketch only (also reconstructed). A sketch that is not trained holds its
random projections as buffers. The projections of the sketch have no biases.

Left out: the paper's separate small embedding of the tokens (here E is projected from x).
Notation: our s is the paper's d_s, the width of the sketch.
Source: arXiv:2108.09193, section 3.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnbench import attention as at

SAMPLINGS = ("squared", "inverse", "raw", "top", "random")
LEAST = 1e-30  # of the largest P of a row, where smaller ones are never drawn
NEAR = 40.0  # log of the largest P over another, which is drawn long before those below `LEAST`
LEVELS = 256  # a power of 2


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`keys`: K; `sketch_width`: s; `sampling`: one of five; `train_sketch`; `resample`.

    Without `resample`, later calls of the same sizes reuse the keys chosen by the first call.
    """

    keys: int = 20
    sketch_width: int = 4
    sampling: str = "squared"
    train_sketch: bool = True
    resample: bool = True

    def __post_init__(self) -> None:
        self.require_one_of("sampling", SAMPLINGS)
        self.require_at_least(1, "keys", "sketch_width")
        if self.sampling == "random" and not self.train_sketch:
            raise ValueError("sampling=random has no sketch; leave train_sketch out")

    @property
    def trained(self) -> bool:
        """Whether there is a sketch with a loss."""
        return self.train_sketch and self.sampling != "random"


Sketch = tuple[Tensor, Tensor, Tensor]  # E, its queries (scaled) and its keys, [B, N, s]


class SmartBird(at.QKVAttention):
    sketch_embed: Tensor
    sketch_query: Tensor
    sketch_key: Tensor
    sketch_value: Tensor
    sketch_head: Tensor

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        s = config.sketch_width
        self.chosen: Tensor | None = None
        self.loss: Tensor | None = None
        if config.sampling == "random":
            return
        self.register("sketch_embed", torch.randn(D, s) / D**0.5)
        self.register("sketch_query", torch.randn(s, s) / s**0.5)
        self.register("sketch_key", torch.randn(s, s) / s**0.5)
        if config.trained:
            self.register("sketch_value", torch.randn(s, s) / s**0.5)
            self.register("sketch_head", torch.randn(s, D) / s**0.5)

    def register(self, name: str, value: Tensor) -> None:
        """Adds a parameter to the sketch, or a buffer if the sketch is not trained."""
        if self.config.trained:
            self.register_parameter(name, nn.Parameter(value))
        else:
            self.register_buffer(name, value)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        sketch = self.sketch(x)
        frozen = None if self.config.resample else self.chosen
        if frozen is None or frozen.shape[:2] != x.shape[:2]:
            with torch.no_grad():
                self.chosen = self.choose(x, sketch, mask)  # [B, N, H, K]
        q, k, v = (self.split(linear(x)) for linear in (self.query, self.key, self.value))
        y = self.output(at.merge(self.attend(q, k, v, mask)))
        self.loss = None
        if self.training and sketch is not None and self.config.trained:
            self.loss = self.imitation(sketch, y.detach(), mask)
        return y

    def sketch(self, x: Tensor) -> Sketch | None:
        """The sketch of x [B, N, D]; None if keys are chosen at random."""
        if self.config.sampling == "random":
            return None
        E = x.detach() @ self.sketch_embed
        return E, E @ (self.sketch_query / E.shape[-1] ** 0.5), E @ self.sketch_key

    def choose(self, x: Tensor, sketch: Sketch | None, mask: Tensor | None) -> Tensor:
        """The sampled keys of every query, [B, N, H, K]; some rows at a time."""
        B, N, _ = x.shape
        K = min(self.config.keys, N)
        chosen = x.new_empty(B, N, self.heads, K, dtype=torch.long)
        # what a row takes for all heads stays in the cache
        rows = max(1, at.logits_at_once(x.device.type) // (4 * B * max(N, 2 * K * self.heads)))
        for start, end in pairwise([*range(0, N, rows), N]):
            allowed = self.allowed(start, end, mask, x)  # [B or 1, R or 1, N] or None
            log_P = self.limits(sketch, start, end, allowed)
            if log_P is None:
                log_P = x.new_zeros(B, end - start, N, dtype=torch.float32)
            if allowed is not None:
                allowed = allowed.expand(log_P.shape).flatten(0, 1)
            log_P = log_P.flatten(0, 1)
            if self.config.sampling == "top":
                top = log_P.topk(K, sorted=False).indices[:, None].expand(-1, self.heads, K)
            else:
                top = largest(log_P.float(), allowed, K, self.heads)
            chosen[:, start:end] = top.unflatten(0, (B, -1))
        return chosen

    def allowed(self, start: int, end: int, mask: Tensor | None, x: Tensor) -> Tensor | None:
        """Which keys rows `start` to `end` may use, broadcastable to [B, R, N]; None: all."""
        keys = None if mask is None else mask[:, None]
        if not self.causal:
            return keys
        i = torch.arange(start, end, device=x.device)[:, None]
        past = torch.arange(x.shape[1], device=x.device) <= i
        return past[None] if keys is None else past & keys

    def limits(
        self, sketch: Sketch | None, start: int, end: int, allowed: Tensor | None
    ) -> Tensor | None:
        """log P of rows `start` to `end`, [B, R, N]; None where P is 1 for all keys."""
        if sketch is None:
            return None
        _, q, k = sketch
        logits = (q[:, start:end] @ k.mT).to(torch.promote_types(q.dtype, torch.float32))
        if allowed is not None:
            logits = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
        log_A = logits.log_softmax(-1)
        if self.config.sampling in ("raw", "top"):
            return log_A
        # A = 1 would make P infinite
        rarity = log_A.clamp_(max=-1e-6).neg_().log_()
        return rarity.mul_(-1 if self.config.sampling == "inverse" else -2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        assert self.chosen is not None, "`forward` chooses the keys"
        B, H, N, d = q.shape
        b = torch.arange(B, device=q.device)[:, None, None, None]
        h = torch.arange(H, device=q.device)[:, None]
        rows = ((b * N + self.chosen) * H + h).flatten(0, 2)
        # [B N H, d], the layout of the projections
        q, k, v = (t.transpose(1, 2).reshape(-1, d) for t in (q / d**0.5, k, v))
        o = at.Picked.apply(q, k, v, rows, self.valid(self.chosen, mask))
        return o.view(B, N, H, d).transpose(1, 2)

    def valid(self, chosen: Tensor, mask: Tensor | None) -> Tensor | None:
        """Which chosen keys are real and not after the query, [B N H, K]; None: all."""
        if mask is None and not self.causal:
            return None
        valid = torch.ones_like(chosen, dtype=torch.bool)
        if self.causal:
            valid &= chosen <= torch.arange(chosen.shape[1], device=chosen.device)[:, None, None]
        if mask is not None:
            valid &= mask.gather(1, chosen.flatten(1)).view_as(chosen)
        return valid.flatten(0, 2)

    def imitation(self, sketch: Sketch, y: Tensor, mask: Tensor | None) -> Tensor:
        """The loss of the sketch: A E W_v W_H against the layer's output, over real tokens."""
        E, q, k = sketch
        v = E @ self.sketch_value
        if mask is not None:
            # extra features exclude masked keys without an N × N mask; four of them keep the
            # alignment that fused kernels require
            far = torch.where(mask, 0.0, -2.5e3).to(k.dtype)
            q = nn.functional.pad(q, (0, 4), value=1.0)
            k = torch.cat([k, far[..., None].expand(-1, -1, 4)], -1)
            v = nn.functional.pad(v, (0, q.shape[-1] - v.shape[-1]))  # or all weights are stored
        q, k, v = (t[:, None] for t in (q, k, v))
        attend = nn.functional.scaled_dot_product_attention
        H_s = attend(q, k, v, is_causal=self.causal, scale=1.0)[:, 0, :, : E.shape[-1]]
        error = (H_s @ self.sketch_head - y).square().mean(-1)
        if mask is None:
            return error.mean()
        return (error * mask).sum() / mask.sum().clamp(min=1)

    def auxiliary_loss(self) -> Tensor | None:
        return self.loss

    def draws(self, index: int) -> at.Draws:
        """`chosen` [H, N, K]: the sampled keys; some are invalid where fewer than K are valid."""
        return {} if self.chosen is None else {"chosen": self.chosen[index].transpose(0, 1)}

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if w.level is at.Level.CORE:
            return "the sketch reads x, so there is no separate core"
        return None

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """q kᵀ and a v over K keys; projections and products of the sketch, in training its head.

        In training, A E W_v runs in a fused kernel, which torch's counter may omit.
        """
        N = w.seq_len
        s = config.sketch_width
        core = 2 * (2 * w.tokens * min(config.keys, N) * w.width)
        if config.sampling != "random":
            core += 2 * w.tokens * s * (w.width + 2 * s + N)
        if config.trained and w.trains:
            core += 2 * w.tokens * s * (s + 2 * N + w.width)
        return at.Flops(at.projection_flops(w), core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        K = min(config.keys, w.seq_len)
        return w.tokens * w.heads * K * (16 if w.trains else 8)  # integers count twice


def reference(module: SmartBird, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    d = module.width // module.heads
    q = module.query(x)
    k = module.key(x)
    v = module.value(x)
    rows = []
    for i in range(len(x)):
        heads = []
        for h in range(module.heads):
            part = slice(h * d, (h + 1) * d)
            keys = [int(j) for j in draws["chosen"][h, i]]
            keys = [j for j in keys if mask is None or mask[j]]
            keys = [j for j in keys if j <= i or not module.causal]
            a = (k[keys, part] @ q[i, part] / d**0.5).softmax(0)
            heads.append(a @ v[keys, part])
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


def largest(log_P: Tensor, allowed: Tensor | None, K: int, heads: int) -> Tensor:
    """The K largest of S ~ U(0, P) in each row and head: log P [R, N] to keys [R, H, K].

    A key that is not allowed [R, N] is chosen where fewer than K are. Events need 2 K keys whose P
    are near the largest: that K of these come after a key below `LEAST` has a probability of 1e-25.
    """
    if log_P.shape[1] < 8 * K:
        return from_all(log_P, allowed, K, heads)
    near = log_P > log_P.amax(-1, keepdim=True) - NEAR
    few = (near if allowed is None else near & allowed).sum(-1) < 2 * K
    if not few.any():
        return from_events(log_P, allowed, K, heads)
    chosen = torch.empty(len(log_P), heads, K, dtype=torch.long, device=log_P.device)
    for rows, draw in ((few, from_all), (~few, from_events)):
        if rows.any():
            own = None if allowed is None else allowed[rows]
            chosen[rows] = draw(log_P[rows], own, K, heads)
    return chosen


def from_all(log_P: Tensor, allowed: Tensor | None, K: int, heads: int) -> Tensor:
    """`largest`, with a draw for each key."""
    if allowed is not None:
        log_P = log_P.masked_fill(~allowed, -torch.inf)
    u = log_P.new_empty(len(log_P), heads, log_P.shape[1]).uniform_()
    return (u.log_() + log_P[:, None]).topk(K, sorted=False).indices


def from_events(log_P: Tensor, allowed: Tensor | None, K: int, heads: int) -> Tensor:
    """`largest`, with events in the order of their S."""
    R, N = log_P.shape
    levels = Levels.of(log_P, allowed)
    rows = torch.arange(R, device=log_P.device)
    chosen = rows.new_empty(R, heads, K)
    logs = v = log_P.new_empty(R, heads, 0)
    while len(rows):
        # for all rows, so that the draws of one do not depend on the keys of another
        more = 2, R, heads, max(3 * K // 2 + 10, v.shape[-1])
        u, picks = log_P.new_empty(more).uniform_()[:, rows]
        # a fifth of the time of `exponential_`
        logs = torch.cat([logs, u.neg_().add_(1).log_()], -1)
        v = torch.cat([v, picks], -1)
        chosen[rows], certain = first_distinct(*levels.events(-logs.cumsum(-1), v), K, N)
        if certain.all():
            break
        # of the others the same draws are read again, with more of them
        rows, logs, v = (t[~certain] for t in (rows, logs, v))
        levels = Levels(*(t[~certain] for t in levels))
    return chosen


class Levels(NamedTuple):
    """The keys of R rows by their level: log P_max − log P, rounded down to whole steps.

    A key emits events from its level on, at most a step too early; these are not valid.
    """

    step: Tensor  # [R, 1]
    below: Tensor  # log P_max − log P, [R, N]
    order: Tensor  # keys by level, [R, N]
    counts: Tensor  # of keys up to each level, [R, LEVELS]
    G: Tensor  # where each level but the first begins, [R, LEVELS − 1]

    @classmethod
    def of(cls, log_P: Tensor, allowed: Tensor | None) -> "Levels":
        below = (log_P.amax(-1, keepdim=True) - log_P).clamp_(max=-math.log(LEAST))
        mean = below.mean(-1, keepdim=True)
        if allowed is not None:
            below = below.masked_fill_(~allowed, 0)
            mean = below.sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True)
        step = (mean / (LEVELS - 2)).clamp_(min=1e-9)
        level = (below / step).clamp_(max=LEVELS - 2)
        if allowed is not None:
            level.masked_fill_(~allowed, LEVELS - 1)
        order, numbers = at.ordered(level, LEVELS)
        counts = numbers.bincount(minlength=LEVELS * len(below)).view(-1, LEVELS).cumsum(-1)
        G = (counts[:, :-1] * step).cumsum(-1)
        G[:, -1] = torch.inf  # what is not allowed emits none
        return cls(step, below, order, counts, G)

    def events(self, times: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """The keys of events at values of G [R, H, L], and which are valid; v picks the keys."""
        shape = times.shape
        times = times.flatten(1)
        v = v.flatten(1)
        level = torch.zeros_like(times, dtype=torch.long)
        half = LEVELS // 2
        while half:  # half the time of `searchsorted`
            level.add_(self.G[:, half - 1 :].gather(1, level) <= times, alpha=half)
            half //= 2
        counts = self.counts.gather(1, level)
        since = times - nn.functional.pad(self.G, (1, 0)).gather(1, level)
        keys = self.order.gather(1, (v * counts).long())
        valid = self.step * level + since / counts >= self.below.gather(1, keys)
        return keys.view(shape), valid.view(shape)


def first_distinct(keys: Tensor, valid: Tensor, K: int, N: int) -> tuple[Tensor, Tensor]:
    """The first K distinct of valid keys [R, H, L], [R, H, K], and which rows have as many [R]."""
    L = keys.shape[-1]
    small = torch.int16 if L < 2**15 else torch.int32
    order = torch.arange(L, device=keys.device, dtype=small)
    first = order.new_full((*keys.shape[:2], N), L)
    first.scatter_reduce_(-1, keys, order.masked_fill(~valid, L), "amin")
    fresh = first.gather(-1, keys) == order
    place = fresh.cumsum(-1, dtype=small)  # from 1
    # others go before the first and after the last
    found = keys.new_empty(*keys.shape[:2], K + 2)
    found.scatter_(-1, (place * fresh).clamp_(max=K + 1).long(), keys)
    return found[..., 1:-1], (place[..., -1] >= K).all(-1)


def parameters(config: Config, w: at.Workload) -> int:
    """The four projections; of a trained sketch three s × s matrices, W_E and its head."""
    s = config.sketch_width
    return at.projection_parameters(config, w) + config.trained * (3 * s * s + 2 * s * w.width)


def uncompiled(config: Config, w: at.Workload) -> str | None:
    if config.sampling == "top" or config.keys >= w.seq_len:
        return None
    return "how often it draws depends on what was drawn, which one graph cannot do"


def exempt(config: Config) -> Mapping[at.Exemption, str]:
    """All samplings but `top` draw at random."""
    if config.sampling == "top":
        return {}
    return {at.Exemption.EXTRA_PADDING: "the draws depend on N"}


CARD = at.Card(
    forms={"eager": SmartBird},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.LEARNED,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Smart Bird: Learnable Sparse Attention for Efficient and Effective Transformer",
        "Wu et al.",
        2021,
        "arXiv:2108.09193",
    ),
    cost=at.Cost("O(N²·d_s + N·K·D)", time=2, memory=1),
    symbols={
        "K": ("tokens that a query attends to", "keys"),
        "d_s": ("width of the sketch", "sketch_width"),
    },
    examples=(
        Config(keys=5),
        Config(keys=64, bias=True, sampling="inverse", resample=False),
        Config(keys=6, sketch_width=3, sampling="raw", train_sketch=False),
        Config(keys=4, sampling="top"),
        Config(keys=5, sampling="random"),
    ),
    exempt=exempt,
    uncompiled=uncompiled,
    no_decode_reason="left out: which past tokens it reads is drawn at random, with a draw for each"
    " pair of N",
    waits="it draws again for rows whose draws do not suffice, as no number of draws always does",
)
