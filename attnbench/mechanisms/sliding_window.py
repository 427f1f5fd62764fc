"""Sliding-window attention with sinks (Mistral 7B, 2023): the last w tokens, and the first few.

    q = x W_Q,  k, v = x W_K, x W_V                    [B, H, N, d], [B, K, N, d] each
    J_i = {j ≤ i: i − j < w or j < s}
    a_ij = e^{q_i · k_j / √d} / (e^{σ_h} + Σ_{l ∈ J_i} e^{q_i · k_l / √d}),  j ∈ J_i
    o_i = Σ_j a_ij v_j                                 [B, H, N, d]

A window of w tokens includes the token itself. The first s tokens, "attention sinks", stay visible
(StreamingLLM, arXiv:2309.17453). σ_h is a learned sink logit of each head (gpt-oss,
arXiv:2508.10925), without which e^{σ_h} is absent. K heads of keys and values serve H / K
consecutive heads each, as in grouped-query attention. Always causal.

`eager` computes blocks of w queries against their own and the previous block and stores the
weights. `masked` gives the fused kernel a mask [N, N], as most libraries of models do, so its cost
does not depend on w. `blocked` gives it blocks of C queries against C + w − 1 keys, views of one
buffer: no weights are stored, and every block has the same mask. The first w tokens are causal
attention. A sink logit is a further key of zeros that only a further column of q reaches; padding
is lowered through a further column too.

Left out: positions of the cache that start anew when tokens are dropped, as StreamingLLM's do.
For decoding, the state is k and v of the first s tokens, and a ring of the last w others.
Source: arXiv:2310.06825, section 2.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnbench import attention as at

BLOCK = 64  # queries of a block


@dataclass(frozen=True, kw_only=True)
class Config(at.OwnHeads):
    """`window`: w; `sink_tokens`: s; `sink_logit`: whether there is a σ for each head;
    `kv_heads`: K, which divides H; None: H; `heads`: H; `head_width`: d; None: D / H."""

    window: int = 4096
    sink_tokens: int = 0
    sink_logit: bool = False
    kv_heads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "window", "kv_heads")
        self.require_at_least(0, "sink_tokens")


class SlidingWindow(at.CachedAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.kv_heads = kv_heads(config, workload)
        self.sink = nn.Parameter(torch.zeros(workload.heads)) if config.sink_logit else None  # σ

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        w = workload
        kv = (w.batch, kv_heads(config, w), w.seq_len, w.head_width)
        return (w.batch, w.heads, w.seq_len, w.head_width), kv, kv

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        N, d = q.shape[2:]
        b = min(self.config.window, N)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        sinks_k, sinks_v = (t[:, :, None, : self.config.sink_tokens] for t in (k, v))
        q, k, v = (blocks(t, b) for t in (q / d**0.5, k, v))  # [B, H, n, b, d]
        near, sinks = self.allowed(N, b, mask, q.device)
        logits = torch.cat([q @ sinks_k.mT, q @ both(k).mT], -1)  # [B, H, n, b, ≤ s + 2 b]
        allowed = torch.cat([sinks, near], -1)
        if self.sink is not None:
            logits = torch.cat([logits, self.sink.view(-1, 1, 1, 1).expand(*q.shape[:-1], 1)], -1)
            allowed = pad(allowed, (0, 1), value=True)
        A = at.masked_softmax(logits, allowed)
        g = sinks.shape[-1]
        o = A[..., :g] @ sinks_v + A[..., g : g + 2 * b] @ both(v)
        return o.flatten(2, 3)[:, :, :N]

    def allowed(
        self, N: int, b: int, mask: Tensor | None, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Usable keys [1 or B, 1, n, b, 2 b] of the window, and [1 or B, 1, n, b, ≤ s] of sinks."""
        w = self.config.window
        real = at.padded_mask(mask, N, -N % b, device)
        i = torch.arange(N + -N % b, device=device).view(-1, b, 1)
        j = i[:, :1] + torch.arange(-b, b, device=device)  # [n, 1, 2 b]
        near = ((j <= i) & (i - j < w) & (j >= 0))[None, None]
        first = torch.arange(min(self.config.sink_tokens, N), device=device)
        sinks = (i - first >= w)[None, None]  # the others are in the window
        if real is not None:
            near = near & both(blocks(real[:, None, :, None], b)).mT
            sinks = sinks & real[:, None, None, None, : len(first)]
        return near, sinks

    @staticmethod
    def slots(config: Config, tokens: int) -> tuple[int, int]:
        """How many sinks, and how many of all tokens, the state keeps of a sequence."""
        return min(config.sink_tokens, tokens), min(config.sink_tokens + config.window, tokens)

    def near(self, query: Tensor, key: Tensor) -> Tensor:
        return (query - key < self.config.window) | (key < self.config.sink_tokens)

    def attend_next(self, q: Tensor, state: at.Cache, mask: Tensor | None) -> Tensor:
        return at.caches.next_output(q, *state.held(), mask, self.sink)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; then scores and averages of blocks of w over 2 w keys and the sinks."""
        b = min(config.window, w.seq_len)
        keys = 2 * b + min(config.sink_tokens, w.seq_len)
        queries = w.batch * (w.seq_len + -w.seq_len % b)
        return at.Flops(projection_flops(config, w), 4 * queries * keys * w.inner_width)

    @staticmethod
    def step_flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections of the tokens; then scores and averages over all that is kept."""
        _, keys = SlidingWindow.slots_in_steps(config, w.seq_len, w.step)
        one = at.each_alone(w)
        return at.Flops(projection_flops(config, one), 4 * one.tokens * keys * w.inner_width)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 2 * w.heads * w.tokens * (2 * min(config.window, w.seq_len) + config.sink_tokens)


def reference(module: SlidingWindow, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    c = module.config
    N = len(x)
    d = module.head_width
    group = module.heads // module.kv_heads
    rows = []
    for i in range(N):
        keys = [j for j in range(i + 1) if i - j < c.window or j < c.sink_tokens]
        keys = [j for j in keys if mask is None or mask[j]]
        heads = []
        for h in range(module.heads):
            q = module.query(x[i])[h * d : (h + 1) * d]
            shared = slice(h // group * d, (h // group + 1) * d)
            k = module.key(x[keys])[:, shared]
            v = module.value(x[keys])[:, shared]
            weights = (k @ q / d**0.5).exp()
            total = weights.sum() + (0 if module.sink is None else module.sink[h].exp())
            heads.append(weights @ v / total if keys else torch.zeros_like(q))
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


class Masked(SlidingWindow):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return self.part(*self.extended(q, k, v, mask), 0, q.shape[2])[..., : q.shape[-1]]

    def extended(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v with a column for the sink logit, whose key comes first, and one for padding.

        Values of padding are 0, so that a query with no other key gets 0.
        """
        columns_q = [q]
        columns_k = [k]
        if self.sink is not None:
            sink = self.sink.view(-1, 1, 1) * q.shape[-1] ** 0.5
            columns_q.append(sink.expand(*q.shape[:-1], 1))
            columns_k.append(k.new_zeros(1).expand(*k.shape[:-1], 1))
        if mask is not None:
            columns_q.append(q.new_ones(1).expand(*q.shape[:-1], 1))
            low = k.new_zeros(mask.shape).masked_fill(~mask, torch.finfo(k.dtype).min / 4)
            columns_k.append(low[:, None, :, None].expand(*k.shape[:-1], 1))
            v = v * mask[:, None, :, None]
        if len(columns_q) == 1:
            return q, k, v
        d = q.shape[-1]
        needed = len(columns_q) - 1
        q = torch.cat(columns_q, -1)
        k = torch.cat(columns_k, -1)
        if zeros := at.further_columns(d, needed, q.device.type) - needed:
            q = pad(q, (0, zeros))
            k = pad(k, (0, zeros))
        v = pad(v, (0, q.shape[-1] - d))  # or torch uses a kernel that stores weights
        if self.config.sink_logit:
            key = torch.zeros_like(k[:, :, :1])
            key[..., d] = 1
            k = torch.cat([key, k], 2)
            v = pad(v, (0, 0, 1, 0))
        return q, k, v

    def part(self, q: Tensor, k: Tensor, v: Tensor, start: int, stop: int) -> Tensor:
        """The outputs of extended queries from `start` to `stop`, by a mask for all keys."""
        i = torch.arange(start, stop, device=q.device)[:, None]
        j = torch.arange(stop, device=q.device)
        usable = (j <= i) & ((i - j < self.config.window) | (j < self.config.sink_tokens))
        usable = pad(usable, (int(self.config.sink_logit), 0), value=True)
        keys = slice(usable.shape[1])
        return self.fused(q[:, :, start:stop], k[:, :, keys], v[:, :, keys], usable)

    def fused(self, q: Tensor, k: Tensor, v: Tensor, usable: Tensor | None) -> Tensor:
        """softmax(q kᵀ / √d) v of extended q, k and v; without a mask, causal."""
        scale = self.head_width**-0.5
        return at.fused_kernel(q, k, v, usable, causal=usable is None, scale=scale)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; then scores and averages over all N keys and the sink logit's."""
        products = 4 * w.tokens * (w.seq_len + config.sink_logit) * extended_width(config, w)
        return at.Flops(projection_flops(config, w), products)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """The mask in bytes, and as numbers twice; further columns."""
        columns = 3 * w.tokens * (extended_width(config, w) - w.inner_width)
        return 5 * w.seq_len**2 // 2 + w.heads * w.tokens + columns


class Blocked(Masked):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        N, d = q.shape[2:]
        w = self.config.window
        far = self.config.window + self.config.sink_tokens
        q, k, v = self.extended(q, k, v, mask)
        parts = [self.beginning(q, k, v)]
        if w < min(N, far):  # their windows hold sinks
            parts.append(self.part(q, k, v, w, min(N, far)))
        if far < N:
            parts.append(self.blocks(q[:, :, far:], k, v))
        parts = [o[..., :d].transpose(1, 2) for o in parts]
        return (torch.cat(parts, 1) if len(parts) > 1 else parts[0]).transpose(1, 2)

    def beginning(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The outputs of the first w queries: causal attention, after the sink logit if any."""
        first = int(self.config.sink_logit)
        q = pad(q[:, :, : self.config.window], (0, 0, first, 0))
        keys = slice(q.shape[2])
        return self.fused(q, k[:, :, keys], v[:, :, keys], None)[:, :, first:]

    def blocks(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The outputs of the last queries, none of whose windows holds a sink."""
        w = self.config.window
        K = self.kv_heads
        count = q.shape[2]
        C = block(self.config, count)
        fixed = self.config.sink_logit + self.config.sink_tokens
        q = pad(q, (0, 0, 0, -count % C)).unflatten(2, (-1, C)).unflatten(1, (K, -1))
        q = q.transpose(2, 3).flatten(3, 4).flatten(0, 1)  # [B K, n, G C, d]
        keys, values = (
            torch.cat([sinks[:, None].expand(-1, q.shape[1], -1, -1), near], 2) if fixed else near
            for sinks, near in (
                (t[:, :, :fixed].flatten(0, 1), windows(t[:, :, -count - w + 1 :], w, C))
                for t in (k, v)
            )
        )
        band = at.causal_mask(C, C + w - 1, q.device).triu()  # of query c, keys c to c + w − 1
        usable = pad(band, (fixed, 0), value=True).repeat(q.shape[2] // C, 1)
        o = self.fused(q, keys, values, usable).unflatten(2, (-1, C)).unflatten(0, (-1, K))
        return o.transpose(2, 3).flatten(1, 2).flatten(2, 3)[:, :, :count]  # [B, H, count, d]

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; then scores and averages of the three parts."""
        N = w.seq_len
        far = config.window + config.sink_tokens
        first = min(N, config.window)
        middle = min(N, far)
        products = (first + config.sink_logit) ** 2
        products += (middle - first) * (middle + config.sink_logit)
        if far < N:
            C = block(config, N - far)
            keys = config.sink_logit + config.sink_tokens + C + config.window - 1
            products += -(-(N - far) // C) * C * keys
        width = extended_width(config, w)
        return at.Flops(projection_flops(config, w), 4 * w.batch * products * width)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Copies of q, k, v and o; in training, gradients of all windows."""
        C = block(config, w.seq_len)
        kept = 2 * (1 + config.window // C) if w.trains and w.seq_len > config.window else 0
        return w.tokens * (w.heads + (4 + kept) * extended_width(config, w))


def blocks(x: Tensor, b: int) -> Tensor:
    """[B, H, N, d] to [B, H, n, b, d]."""
    return pad(x, (0, 0, 0, -x.shape[2] % b)).unflatten(2, (-1, b))


def both(x: Tensor) -> Tensor:
    """Blocks [B, H, n, b, d], each after the previous one: [B, H, n, 2 b, d]."""
    return torch.cat([pad(x[:, :, :-1], (0, 0, 0, 0, 1, 0)), x], 3)


def windows(x: Tensor, w: int, C: int) -> Tensor:
    """[B, K, w − 1 + N, d] to the C + w − 1 tokens up to each block, [B K, n, C + w − 1, d]."""
    N = x.shape[2] - w + 1
    x = pad(x, (0, 0, 0, -N % C)).flatten(0, 1)
    return x.unfold(1, C + w - 1, C).mT


def block(config: Config, count: int) -> int:
    """C: of a long window a quarter, so that each key is in few blocks; at most all queries."""
    return min(max(BLOCK, config.window // 4), count)


def kv_heads(config: Config, w: at.Workload) -> int:
    return w.heads if config.kv_heads is None else config.kv_heads


def extended_width(config: Config, w: at.Workload) -> int:
    """The width of q with the further columns of all heads."""
    needed = config.sink_logit + (w.padding > 0)
    return w.inner_width + w.heads * at.further_columns(w.head_width, needed, w.device)


def projection_flops(config: Config, w: at.Workload) -> int:
    """W_Q, W_O and the narrower W_K, W_V."""
    return 2 * w.tokens * w.width * 2 * (w.inner_width + kv_heads(config, w) * w.head_width)


def parameters(config: Config, w: at.Workload) -> int:
    """W_Q and W_O, D × H d, W_K and W_V, D × K d (with biases), and σ."""
    width = 2 * (w.inner_width + kv_heads(config, w) * w.head_width)
    biases = config.bias * (width + w.width - w.inner_width)
    return width * w.width + biases + config.sink_logit * w.heads


def needs(config: Config, w: at.Workload) -> str | None:
    if w.heads % kv_heads(config, w):
        return f"{w.heads} heads cannot share {config.kv_heads} heads of keys equally"
    return None


CARD = at.Card(
    forms={"eager": SlidingWindow, "masked": Masked, "blocked": Blocked},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.FIXED,
    causality=at.Causality.ALWAYS,
    paper=at.Paper("Mistral 7B", "Jiang et al.", 2023, "arXiv:2310.06825"),
    cost=at.Cost("O(N·w·d)", time=1, memory=1),
    symbols={"w": ("window", "window")},
    examples=(
        Config(window=5),
        Config(window=4, sink_tokens=3, kv_heads=2),
        Config(window=3, sink_tokens=2, sink_logit=True, kv_heads=1, bias=True),
        Config(window=8, sink_logit=True),
        Config(window=6, kv_heads=1, heads=2, head_width=12, bias=True),
        Config(),
    ),
    default="blocked",
    needs=needs,
)
