"""Big Bird (Zaheer et al., 2020): tokens read neighbours, random blocks and a few global tokens.

    q, k, v = x W_Q, x W_K, x W_V                                                  [B, H, N, d] each
    o_i = Σ_j softmax_j(q_i k_jᵀ / √d) v_j,    i ≥ g, j ∈ G and W_i and R_i        [B, H, N, d]
    G   = {j: j < g}
    W_i = {j: |block(i) − block(j)| ≤ 1}, 3 b tokens
    R_i = r / b random blocks that meet neither G nor W_i, r tokens
    o_i = the same over all j,                 i < g                               [B, H, g, d]

Random blocks are drawn without replacement for each head and block of queries when the module is
built, from `seed`, and then stay fixed; layers with the same seed have the same blocks. The key
sets are united: a global token inside a window counts once. Where fewer than r / b blocks remain,
all of them are taken, so a short sequence has full attention only when its windows, global and
random blocks cover it. A sequence whose length is not a multiple of b is padded internally;
padding is never a key.

Each block of queries reads three blocks of keys as overlapping views; random blocks of keys and
values are copied, [B, H, N r/b, d]. `flex` copies nothing and stores no scores, by
torch's flex_attention. No causal form: global and random tokens look ahead. This is the paper's
ITC; left out: its ETC, whose global tokens are added to the sequence.

Notation: the paper's w is our 3 b.
Source: arXiv:2007.14062, section 2 and appendix D.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnbench import attention as at
from attnbench.devices import find
from attnbench.mechanisms.longformer import joined, lowered, padded, windows


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`block`: b; `global_tokens`: g; `random_tokens`: r, a multiple of b; `seed` of the draw."""

    block: int = 64
    global_tokens: int = 128
    random_tokens: int = 192
    seed: int = 0

    def __post_init__(self) -> None:
        self.require_at_least(1, "block")
        self.require_at_least(0, "global_tokens", "random_tokens")
        if self.random_tokens % self.block:
            raise ValueError(
                f"random_tokens is {self.random_tokens}; it must be a multiple of"
                f" block = {self.block}"
            )


class BigBird(at.QKVAttention):
    random: Tensor  # [H, n, r / b] indices of blocks; −1 where none was left to draw

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.register_buffer("random", draw(config, workload))
        self.may_run_out = fewest(config, workload) < config.random_tokens // config.block

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        g = self.config.global_tokens
        k = k.contiguous()
        v = v.contiguous()
        rows = at.softmax_attention(q[:, :, :g], k, v, at.key_mask(mask))
        return joined(rows, self.sparse(q, k, v, mask), mask).transpose(1, 2)

    def sparse(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Global, neighbouring and random keys of every query: [B, H, N, d] to the same shape."""
        N, d = q.shape[2:]
        b = self.config.block
        g = self.config.global_tokens
        q, k, v = (padded(t, b).contiguous() for t in (q / d**0.5, k, v))
        blocks = q.unflatten(2, (-1, b))  # [B, H, n, b, d]
        scores = self.masked(
            (q @ k[:, :, : min(g, N)].mT).unflatten(2, (-1, b)),  # [B, H, n, b, g]
            blocks @ windows(k, b, b, 3 * b).mT,  # [B, H, n, b, 3 b]
            blocks @ self.drawn(k).mT,  # [B, H, n, b, r]
            N,
            mask,
        )
        sizes = [part.shape[-1] for part in scores]
        logits = torch.cat(scores, -1)
        del scores  # large, so freed as early as possible
        A = logits.softmax(-1).split(sizes, -1)
        del logits
        # read values after weights, or their gradients wait in memory for those of the weights
        o = (A[1] @ windows(v, b, b, 3 * b)).add_(A[2] @ self.drawn(v))  # [B, H, n, b, d]
        return (o.flatten(2, 3) + A[0].flatten(2, 3) @ v[:, :, : min(g, N)])[:, :, :N]

    def drawn(self, x: Tensor) -> Tensor:
        """The random blocks of each block of queries, [B, H, n b, d] to [B, H, n, r, d]."""
        B = x.shape[0]
        H = x.shape[1]
        d = x.shape[3]
        n, R = self.random.shape[1:]
        table = x.reshape(B * H * n, -1)
        first = torch.arange(0, B * H * n, n, device=x.device).view(B, H, 1, 1)
        rows = table.index_select(0, (first + self.random.clamp(min=0)).flatten())
        return rows.view(B, H, n, R * self.config.block, d)

    def masked(
        self, sinks: Tensor, near: Tensor, far: Tensor, N: int, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The three logits, very low where a key is padding, already counted or does not exist."""
        b = self.config.block
        g = self.config.global_tokens
        real = torch.ones(1, N, dtype=torch.bool, device=near.device) if mask is None else mask
        local = pad(real, (0, -N % b)).clone()
        local[:, :g] = False
        local = pad(local, (b, b)).unfold(-1, 3 * b, b)[:, None, :, None]  # [·, 1, n, 1, 3 b]
        near.add_(lowered(local, near))
        if mask is not None:
            sinks = sinks + lowered(mask[:, None, None, None, :g], sinks)
        if mask is not None or N % b or self.may_run_out:
            table = pad(real, (0, -N % b)).unflatten(1, (-1, b))  # [·, n, b]
            chosen = table[:, self.random.clamp(min=0)] & (self.random >= 0)[..., None]
            far.add_(lowered(chosen.flatten(3)[:, :, :, None], far))
        return sinks, near, far

    def draws(self, index: int) -> at.Draws:
        return {"random": self.random}

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """g + 3 b + r keys for every query, padded to blocks; then g full rows."""
        g = min(config.global_tokens, w.seq_len)
        b = config.block
        rows = w.seq_len + -w.seq_len % b
        keys = g + 3 * b + config.random_tokens
        return at.Flops(
            at.projection_flops(w), 4 * w.batch * w.width * (rows * keys + w.seq_len * g)
        )

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Logits before and after concatenation, their softmax, and random keys and values."""
        keys = min(config.global_tokens, w.seq_len) + 3 * config.block + config.random_tokens
        copies = 2 * w.tokens * w.width * config.random_tokens // config.block
        return 3 * w.heads * w.tokens * keys + copies


def reference(module: BigBird, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    d = module.width // module.heads
    b = module.config.block
    real = {j for j in range(N) if mask is None or mask[j]}
    q = module.query(x)
    k = module.key(x)
    v = module.value(x)
    rows = []
    for i in range(N):
        heads = []
        for h in range(module.heads):
            near = {i // b - 1, i // b, i // b + 1} | set(draws["random"][h, i // b].tolist())
            g = module.config.global_tokens
            keys = sorted(j for j in real if i < g or j < g or j // b in near)
            s = slice(h * d, (h + 1) * d)
            heads.append((k[keys, s] @ q[i, s] / d**0.5).softmax(0) @ v[keys, s])
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


class Flex(at.flex.Form, BigBird):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        rows = at.softmax_attention(q[:, :, : self.config.global_tokens], k, v, at.key_mask(mask))
        return joined(rows, self.fused(q, k, v, mask), mask).transpose(1, 2)

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """All pairs of flex_attention's blocks that it visits; g full rows."""
        g = min(config.global_tokens, w.seq_len)
        visited = super().flops(config, w)
        return replace(visited, core=visited.core + 4 * w.batch * w.width * w.seq_len * g)

    @staticmethod
    def visible(config: Config, w: at.Workload) -> at.flex.Window:
        """Global, neighbouring and random keys of every query."""
        b = config.block
        g = config.global_tokens
        random = draw(config, w)
        # a table for each draw: older releases of torch index by tensors alone here
        table = random.to(find(w.device).torch_name)
        drawn_blocks = [drawn.contiguous() for drawn in table.unbind(-1)]

        def allowed(_: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            keys = (j < g) | ((i // b - j // b).abs() <= 1)
            for drawn in drawn_blocks:
                keys = keys | (drawn[h, i // b] == j // b)
            return keys

        first, last = (i // b for i in at.flex.queries(w.seq_len))
        zero = 0 * first
        end = torch.full_like(first, random.shape[1] - 1)
        part = [(zero, zero + g), ((first - 1) * b, (last + 2) * b)]
        for step in range(-(-at.flex.BLOCK // b) + 1):
            own = torch.minimum(torch.minimum(first + step, last), end)
            part += [(drawn * b, (drawn + 1) * b) for drawn in random[:, own].unbind(-1)]
        return at.flex.Window(w.seq_len, allowed, part)


def draw(config: Config, w: at.Workload) -> Tensor:
    """[H, n, r / b]: for each head and block of queries, distinct blocks of keys, or −1."""
    generator = torch.Generator().manual_seed(config.seed)
    n = math.ceil(w.seq_len / config.block)
    R = config.random_tokens // config.block
    first = min(math.ceil(config.global_tokens / config.block), n)
    i = torch.arange(n)
    start = (i - 1).clamp(first, n)  # of the window
    stop = (i + 2).clamp(first, n)
    left = n - first - (stop - start)  # number of blocks that may be drawn
    chosen = torch.empty(w.heads, n, 0, dtype=torch.long)
    for t in range(R):
        # draw t numbers the remaining blocks, so earlier draws are skipped in order
        u = (torch.rand(w.heads, n, generator=generator, dtype=torch.float64) * (left - t)).long()
        for earlier in chosen.sort(-1).values.unbind(-1):
            u += u >= earlier
        chosen = torch.cat([chosen, u[..., None]], -1)
    blocks = chosen + first
    blocks += (blocks >= start[:, None]) * (stop - start)[:, None]
    return blocks.masked_fill(torch.arange(R) >= left[:, None], -1)


def fewest(config: Config, w: at.Workload) -> int:
    """A lower bound on the number of blocks that any block of queries can draw from."""
    return math.ceil(w.seq_len / config.block) - math.ceil(config.global_tokens / config.block) - 3


def exempt(config: Config) -> Mapping[at.Exemption, str]:
    """The draw of random blocks depends on the length."""
    if not config.random_tokens:
        return {}
    return {at.Exemption.EXTRA_PADDING: "random blocks are drawn from all blocks of N"}


CARD = at.Card(
    forms={"eager": BigBird, "flex": Flex},
    config=Config,
    reference=reference,
    parameters=at.projection_parameters,
    family=at.Family.FIXED_MEMORY,
    causality=at.Causality.NEVER,
    paper=at.Paper(
        "Big Bird: Transformers for Longer Sequences", "Zaheer et al.", 2020, "arXiv:2007.14062"
    ),
    cost=at.Cost("O(N·K·d)", time=1, memory=1),
    symbols={"K": ("tokens that a query attends to", "block", "global_tokens", "random_tokens")},
    examples=(
        Config(block=2, global_tokens=3, random_tokens=4),
        Config(block=4, global_tokens=4, random_tokens=8, seed=1, bias=True),
        Config(block=3, global_tokens=0, random_tokens=0),
        Config(),
    ),
    exempt=exempt,
    no_decode_reason="global and random blocks read later tokens",
)
