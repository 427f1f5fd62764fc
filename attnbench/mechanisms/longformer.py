"""Longformer (Beltagy et al., 2020): tokens attend to their neighbours, a few of them to all.

    q, k, v = x W_Q, x W_K, x W_V                                      [B, H, N, d] each
    o_i = Σ_j softmax_j(q_i k_jᵀ / √d) v_j,    i ≥ g, j ∈ W_i          [B, H, N, d]
    W_i = {j: |i − j| = m δ, 0 ≤ m ≤ w/2} and {j: j < g}
    o_i = Σ_j softmax_j(q′_i k′_jᵀ / √d) v′_j, i < g, all j            [B, H, g, d]

w is two-sided: w + 1 keys, or fewer at the ends. q′, k′, v′ come from three separate projections
(`share_global` uses q, k, v). The first g tokens are global; in the paper g depends on the task,
and the default here is 1, a classification token. A global key is counted once, outside the
window. δ dilates all heads; the paper dilates two heads of the upper layers.

`eager` is the paper's chunk algorithm: blocks of w/2 queries against three blocks of keys, which
are overlapping views and never copied; keys beyond the window are masked. `blocked` fits the
blocks to the machine (C queries against C + w keys). `folded` is `blocked` with the projections of
k′ and v′ folded into the few global rows, so that k′ and v′ are never stored:
    q′_i k′_jᵀ = (q′_i W_K′) x_jᵀ        Σ_j A_ij v′_j = W_V′ Σ_j A_ij x_j
`flex` computes window and global keys of all rows by torch's flex_attention, which stores no
scores; the rows of global queries are those of `eager`.

The causal form is ours: the window ends at i, and all later i see the keys j < g; there are no
global rows and no separate projections. For decoding, the state is k and v of the first g tokens,
and a ring of the last δ (w/2 + 1) others.
Source: arXiv:2004.05150, sections 3.1 and 3.2.
"""

from dataclasses import astuple, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`window`: w; `global_tokens`: g; `dilation`: δ; `share_global`: q′, k′, v′ = q, k, v."""

    window: int = 512
    global_tokens: int = 1
    dilation: int = 1
    share_global: bool = False

    def __post_init__(self) -> None:
        if self.window < 2 or self.window % 2:
            raise ValueError(f"window is {self.window}; it must be an even number of at least 2")
        self.require_at_least(0, "global_tokens")
        self.require_at_least(1, "dilation")


class Longformer(at.CachedAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.separate = workload.level is not at.Level.CORE and separate(config, workload)
        if self.separate:
            D = workload.width
            self.query_global = nn.Linear(D, D, bias=config.bias)
            self.key_global = nn.Linear(D, D, bias=config.bias)
            self.value_global = nn.Linear(D, D, bias=config.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if not self.separate:
            return super().forward(x, mask)
        q, k, v = (self.split(linear(x)) for linear in (self.query, self.key, self.value))
        rows = self.global_rows(x, mask)
        return self.output(joined(rows, self.local(q, k, v, mask), mask).flatten(2))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        g = 0 if self.causal else self.config.global_tokens
        rows = at.softmax_attention(q[:, :, :g], k, v, at.key_mask(mask))
        return joined(rows, self.local(q, k, v, mask), mask).transpose(1, 2)

    def global_rows(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """[B, N, D] to the outputs of the first g rows [B, H, g, d], by separate projections."""
        q = self.split(self.query_global(x[:, : self.config.global_tokens]))
        k = self.split(self.key_global(x))
        v = self.split(self.value_global(x))
        return at.softmax_attention(q, k, v, at.key_mask(mask))

    def local(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Window and global keys of every row, global or not: [B, H, N, d] to the same shape."""
        N, d = q.shape[2:]
        C = self.block(self.config)
        before, L = reach(self.config, C, self.causal)
        # copies, as a view would keep all keys and values for the backward pass
        sinks_k, sinks_v = (t[:, :, : self.config.global_tokens].contiguous() for t in (k, v))
        q, k, v = (self.phases(t, C) for t in (q / d**0.5, k, v))  # [B, H, δ, n C, d]
        band = q.unflatten(3, (-1, C)) @ windows(k, C, before, L).mT  # [B, H, δ, n, C, L]
        band.add_(self.bias(N, C, before, L, mask, band))
        if not self.config.global_tokens:
            return self.in_order(band.softmax(-1) @ windows(v, C, before, L), N)
        sinks = q.flatten(2, 3) @ sinks_k.mT  # [B, H, δ n C, g]
        if self.causal or mask is not None:
            sinks = sinks + self.sink_bias(N, C, mask, sinks)
        logits = torch.cat([sinks.view(*band.shape[:-1], -1), band], -1)
        del band  # large, so freed as early as possible
        A_sinks, A_band = logits.softmax(-1).split([logits.shape[-1] - L, L], -1)
        del logits
        # read values after weights, or their gradients wait in memory for those of the weights
        o = A_band @ windows(v, C, before, L)  # [B, H, δ, n, C, d]
        return self.in_order(o + (A_sinks.flatten(2, 4) @ sinks_v).view_as(o), N)

    def in_order(self, o: Tensor, N: int) -> Tensor:
        """[B, H, δ, n, C, d] to [B, H, N, d], with the phases interleaved again."""
        return o.flatten(3, 4).transpose(2, 3).flatten(2, 3)[:, :, :N]

    def phases(self, x: Tensor, C: int) -> Tensor:
        """[B, H, N, d] to [B, H, δ, M, d]: tokens grouped by i mod δ, M a multiple of C."""
        δ = self.config.dilation
        return padded(x, δ * C).unflatten(2, (-1, δ)).transpose(2, 3)

    def bias(
        self, N: int, C: int, before: int, L: int, mask: Tensor | None, like: Tensor
    ) -> Tensor:
        """0 where a query may use a key of its block, else very low: [1 or B, 1, δ, n, C, L]."""
        usable = torch.arange(N, device=like.device)[None] >= self.config.global_tokens
        if mask is not None:
            usable = usable & mask
        usable = self.phases(usable[:, None, :, None], C).squeeze(-1)  # [1 or B, 1, δ, n C]
        usable = pad(usable, (before, L - C - before)).unfold(-1, L, C)  # [1 or B, 1, δ, n, L]
        query = torch.arange(C, device=like.device)[:, None] + before
        offset = torch.arange(L, device=like.device) - query  # [C, L]
        near = (offset >= -self.config.window // 2) & (offset <= L - C - before)
        return lowered(near & usable[..., None, :], like)

    def sink_bias(self, N: int, C: int, mask: Tensor | None, like: Tensor) -> Tensor:
        """The same for global keys: broadcastable to [B, H, δ n C, g]."""
        allowed = like.new_ones(1, 1, 1, like.shape[-1], dtype=torch.bool)
        if mask is not None:
            allowed = mask[:, None, None, : like.shape[-1]]
        if self.causal:
            past = torch.ones(N, like.shape[-1], dtype=torch.bool, device=like.device).tril()
            allowed = allowed & self.phases(past[None, None], C).flatten(2, 3)
        return lowered(allowed, like)

    @staticmethod
    def slots(config: Config, tokens: int) -> tuple[int, int]:
        """How many global tokens, and how many of all, the state keeps of a causal sequence.

        The ring has equally many slots for each phase, those of the window.
        """
        ring = config.dilation * (config.window // 2 + 1)
        return min(config.global_tokens, tokens), min(config.global_tokens + ring, tokens)

    def near(self, query: Tensor, key: Tensor) -> Tensor:
        δ = self.config.dilation
        lag = query - key
        window = (lag % δ == 0) & (lag <= δ * (self.config.window // 2))
        return window | (key < self.config.global_tokens)

    def attend_next(self, q: Tensor, state: at.Cache, mask: Tensor | None) -> Tensor:
        first = state.fixed
        δ = self.config.dilation
        if δ == 1 or state.length <= first or mask is not None:
            return at.caches.next_output(q, *state.held(), mask)
        phase = first + (state.length - 1 - first) % δ  # slots of a phase are δ apart
        k, v = state.held()
        near = k[:, :, phase::δ], v[:, :, phase::δ]
        return at.caches.read(q, [(k[:, :, :first], v[:, :, :first]), near])[0]

    @staticmethod
    def block(config: Config) -> int:
        """C, the queries of one block."""
        return config.window // 2

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """The projections; window and global keys of all rows (padded to blocks); g full rows."""
        g = min(config.global_tokens, w.seq_len)
        C = cls.block(config)
        _, L = reach(config, C, w.causal)
        queries = w.seq_len + -w.seq_len % (config.dilation * C)
        core = 4 * w.batch * w.width * queries * (L + g)
        rows = 0 if w.causal else 4 * w.batch * w.width * w.seq_len * g
        projections = at.projection_flops(w)
        if separate(config, w):
            projections += at.projection_flops(w, 2) + 2 * w.batch * g * w.width**2
        return at.Flops(projections, core + rows)

    @classmethod
    def elements(cls, config: Config, w: at.Workload) -> int:
        """Logits before and after concatenation, and their softmax."""
        _, L = reach(config, cls.block(config), w.causal)
        return 3 * w.heads * w.tokens * (L + min(config.global_tokens, w.seq_len))


def reference(module: Longformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    d = module.width // module.heads
    c = module.config
    real = [j for j in range(N) if mask is None or mask[j]]
    steps = [m * c.dilation for m in range(-c.window // 2, c.window // 2 + 1)]
    rows = []
    for i in range(N):
        keys = [j for j in real if j < c.global_tokens or j - i in steps]
        query = module.query
        key = module.key
        value = module.value
        if module.causal:
            keys = [j for j in keys if j <= i]
        elif i < c.global_tokens:
            keys = real
            if not c.share_global:
                query = module.query_global
                key = module.key_global
                value = module.value_global
        q = query(x[i])
        k = key(x[keys])
        v = value(x[keys])
        heads = [slice(h * d, (h + 1) * d) for h in range(module.heads)]
        o = [(k[:, s] @ q[s] / d**0.5).softmax(0) @ v[:, s] for s in heads]
        rows.append(torch.cat(o) if keys else torch.zeros_like(q))
    return module.output(torch.stack(rows))


class Blocked(Longformer):
    @staticmethod
    def block(config: Config) -> int:
        """The window, but at least 16, below which products are too small, and at most 32."""
        return min(max(config.window, 16), 32)


class Folded(Blocked):
    def global_rows(self, x: Tensor, mask: Tensor | None) -> Tensor:
        H = self.heads
        d = self.width // self.heads
        q = self.split(self.query_global(x[:, : self.config.global_tokens])) / d**0.5
        W_K, W_V = (m.weight.view(H, d, -1) for m in (self.key_global, self.value_global))
        logits = (q @ W_K).flatten(1, 2) @ x.mT  # [B, H g, N]
        if self.config.bias:
            # equal for all keys: no weight changes, but the parameter stays in the graph
            logits = logits + (q * self.key_global.bias.view(H, 1, d)).sum(-1).view(len(x), -1, 1)
        A = at.masked_softmax(logits, None if mask is None else mask[:, None])  # [B, H g, N]
        o = (A @ x).unflatten(1, (H, -1)) @ W_V.mT  # [B, H, g, d]
        return o + self.value_global.bias.view(H, 1, d) if self.config.bias else o

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if not separate(config, w):
            return "there are no separate global projections to fold; use longformer:blocked"
        if w.level is at.Level.CORE:
            return at.NO_SEPARATE_CORE
        return None

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """As blocked, but q′ W_K′, its product with X, A X and W_V′ for the full projections."""
        g = min(config.global_tokens, w.seq_len)
        blocked = super().flops(config, w)
        thin = 2 * w.batch * g * w.width * (2 * w.heads * w.seq_len + 2 * w.width)
        rows = 4 * w.batch * w.width * w.seq_len * g
        projections = at.projection_flops(w) + 2 * w.batch * g * w.width**2
        return at.Flops(projections, blocked.core - rows + thin)


class Flex(at.flex.Form, Longformer):
    def local(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return self.fused(q, k, v, mask)

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """All pairs of flex_attention's blocks that it visits; g full rows."""
        g = 0 if w.causal else min(config.global_tokens, w.seq_len)
        visited = super().flops(config, w)
        return replace(visited, core=visited.core + 4 * w.batch * w.width * w.seq_len * g)

    @staticmethod
    def visible(config: Config, w: at.Workload) -> at.flex.Window:
        """Window and global keys of every row."""
        g = config.global_tokens
        δ = config.dilation
        causal = w.causal
        side = δ * config.window // 2

        def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            near = ((i - j).abs() <= side) & ((i - j) % δ == 0) | (j < g)
            return near & (j <= i) if causal else near

        first, last = at.flex.queries(w.seq_len)
        stop, inner_stop = (last + 1, first + 1) if causal else (last + side + 1, first + side + 1)
        part = [(first - side, stop), (0 * first, 0 * first + g)]
        whole = [(last - side, inner_stop)] if δ == 1 else []
        return at.flex.Window(w.seq_len, allowed, part, whole)


class Windows(at.Written):
    """Overlapping blocks of keys as views of one copy; the gradient sums the overlaps."""

    lowered = None
    twice = True

    @staticmethod
    def forward(ctx: Any, x: Tensor, C: int, before: int, L: int) -> Tensor:
        ctx.sizes = x.shape, C, before
        rows = x.numel() // x.shape[-1]
        flat = x.new_empty(rows + L - C, x.shape[-1])
        flat[:before] = 0
        flat[before + rows :] = 0
        flat[before : before + rows].view(x.shape).copy_(x)
        return flat.unfold(0, L, C).mT.unflatten(0, (*x.shape[:-2], -1))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        shape, C, before = ctx.sizes
        parts = gradient.flatten(0, -3).split(C, 1)  # of [blocks, C, d] or narrower
        rows = shape.numel() // shape[-1]
        flat = gradient.new_zeros(rows + (len(parts) - 1) * C, shape[-1])
        for i, part in enumerate(parts):
            flat[i * C : i * C + rows].view(-1, C, shape[-1])[:, : part.shape[1]].add_(part)
        return flat[before : before + rows].view(shape), None, None, None


def windows(x: Tensor, C: int, before: int, L: int) -> Tensor:
    """[…, n C, d] to […, n, L, d]: block i starts at token i C − before; a view of one copy.

    Beyond either end lie tokens of another sequence or head; the caller must give them weight 0.
    """
    return Windows.apply(x, C, before, L)


def reach(config: Config, C: int, causal: bool) -> tuple[int, int]:
    """Number of keys before a block of C queries, and L, the number of all its keys."""
    before = config.window // 2
    return before, before + C + (0 if causal else before)


def separate(config: Config, w: at.Workload) -> bool:
    """Whether global rows have separate projections."""
    return config.global_tokens > 0 and not config.share_global and not w.causal


def padded(x: Tensor, C: int) -> Tensor:
    """[B, H, N, d] with N padded with zeros to a multiple of C; x itself if it is one already."""
    extra = -x.shape[2] % C
    return pad(x, (0, 0, 0, extra)) if extra else x


def joined(rows: Tensor, local: Tensor, mask: Tensor | None) -> Tensor:
    """Global rows followed by the local ones, [B, N, H, d]; 0 where a query is padding."""
    rest = local[:, :, rows.shape[2] :]
    o = torch.cat([rows.transpose(1, 2), rest.transpose(1, 2)], 1)
    return o if mask is None else o * mask[:, :, None, None]


def lowered(allowed: Tensor, like: Tensor) -> Tensor:
    """0 where allowed, else so low that the softmax gives 0, in the dtype of `like`."""
    lowest = torch.finfo(like.dtype).min / 2
    return like.new_zeros(allowed.shape).masked_fill_(~allowed, lowest)


def parameters(config: Config, w: at.Workload) -> int:
    """Four projections, or seven where global rows have separate ones."""
    return at.projection_parameters(config, w) * (7 if separate(config, w) else 4) // 4


def default(config: Config, w: at.Workload) -> str:
    """Folded where that is less work: few global rows, long sequences."""
    if Folded.needs(config, w):
        return "blocked"
    folded, blocked = (sum(astuple(form.flops(config, w))) for form in (Folded, Blocked))
    return "folded" if folded < blocked else "blocked"


def uncompiled(config: Any, w: at.Workload) -> str | None:
    """What torch 2.13 does to overlapping windows on a CPU."""
    if w.device != "cpu":
        return None
    if w.causal:
        return "torch.compile makes code of causal windows that does not build on a CPU"
    if w.padding and w.trains:
        return "torch.compile makes wrong gradients of padded windows on a CPU"
    return None


CARD = at.Card(
    forms={"eager": Longformer, "blocked": Blocked, "folded": Folded, "flex": Flex},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.FIXED_MEMORY,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Longformer: The Long-Document Transformer", "Beltagy et al.", 2020, "arXiv:2004.05150"
    ),
    cost=at.Cost("O(N·K·d)", time=1, memory=1),
    symbols={
        "K": ("tokens that a query attends to", "window", "global_tokens"),
        "k": ("window", "window"),
        "m": ("global tokens", "global_tokens"),
    },
    examples=(
        Config(window=6, global_tokens=2),
        Config(window=4, global_tokens=3, share_global=True, bias=True),
        Config(window=4, global_tokens=1, dilation=2, bias=True),
        Config(),
    ),
    default=default,
    uncompiled=uncompiled,
)
