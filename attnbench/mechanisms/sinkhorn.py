"""Sparse Sinkhorn attention (Tay et al., 2020): each block also sees one that is sorted to it.

    q, k, v = x W_Q, x W_K, x W_V                          [B, H, N, d] each
    X′_i = sum of the tokens of block i                    [B, C, D]
    R = ReLU(X′ W_P) W_B                                [B, H, C, C]
    P = normalise exp((R + ε) / τ) by rows, then columns, T times   [B, H, C, C]
    k′_i = Σ_j P_ij k_j,  v′_i = Σ_j P_ij v_j       [B, H, C, M, d], by position in the block
    o = softmax(q [k′; k]ᵀ / √d) [v′; v], within each block   [B, H, N, d]

C blocks of M tokens. W_B: [d, C], separate for each head, is tied to positions. ε is Gumbel noise,
drawn in training. `sort_cut` n > 0 is SortCut: every query attends only to the first n sorted
blocks.

Causal: X′_i sums the tokens before block i and its first one; P has no entry j ≥ i; the paper's
column sums run over all rows, but here over the rows so far, since a later row would reveal the
future to an earlier one.

A block of padding alone is not sorted: it is neither a row nor a column of P, so the result does
not depend on the number of such blocks. A position in a sorted block counts in proportion to the
real tokens mixed into it: log(Σ_j P_ij m_j / Σ_j P_ij) is added to its logit.

The normalisation is recomputed in the backward pass. `sdpa` is exact: one fused kernel for all
blocks.

Notation: our C is the paper's N_B, our M its block length, our T its N_k.
Source: arXiv:2002.11296, section 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`block`: M; `iterations`: T; `temperature`: τ; `gumbel`: noise in training; `sort_cut`: n;
    0: none; `n_max`: largest N; None: the workload's N."""

    block: int = 64
    iterations: int = 5
    temperature: float = 0.75
    gumbel: bool = True
    sort_cut: int = 0
    n_max: int | None = None

    def __post_init__(self) -> None:
        self.require_at_least(1, "block", "n_max")
        self.require_at_least(0, "iterations", "sort_cut")
        if self.temperature <= 0:
            raise ValueError(f"temperature is {self.temperature}; it must be above 0")


def shape(config: Config, N: int) -> tuple[int, int]:
    """M, at most N, and C."""
    M = min(config.block, N)
    return M, -(-N // M)


class Sinkhorn(at.Attention):
    kernel: at.Kernel = staticmethod(at.biased_attention)

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        H = workload.heads
        d = workload.head_width
        bias = config.bias
        self.query = nn.Linear(D, D, bias=bias)
        self.key = nn.Linear(D, D, bias=bias)
        self.value = nn.Linear(D, D, bias=bias)
        self.output = nn.Linear(D, D, bias=bias)
        self.W_P = nn.Linear(D, D, bias=bias)
        self.W_B = nn.Parameter(torch.randn(H, d, positions(config, workload)) / d**0.5)
        self.noise: Tensor | None = None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        N = x.shape[1]
        M, C = shape(self.config, N)
        if C * M > N and mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if mask is not None:
            x = F.pad(x * mask[..., None], (0, 0, 0, C * M - N))
            mask = F.pad(mask, (0, C * M - N)).unflatten(1, (C, M))
        P = self.permutation(x.unflatten(1, (C, M)), mask)  # [B, H, C, C]
        q, k, v = (
            self.split(linear(x)).unflatten(2, (C, M))
            for linear in (self.query, self.key, self.value)
        )
        if mask is not None:
            k, v = (t * mask[:, None, :, :, None] for t in (k, v))
        o = self.mixed(q, k, v, P, mask).flatten(2, 3)[:, :, :N]
        return self.output(at.merge(o))

    def permutation(self, blocks: Tensor, mask: Tensor | None) -> Tensor:
        """[B, C, M, D] to P [B, H, C, C], in float32 or better."""
        C = blocks.shape[1]
        sums = blocks.sum(2)
        if self.causal:
            sums = sums.cumsum(1) - sums + blocks[:, :, 0]
        R = self.split(self.W_P(sums).relu()) @ self.W_B[..., :C]
        R = at.widen(R)
        self.noise = None
        if self.training and self.config.gumbel:
            self.noise = -torch.empty_like(R).exponential_().log()
            R = R + self.noise
        allowed = None
        if mask is not None:
            real = mask.any(2)[:, None]  # [B, 1, C]
            allowed = real[..., None] & real[:, :, None]  # [B, 1, C, C]
        if self.causal:
            past = torch.ones(C, C, dtype=torch.bool, device=R.device).tril(-1)
            allowed = past if allowed is None else past & allowed
        # autograd would keep a C × C tensor for every step
        P = at.recomputed(self.balance, R / self.config.temperature, allowed)
        # the second derivative of `logcumsumexp` of masked logits is not a number
        return (at.Once.apply(P) if self.causal else P).to(blocks.dtype)

    def balance(self, R: Tensor, allowed: Tensor | None) -> Tensor:
        """Sinkhorn's normalisation of exp(R), in logarithms."""
        lowest = torch.finfo(R.dtype).min
        if allowed is not None:
            R = R.masked_fill(~allowed, lowest)
        for _ in range(self.config.iterations):
            for dim in (-1, -2):
                running = self.causal and dim == -2
                R = R - (R.logcumsumexp(-2) if running else R.logsumexp(dim, keepdim=True))
                if allowed is not None:
                    R = R.masked_fill(~allowed, lowest)
        return R.exp()

    def mixed(self, q: Tensor, k: Tensor, v: Tensor, P: Tensor, mask: Tensor | None) -> Tensor:
        """q, k, v [B, H, C, M, d] and P [B, H, C, C] to [B, H, C, M, d]."""
        cut = min(self.config.sort_cut, k.shape[2])
        P = P[:, :, : cut or None]
        keys, values = (torch.cat(self.sorted(t, P), -2) for t in (k, v))
        if cut:
            q = q.flatten(2, 3)[:, :, None]  # [B, H, 1, N, d]
        bias, seen = self.bias(q, P, mask)
        o = self.kernel(q, keys, values, bias)
        return o if seen is None else o * seen

    def sorted(self, x: Tensor, P: Tensor) -> tuple[Tensor, ...]:
        """x [B, H, C, M, d] to its sorted blocks and itself, or to the first sorted blocks only."""
        mixed = (P @ x.flatten(3)).unflatten(3, x.shape[3:])
        if self.config.sort_cut:
            return (mixed.flatten(2, 3)[:, :, None],)  # [B, H, 1, n M, d]
        return mixed, x

    def bias(
        self, q: Tensor, P: Tensor, mask: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """What to add to the logits of a block, and which queries have any key."""
        C = P.shape[2]
        M = q.shape[3]
        if mask is None and not self.causal:
            return None, None
        lowest = torch.finfo(q.dtype).min
        if mask is None:
            # the first block has no sorted keys
            sorted_half = q.new_zeros(C, 1, M)
            sorted_half[:1] = lowest
            block_half = torch.full((M, M), lowest, dtype=q.dtype, device=q.device).triu(1)
            return torch.cat([sorted_half.expand(C, M, M), block_half.expand(C, M, M)], -1), None
        P = at.widen(P)  # in float16 a row without blocks would be divided by 0
        real = P @ mask[:, None].to(P.dtype) / P.sum(-1, keepdim=True).clamp(min=1e-30)
        real = real.to(q.dtype)
        sorted_half = real.where(real > 0, 1).log().masked_fill(real <= 0, lowest)[:, :, :, None]
        if self.config.sort_cut:
            bias = sorted_half.flatten(2)[:, :, None, None]  # [B, H, 1, 1, n M]
            return bias, (real > 0).flatten(1).any(-1)[:, None, None, None, None]
        allowed = mask[:, None, :, None]  # [B, 1, C, 1, M]
        if self.causal:
            allowed = allowed & at.causal_mask(M, M, q.device)
        block_half = at.additive(allowed, q.dtype)
        size = (*P.shape[:3], block_half.shape[-2], M)
        bias = torch.cat([sorted_half.expand(size), block_half.expand(size)], -1)
        return bias, (bias > lowest).any(-1, keepdim=True)

    def draws(self, index: int) -> at.Draws:
        return {} if self.noise is None else {"noise": self.noise[index]}

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if config.sort_cut and w.causal:
            return "SortCut has no causal form, as every query reads the same sorted blocks"
        if config.n_max is not None and w.seq_len > config.n_max:
            return f"{w.seq_len} tokens exceed n_max = {config.n_max}, the positions of W_B"
        return None

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; W_P, W_B, P k, P v, q kᵀ and A v; beside padding P m."""
        M, C = shape(config, w.seq_len)
        rows = min(config.sort_cut, C) or C
        keys = rows * M if config.sort_cut else 2 * M
        n = C * M
        sort = 2 * w.batch * C * w.width * (w.width + C)
        mixing = 2 * 2 * w.batch * rows * n * w.width
        if n > w.seq_len or w.padding:
            mixing += 2 * w.batch * w.heads * rows * n
        # W_O applies to the tokens alone, the others also to the padding of the last block
        projections = at.projection_flops(w, 4) + 3 * 2 * w.batch * w.width**2 * (n - w.seq_len)
        return at.Flops(projections, sort + mixing + 2 * 2 * w.batch * n * keys * w.width)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        M, C = shape(config, w.seq_len)
        keys = min(config.sort_cut, C) * M or 2 * M
        balance = w.batch * w.heads * C * C * (1 + 2 * config.iterations)
        return 2 * w.heads * w.tokens * keys + 4 * w.tokens * w.width + balance


def reference(module: Sinkhorn, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    config = module.config
    N = len(x)
    d = module.width // module.heads
    M = min(config.block, N)
    real = [i for i in range(N) if mask is None or mask[i]]
    blocks = [[i for i in real if i // M == c] for c in range(-(-N // M))]
    C = len(blocks)
    zero = torch.zeros_like(x[0])
    if module.causal:
        pooled = [sum((x[i] for i in real if i <= c * M), zero) for c in range(C)]
    else:
        pooled = [sum((x[i] for i in block), zero) for block in blocks]
    hidden = module.W_P(torch.stack(pooled)).clamp(min=0)
    q = module.query(x)
    k = module.key(x)
    v = module.value(x)
    heads = []
    for h in range(module.heads):
        part = slice(h * d, (h + 1) * d)
        R = hidden[:, part] @ module.W_B[h, :, :C]
        R = (R + draws["noise"][h] if draws else R) / config.temperature
        allowed = torch.tensor(
            [
                [bool(a and b) and (j < i or not module.causal) for j, b in enumerate(blocks)]
                for i, a in enumerate(blocks)
            ]
        )
        P = balanced(R, allowed, config.iterations, module.causal)
        # of each block: key, value and share of real tokens at each position
        mixed: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in range(C)]
        for c, position in product(range(C), range(M)):
            members = [j for j in range(C) if j * M + position in blocks[j]]
            tokens = [j * M + position for j in members]
            weights = P[c, members]
            if weights.sum() > 0:
                share = weights.sum() / P[c].sum()
                mixed[c].append((weights @ k[tokens, part], weights @ v[tokens, part], share))
        rows = []
        for i in range(N):
            sources = range(min(config.sort_cut, C)) if config.sort_cut else [i // M]
            sorted_keys = [entry for c in sources for entry in mixed[c]]
            logits = [q[i, part] @ key / d**0.5 + share.log() for key, _, share in sorted_keys]
            values = [value for _, value, _ in sorted_keys]
            for j in () if config.sort_cut else blocks[i // M]:
                if j <= i or not module.causal:
                    logits.append(q[i, part] @ k[j, part] / d**0.5)
                    values.append(v[j, part])
            o = torch.stack(logits).softmax(0) @ torch.stack(values) if logits else zero[part]
            rows.append(o)
        heads.append(torch.stack(rows))
    return module.output(torch.cat(heads, -1))


def balanced(R: Tensor, allowed: Tensor, iterations: int, causal: bool) -> Tensor:
    P = R.exp() * allowed
    for _ in range(iterations):
        rows = P.sum(1, keepdim=True)
        P = P / rows.where(rows > 0, 1)
        columns = P.cumsum(0) if causal else P.sum(0, keepdim=True)
        P = P / columns.where(columns > 0, 1)
    return P


class Sdpa(Sinkhorn):
    kernel = staticmethod(at.fused_biased_attention)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        _, C = shape(config, w.seq_len)
        balance = w.batch * w.heads * C * C * (1 + 2 * config.iterations)
        return 5 * w.tokens * w.width + balance


def positions(config: Config, w: at.Workload) -> int:
    """Number of block positions that W_B has."""
    return shape(config, config.n_max or w.seq_len)[1]


def parameters(config: Config, w: at.Workload) -> int:
    """W_Q, W_K, W_V, W_O, W_P and W_B."""
    return 5 * w.width * (w.width + config.bias) + w.width * positions(config, w)


def exempt(config: Config) -> Mapping[at.Exemption, str]:
    """A given `n_max` makes W_B independent of N."""
    return (
        {} if config.n_max else {at.Exemption.EXTRA_PADDING: "W_B has a column for each block of N"}
    )


CARD = at.Card(
    forms={"eager": Sinkhorn, "sdpa": Sdpa},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.LEARNED,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper("Sparse Sinkhorn Attention", "Tay et al.", 2020, "arXiv:2002.11296"),
    cost=at.Cost("O(M²)", time=2, memory=2),
    symbols={"M": ("tokens of a block", "block"), "b": ("tokens of a block", "block")},
    examples=(
        Config(block=4, bias=True, n_max=64),
        Config(block=6, iterations=2, temperature=0.5),
        Config(block=5, sort_cut=2, gumbel=False),
    ),
    default="sdpa",
    needs=Sinkhorn.needs,
    exempt=exempt,
    no_decode_reason="left out: its sorting matrix has a column for each block of N, so N is fixed"
    " in advance",
)
