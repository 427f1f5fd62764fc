"""Memory-compressed attention (Liu et al., 2018): a strided convolution shortens keys and values.

    q, k, v = x W_Q, x W_K, x W_V                                       [B, H, N, d] each
    k̃_j = C_K [k_{sj}; …; k_{sj+s−1}]      j < n = ⌈N / s⌉             [B, n, D]
    ṽ_j = C_V [v_{sj}; …; v_{sj+s−1}]                                  [B, n, D]
    o = softmax(q k̃ᵀ / √d) ṽ                                        [B, H, N, d]

C_K and C_V: [D, s D] are convolutions of kernel and stride s over all heads. Padding is zeroed
before them, and a compressed key made only of padding is masked.

Causal: query i sees k̃_j once its block is complete, s j + s − 1 ≤ i. A null key and a null value,
initialised to zero and learned, precede all others, so that the first tokens have a key; the
incomplete last block is dropped. This is reconstructed, as the paper does not say how it masks.
`eager` stores the scores. `sdpa` uses a fused kernel; if causal, it groups the tokens by i + 1
modulo s, since token a of each group sees keys 0 to a: a plain causal mask. `folded` also merges
C_K W_K and C_V W_V, so that the full K and V are never computed; it is exact.

Left out: the local layers that alternate with these in the paper (L-M-L-M-L).
Source: arXiv:1801.10198, section 4.2.4.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`compression`: s, kernel and stride of the convolutions."""

    compression: int = 3

    def __post_init__(self) -> None:
        self.require_at_least(1, "compression")


class MemoryCompressed(at.QKVAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        s = config.compression
        self.compress_key = nn.Linear(s * D, D, bias=config.bias)
        self.compress_value = nn.Linear(s * D, D, bias=config.bias)
        if self.causal:
            self.null_key = nn.Parameter(torch.zeros(D))
            self.null_value = nn.Parameter(torch.zeros(D))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        k = self.compress_key(self.blocks(at.merge(k), mask))  # [B, n, D]
        v = self.compress_value(self.blocks(at.merge(v), mask))
        return self.compressed(q, k, v, mask)

    def blocks(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """[B, N, D] to [B, n, s D], zero at padding; if causal, complete blocks only."""
        if mask is not None:
            x = x * mask[..., None]
        return self.whole(x).unflatten(1, (-1, self.config.compression)).flatten(2)

    def whole(self, x: Tensor) -> Tensor:
        """[B, N, ...] to a multiple of s tokens, by adding zeros or, if causal, by truncation."""
        N = x.shape[1]
        s = self.config.compression
        if self.causal or N % s == 0:
            return x[:, : N - N % s]
        return F.pad(x, (0, 0) * (x.dim() - 2) + (0, -N % s))

    def compressed(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """[B, H, N, d] and [B, n, D] twice to [B, H, N, d]."""
        keys = None
        if mask is not None:
            keys = self.whole(mask).unflatten(1, (-1, self.config.compression)).any(-1)  # [B, n]
            if self.causal:
                # a sequence that is all padding has no null key either
                keys = torch.cat([mask.any(1, keepdim=True), keys], 1)
        if self.causal:
            k = torch.cat([self.null_key.expand(len(k), 1, -1), k], 1)
            v = torch.cat([self.null_value.expand(len(v), 1, -1), v], 1)
        return self.dense(q, self.split(k), self.split(v), at.key_mask(keys))

    def dense(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None) -> Tensor:
        """[B, H, N, d], [B, H, n, d] twice and a mask [B, 1, 1, n] or None to [B, H, N, d]."""
        if self.causal:
            i = torch.arange(q.shape[2], device=q.device)[:, None]
            past = torch.arange(k.shape[2], device=q.device) <= (i + 1) // self.config.compression
            keys = past if keys is None else keys & past
        return at.softmax_attention(q, k, v, keys)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """Both convolutions, q k̃ᵀ and A ṽ."""
        n, extra = lengths(config, w)
        conv = 2 * (2 * w.batch * n * config.compression * w.width**2)
        return at.Flops(at.projection_flops(w), conv + 4 * w.tokens * (n + extra) * w.width)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        n, extra = lengths(config, w)
        return 2 * w.heads * w.tokens * (n + extra) + 2 * w.batch * n * w.width


def reference(module: MemoryCompressed, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    D = module.width
    s = module.config.compression
    d = D // module.heads
    real = [mask is None or bool(mask[i]) for i in range(N)]
    K: list[Tensor] = []
    V: list[Tensor] = []
    last = []  # token of each compressed key
    if module.causal and any(real):
        K = [module.null_key]
        V = [module.null_value]
        last = [-1]
    for start in range(0, N, s):
        block = [j for j in range(start, min(start + s, N)) if real[j]]
        if block and not (module.causal and start + s > N):
            K.append(convolved(module.compress_key, module.key, x, block, s))
            V.append(convolved(module.compress_value, module.value, x, block, s))
            last.append(start + s - 1)
    rows = []
    for i in range(N):
        keys = [n for n in range(len(K)) if not module.causal or last[n] <= i]
        heads = []
        for h in range(module.heads):
            part = slice(h * d, (h + 1) * d)
            q = module.query(x[i])[part]
            o = torch.zeros_like(q)
            if keys:
                a = torch.stack([q @ K[n][part] / d**0.5 for n in keys]).softmax(0)
                o = a @ torch.stack([V[n][part] for n in keys])
            heads.append(o)
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


def convolved(conv: nn.Linear, linear: nn.Linear, x: Tensor, block: list[int], s: int) -> Tensor:
    D = x.shape[1]
    taps = (conv.weight[:, j % s * D :][:, :D] @ linear(x[j]) for j in block)
    return sum(taps, torch.zeros_like(x[0]) if conv.bias is None else conv.bias)


class Sdpa(MemoryCompressed):
    def dense(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None) -> Tensor:
        if not self.causal:
            return at.fused_attention(q, k, v, keys)
        B, H, N, _ = q.shape
        s = self.config.compression
        # with one token added in front, query a of each group i + 1 modulo s sees keys 0 to a
        q = F.pad(q.transpose(1, 2), (0, 0, 0, 0, 1, -(N + 1) % s))
        q = q.unflatten(1, (-1, s)).flatten(2, 3).transpose(1, 2)  # [B, s H, n, d]
        k, v = (x[:, None].expand(-1, s, -1, -1, -1).flatten(1, 2) for x in (k, v))
        o = at.fused_attention(q, k, v, keys, causal=True)
        return o.transpose(1, 2).reshape(B, -1, H, q.shape[3])[:, 1 : N + 1].transpose(1, 2)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """As eager; if causal, of s groups of n + 1 queries, without later keys."""
        if not w.causal:
            return MemoryCompressed.flops(config, w)
        n = w.seq_len // config.compression
        s = config.compression
        conv = 2 * (2 * w.batch * n * s * w.width**2)
        pairs = s * at.fused_pairs(replace(w, seq_len=n + 1))
        return at.Flops(at.projection_flops(w), conv + 4 * pairs * w.width)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        n, _ = lengths(config, w)
        return w.heads * w.tokens + 2 * w.batch * n * w.width + 4 * w.tokens * w.width * w.causal


class Folded(Sdpa):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        blocks = self.blocks(x, mask)  # [B, n, s D]
        k = self.joined(blocks, self.key, self.compress_key, mask, x.shape[1])
        v = self.joined(blocks, self.value, self.compress_value, mask, x.shape[1])
        return self.output(at.merge(self.compressed(self.split(self.query(x)), k, v, mask)))

    def joined(
        self, blocks: Tensor, first: nn.Linear, conv: nn.Linear, mask: Tensor | None, N: int
    ) -> Tensor:
        """C W with its bias, which only real tokens receive: [B, n, s D] to [B, n, D]."""
        C = conv.weight.unflatten(1, (self.config.compression, -1))  # [D, s, D]
        k = F.linear(blocks, (C @ first.weight).flatten(1), conv.bias)
        if first.bias is None:
            return k
        real = torch.ones(1, N, device=k.device, dtype=torch.bool) if mask is None else mask
        counts = self.whole(real).unflatten(1, (-1, self.config.compression)).to(k.dtype)
        return k + counts @ (C @ first.bias).T

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if w.level is at.Level.CORE:
            return at.NO_SEPARATE_CORE
        return None

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """W_Q and W_O; C W twice, both convolutions, q k̃ᵀ and A ṽ; the products of biases.

        Beside padding, each sequence has its own numbers of real tokens, which biases multiply.
        """
        n, _ = lengths(config, w)
        s = config.compression
        D = w.width
        counts = n * (w.batch if w.padding else 1)
        biases = config.bias * 2 * (2 * s * D * D + 2 * counts * s * D)
        weights = 2 * (2 * s * D**3) + biases
        return at.Flops(at.projection_flops(w, 2), Sdpa.flops(config, w).core + weights)


def lengths(config: Config, w: at.Workload) -> tuple[int, int]:
    """n and the number of null keys."""
    if w.causal:
        return w.seq_len // config.compression, 1
    return -(-w.seq_len // config.compression), 0


def parameters(config: Config, w: at.Workload) -> int:
    """Four projections, two convolutions, and the null key and value of the causal form."""
    D = w.width
    conv = 2 * D * (config.compression * D + config.bias)
    return at.projection_parameters(config, w) + conv + 2 * D * w.causal


def default(config: Config, w: at.Workload) -> str:
    """Folded once the products of weights, 4 s D³, are less than the projections they save."""
    if w.level is at.Level.CORE:
        return "sdpa"
    return "folded" if w.tokens >= 2 * config.compression * w.width else "sdpa"


CARD = at.Card(
    forms={"eager": MemoryCompressed, "sdpa": Sdpa, "folded": Folded},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.FIXED_MEMORY,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Generating Wikipedia by Summarizing Long Sequences", "Liu et al.", 2018, "arXiv:1801.10198"
    ),
    cost=at.Cost("O(N²·d/s)", time=2, memory=2),
    symbols={
        "s": ("factor of compression", "compression"),
        "n_c": ("compressed length", "compression"),
    },
    examples=(Config(), Config(compression=4, bias=True)),
    default=default,
    no_decode_reason="left out: a step that completes a block of tokens would cost more than the"
    " others",
)
