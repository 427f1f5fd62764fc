"""Native sparse attention (NSA, Yuan et al., 2025): block means, chosen blocks and neighbours.

    q = x W_Q,  k, v = x W_K, x W_V                      [B, H, N, d], [B, K, N, d] each
    k̄_m, v̄_m = means of k, v in block m                [B, K, N / C, d] each
    p_im = softmax over the blocks m that end by i of (q_i · k̄_m / √d)   [B, H, N, N / C]
    J_i = tokens up to i of its own block, the one before it, the first with a real token, and of
          those with the largest Σ_h p_im over the heads of a group, n blocks in all
    o^c_i = Σ_m p_im v̄_m                               [B, H, N, d]
    o^s_i, o^w_i = softmax attention to J_i, and to the last w tokens
    o_i = Σ_b g_ib o^b_i,  g = σ(x W_γ)                [B, H, N, d], [B, H, N, 3]

A block has C tokens. K heads of keys and values serve H / K consecutive heads, a group. The choice
has no gradient, the means do; they leave padding out. o^c is 0 where no block has ended.

The first n C tokens read all blocks up to theirs, whatever their scores.

`eager` stores the weights of all three; `blocked` stores none. It reads chosen blocks by block of
keys (`attention.kernels.selection`) and windows in blocks of queries (`sliding_window:blocked`),
and computes what the first tokens read in both branches once. `flex` lets flex_attention visit the
blocks that any of 128 queries chose, on a GPU. Always causal. For decoding, the state is k and v,
and their sums in every block.

Left out: learned, overlapping compressions in place of means, and keys for each branch.
Source: arXiv:2502.11089, equations (5) to (12).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from attnbench import attention as at
from attnbench.mechanisms import grouped_query, sliding_window
from attnbench.mechanisms.grouped_query import kv_heads


@dataclass(frozen=True, kw_only=True)
class Config(grouped_query.Grouped):
    """`block`: C, at least 2; `blocks`: n, at least 3; `window`: w; `kv_heads`: K, which divides H;
    None: H/4, or the next divisor below."""

    block: int = 64
    blocks: int = 16
    window: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "window")
        self.require_at_least(2, "block")
        self.require_at_least(3, "blocks")


class NativeSparse(at.Choosing, at.QKVAttention):
    windows: type[sliding_window.SlidingWindow] = sliding_window.SlidingWindow

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.kv_heads = kv_heads(config, workload)
        core = replace(workload, level=at.Level.CORE)
        self.window = self.windows(window(config, workload), core)
        if workload.level is not at.Level.CORE:
            self.gates = nn.Linear(workload.width, 3 * workload.heads, bias=config.bias)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        """Shapes of q, k, v and x W_γ."""
        w = workload
        tokens = (w.batch, w.heads, w.seq_len)
        kv = (w.batch, kv_heads(config, w), w.seq_len)
        return (*tokens, w.head_width), (*kv, w.head_width), (*kv, w.head_width), (*tokens, 3)

    def projected(self, x: Tensor) -> tuple[Tensor, ...]:
        return *super().projected(x), self.split(self.gates(x))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, mask: Tensor | None) -> Tensor:
        """Shapes of `core_inputs` and a mask [B, N] or None to [B, H, N, d]."""
        C = self.config.block
        count = self.config.blocks - 1
        N = q.shape[2]
        means_k, means_v = (at.block_means(t, mask, C) for t in (k, v))
        real = at.real_blocks(mask, C)
        ended = self.ended(N, 0, N, q.device)
        visible = ended if real is None else ended & real
        self.choice = at.choose(
            lambda q, first: self.scores(q, means_k, first, real),
            q,
            means_k.shape[2],
            self.kv_heads,
            count,
            C,
            real,
        )
        means = self.compressed(q, means_k, means_v, visible)
        return self.gated(g, means, *self.tokens(q, k, v, self.choice, mask))

    def tokens(
        self, q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """o^s and o^w."""
        return self.read(q, k, v, choice, mask), self.window.attend(q, k, v, mask)

    def gated(self, g: Tensor, *outputs: Tensor) -> Tensor:
        """The sum of the outputs of three branches, by x W_γ."""
        first, *others = zip(g.sigmoid().split(1, -1), outputs, strict=True)
        total = first[0] * first[1]
        for gate, o in others:
            total = total.addcmul(gate, o)
        return total

    def ended(self, N: int, first: int, stop: int, device: torch.device) -> Tensor:
        """Which blocks of N tokens have ended at each query from `first` to `stop`: [n, M]."""
        C = self.config.block
        ends = C * torch.arange(1, -(-N // C) + 1, device=device)
        return ends <= torch.arange(first + 1, stop + 1, device=device)[:, None]

    def scores(self, q: Tensor, means: Tensor, first: int, real: Tensor | None) -> Tensor:
        """Σ_h p [B, K, n, M] of queries from token `first` on; blocks always read have ∞."""
        C = self.config.block
        M = means.shape[2]
        n = q.shape[2]
        visible = self.ended(M * C, first, first + n, q.device)
        visible = visible if real is None else visible & real
        shared = at.widen(q).unflatten(1, (self.kv_heads, -1))  # [B, K, G, n, d]
        logits = shared @ at.widen(means)[:, :, None].mT / q.shape[-1] ** 0.5
        p = at.masked_softmax(logits, visible if real is None else visible[:, None]).sum(2)
        own = torch.arange(first, first + n, device=q.device)[:, None] // C
        block = torch.arange(M, device=q.device)
        started = block == 0 if real is None else real & (real.cumsum(-1) == 1)
        return p.masked_fill(started | (block == own - 1), torch.inf)

    def compressed(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        """o^c of mean keys and values [B, K, M, d]."""
        visible = visible.expand(len(q), 1, *visible.shape[-2:])
        return at.read_allowed(q, k, v, visible, None)

    def start(self, batch: int, capacity: int) -> at.State:
        d = self.width // self.heads
        like = self.output.weight
        k, v = like.new_empty(2, batch, self.kv_heads, capacity, d)
        sums = like.new_zeros(batch, self.kv_heads, -(-capacity // self.config.block), 2 * d)
        return at.ChosenState(k, v, at.widen(sums), 0)

    def prefill(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        q, k, v, g = self.projected(x)
        o = self.attend(q, k, v, g, None)
        both = torch.cat([k, v], -1)
        return self.finished(o, x), at.ChosenState(*state).added(k, v, both, self.config.block)

    def step(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        C = self.config.block
        count = self.config.blocks - 1
        q, k, v, g = self.projected(x)
        kept = at.ChosenState(*state).added(k, v, torch.cat([k, v], -1), C)
        last = kept.length - 1
        k, v = kept.held()
        M = -(-kept.length // C)
        ended = kept.length // C
        means_k, means_v = (kept.sums[:, :, :M] / C).to(k.dtype).chunk(2, -1)
        choice = at.top_blocks(self.scores(q, means_k, last, None), count, last, C)
        outputs = (
            self.compressed_next(q, means_k[:, :, :ended], means_v[:, :, :ended]),
            at.read_next(q, k, v, choice, count, C),
            self.near_next(q, k, v),
        )
        return self.finished(self.gated(g, *outputs), x), kept

    def near_next(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """o^w of the last token."""
        first = max(0, k.shape[2] - self.config.window)
        return at.caches.next_output(q, k[:, :, first:], v[:, :, first:], None)

    def compressed_next(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """o^c of the last token, of mean keys and values [B, K, M, d] of blocks that have ended."""
        return at.caches.next_output(q, k, v, None) if k.shape[2] else torch.zeros_like(q)

    @staticmethod
    def state_elements(config: Config, workload: at.Workload) -> int:
        w = workload
        wide = kv_heads(config, workload) * workload.head_width
        return 2 * w.batch * wide * (w.seq_len + -(-w.seq_len // config.block))

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """The projections; two products with means and one for the choice; all keys; windows."""
        near = cls.windows.flops(window(config, w), w).core
        read = 4 * w.tokens * w.seq_len * w.width
        return at.Flops(projections(config, w), scoring(config, w) + read + near)


def reference(module: NativeSparse, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    C = module.config.block
    gates = module.gates(x).sigmoid()
    choice = draws["choice"]
    heads = []
    for h, (q, k, v) in enumerate(grouped_query.heads_of(module, x)):
        outputs = []
        for i in range(len(x)):
            past = [j for j in range(i + 1) if mask is None or mask[j]]
            chosen = choice[h * module.kv_heads // module.heads, i].nonzero()[:, 0].tolist()
            ended = [[j for j in past if j // C == m] for m in range((i + 1) // C)]
            branches = (
                [block for block in ended if block],
                [[j] for j in past if j // C in (i // C, *chosen)],
                [[j] for j in past if i - j < module.config.window],
            )
            o = torch.zeros_like(q[i])
            for gate, blocks in zip(gates[i, 3 * h : 3 * h + 3], branches, strict=True):
                if blocks:
                    keys, values = (torch.stack([t[b].mean(0) for b in blocks]) for t in (k, v))
                    o = o + gate * ((keys @ q[i] / len(q[i]) ** 0.5).softmax(0) @ values)
            outputs.append(o)
        heads.append(torch.stack(outputs))
    return module.output(torch.cat(heads, -1))


class Blocked(NativeSparse):
    windows = sliding_window.Blocked

    def compressed(self, q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> Tensor:
        visible = visible.expand(len(q), 1, *visible.shape[-2:])
        return at.fused_attention(q, k, v, visible)

    def tokens(
        self, q: Tensor, k: Tensor, v: Tensor, choice: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        N, d = q.shape[2:]
        w = self.config.window
        full = self.config.blocks * self.config.block
        assert isinstance(self.window, sliding_window.Blocked)
        wide_q, wide_k, wide_v = self.window.extended(q, k, v, mask)
        first_q, first_k, first_v = (t[:, :, : max(w, full)] for t in (wide_q, wide_k, wide_v))
        o = self.window.fused(first_q, first_k, first_v, None)[..., :d]
        chosen = [o[:, :, :full]]
        near = [o[:, :, :w]]
        if full < N:
            chosen.append(at.read_chosen(q, k, v, choice, mask, self.config.block, full))
        if w < N:
            near.append(self.window.blocks(wide_q[:, :, w:], wide_k, wide_v)[..., :d])
        return torch.cat(chosen, 2), torch.cat(near, 2)

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """The projections; means and choice as eager; windows; more first tokens; chosen blocks."""
        N = w.seq_len
        C = config.block
        near = window(config, w)
        full = config.blocks * C
        read = cls.windows.flops(near, w).core
        if full > config.window:
            more = min(full, N) ** 2 - min(config.window, N) ** 2
            read += 4 * w.batch * more * sliding_window.extended_width(near, w)
        if full < N:
            wide = w.heads, w.head_width
            read += w.batch * at.chosen_flops(N, C, config.blocks - 1, *wide, full)
        return at.Flops(projections(config, w), scoring(config, w) + read)

    @classmethod
    def elements(cls, config: Config, w: at.Workload) -> int:
        """The choice of a byte each, masks of means, windows, q, k, v and o in other orders."""
        means = -(-w.seq_len // config.block)
        near = cls.windows.elements(window(config, w), w)
        masks = 2 * w.tokens * means
        return kv_heads(config, w) * w.tokens * means // 4 + masks + near + 12 * w.tokens * w.width


class Flex(at.flex.Chosen, Blocked):
    tokens = NativeSparse.tokens
    elements = Blocked.elements

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """As eager, but the most it may visit of chosen blocks."""
        visited = super().flops(config, w)
        near = cls.windows.flops(window(config, w), w).core
        return replace(visited, core=visited.core + scoring(config, w) + near)


def default(config: Config, w: at.Workload) -> str:
    """On a GPU a loop over blocks mostly waits for the host."""
    fuses = w.device != "cpu" and not w.steps and Flex.needs(config, w) is None
    return "flex" if fuses else "blocked"


def window(config: Config, w: at.Workload) -> sliding_window.Config:
    """The options of what reads the last w tokens."""
    return sliding_window.Config(window=config.window, kv_heads=kv_heads(config, w))


def projections(config: Config, w: at.Workload) -> int:
    """FLOPs of W_Q and W_O, of the narrower W_K and W_V, and of W_γ."""
    wide = kv_heads(config, w) * w.head_width
    return 2 * w.tokens * w.width * (2 * w.width + 2 * wide + 3 * w.heads)


def scoring(config: Config, w: at.Workload) -> int:
    """FLOPs of q k̄ᵀ, for the choice and for o^c, and of p v̄."""
    chosen = w.batch * at.scored(w.seq_len, config.block, config.blocks - 1)
    return 2 * (2 * w.tokens + chosen) * -(-w.seq_len // config.block) * w.width


def parameters(config: Config, w: at.Workload) -> int:
    """W_Q and W_O, D × D, W_K and W_V, D × K d, and W_γ, D × 3 H (with biases)."""
    outputs = 2 * w.width + 2 * kv_heads(config, w) * w.head_width + 3 * w.heads
    return outputs * (w.width + config.bias)


CARD = at.Card(
    forms={"eager": NativeSparse, "blocked": Blocked, "flex": Flex},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.LEARNED,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "Native Sparse Attention: Hardware-Aligned and Natively Trainable Sparse Attention",
        "Yuan et al.",
        2025,
        "arXiv:2502.11089",
    ),
    cost=at.Cost("O(N²/C·d + N·(n·C + w)·d)", time=2, memory=2),
    symbols={
        "C": ("tokens of a block", "block"),
        "n": ("blocks that a query reads", "blocks"),
        "w": ("tokens of the window", "window"),
    },
    examples=(
        Config(block=4, blocks=4, window=6, kv_heads=2),
        Config(block=3, blocks=3, window=64, kv_heads=1, bias=True),
        Config(),
    ),
    default=default,
    launches="without Triton a loop over the blocks of keys",
    waits="without Triton a loop over blocks asks who reads each",
    needs=grouped_query.needs,
)
