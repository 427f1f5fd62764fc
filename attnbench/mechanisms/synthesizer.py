"""Synthesizer (Tay et al., 2020): attention weights that are computed without comparing tokens.

    q, k, v = x W_Q, x W_K, x W_V; only `mixture` reads q and k  [B, H, N, d] each
    S_dense  = ReLU(x W_1) W_2                          [B, H, N, N]
    S_random = R, learned or fixed                         [H, N, N]
    S_factorized_random = R_1 R_2ᵀ                         [H, N, N]
    S_factorized_dense[i, j] = A[i, j mod a] C[i, ⌊j / a⌋]   [B, H, N, N]
    o = softmax(S) v                                    [B, H, N, d]

W_2: [d, N], R_1 and R_2: [N, R] are separate for each head and tied to positions, so every variant
needs N in advance. A = x F_A [N, a] and C = x F_B [N, b], with a b ≥ N truncated to N, read the
head's slice of x. `mixture` adds the dot product: softmax(α_1 S + α_2 q kᵀ / √d), α_1 + α_2 = 1.
S itself is not scaled by 1/√d.

`sdpa` is exact where S is a product of row features and column features (dense and factorized
random, mixed or not): a fused kernel then stores no N × N tensor. Random and factorized dense
logits are not such products.

Left out: mixtures of two synthesizers. Reconstructed: the paper gives no sizes for several heads
and no depth for F_A and F_B, which are single projections here. Where the paper tiles both
factors, one is tiled and the other repeated, so that all N columns differ.
Notation: our N is the paper's ℓ, our C its B, our R its k.
Source: arXiv:2005.00743, section 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbench import attention as at

VARIANTS = ("dense", "random", "fixed_random", "factorized_random", "factorized_dense")
FEATURES = ("dense", "factorized_random")  # S is a product of row and column features


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`variant`: dense, random, fixed_random, factorized_random or factorized_dense;
    `mixture`: with the dot product; `rank`: R; `n_max`: largest N; None: the workload's N."""

    variant: str = "dense"
    mixture: bool = False
    rank: int = 8
    n_max: int | None = None

    def __post_init__(self) -> None:
        self.require_one_of("variant", VARIANTS)
        self.require_at_least(1, "rank", "n_max")


def sides(n: int) -> tuple[int, int]:
    """a and b with a b ≥ n, as nearly equal as possible."""
    a = isqrt(n)
    return a, -(-n // a)


class Synthesizer(at.Attention):
    R: Tensor  # [H, N, N]

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        H = workload.heads
        d = workload.head_width
        n = config.n_max or workload.seq_len
        rank = config.rank
        bias = config.bias
        match config.variant:
            case "dense":
                self.hidden = nn.Linear(D, D, bias=bias)
                self.W_2 = nn.Parameter(torch.randn(H, d, n) / d**0.5)
            case "random":
                self.R = nn.Parameter(torch.randn(H, n, n))
            case "fixed_random":
                self.register_buffer("R", torch.randn(H, n, n))
            case "factorized_random":
                self.R_1 = nn.Parameter(torch.randn(H, n, rank) / rank**0.5)
                self.R_2 = nn.Parameter(torch.randn(H, n, rank))
            case "factorized_dense":
                a, b = sides(n)
                self.F_A = nn.Parameter(torch.randn(H, d, a) / d**0.5)
                self.F_B = nn.Parameter(torch.randn(H, d, b) / d**0.5)
        if config.mixture:
            self.query = nn.Linear(D, D, bias=bias)
            self.key = nn.Linear(D, D, bias=bias)
            self.alpha = nn.Parameter(torch.zeros(2))
        self.value = nn.Linear(D, D, bias=bias)
        self.output = nn.Linear(D, D, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        weights = at.masked_softmax(
            self.logits(x), at.allowed_keys(x, x, at.key_mask(mask), self.causal)
        )
        v = self.split(self.value(x))
        if weights.dim() == 3:
            # shared by the whole batch; a broadcast product would copy it for each sequence
            return self.output(at.merge(torch.einsum("hij,bhjd->bhid", weights, v)))
        return self.output(at.merge(weights @ v))

    def logits(self, x: Tensor) -> Tensor:
        """x [B, N, D] to [B, H, N, N], or [H, N, N] if all sequences share them."""
        S = self.synthesized(x)
        if not self.config.mixture:
            return S
        alpha = self.alpha.softmax(0)
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        return alpha[0] * S + (alpha[1] / q.shape[-1] ** 0.5 * q) @ k.mT

    def synthesized(self, x: Tensor) -> Tensor:
        N = x.shape[1]
        match self.config.variant:
            case "dense":
                return self.split(self.hidden(x).relu()) @ self.W_2[..., :N]
            case "factorized_random":
                return self.R_1[:, :N] @ self.R_2[:, :N].mT
            case "factorized_dense":
                A = self.split(x) @ self.F_A
                C = self.split(x) @ self.F_B
                return (C[..., None] * A[..., None, :]).flatten(-2)[..., :N]
        return self.R[:, :N, :N]

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if config.n_max is not None and w.seq_len > config.n_max:
            return f"{w.seq_len} tokens exceed n_max = {config.n_max}, the positions of the logits"
        return None

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """W_V, W_O (W_1, W_Q, W_K); then S, softmax(S) v (q kᵀ).

        A weight of one token that all sequences share is not multiplied as a matrix.
        """
        square = 2 * w.tokens * w.seq_len * w.width
        shared = "dense" not in config.variant and not config.mixture and not w.padding
        core = (1 + config.mixture - (shared and w.seq_len == 1)) * square
        match config.variant:
            case "dense":
                core += square
            case "factorized_random":
                core += 2 * w.heads * w.seq_len**2 * config.rank
            case "factorized_dense":
                core += 2 * w.tokens * w.width * sum(sides(config.n_max or w.seq_len))
        return at.Flops(at.projection_flops(w, projections(config)), core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        shared = "dense" not in config.variant and not config.mixture
        return 2 * (1 if shared else w.batch) * w.heads * w.seq_len**2


def reference(module: Synthesizer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    d = module.width // module.heads
    config = module.config
    v = module.value(x)
    heads = []
    for h in range(module.heads):
        part = slice(h * d, (h + 1) * d)
        rows = []
        for i in range(len(x)):
            keys = [j for j in range(len(x)) if mask is None or mask[j]]
            keys = [j for j in keys if j <= i or not module.causal]
            logits = row(module, x[i], h, i, keys)
            if config.mixture:
                mix = module.alpha.exp() / module.alpha.exp().sum()
                q = module.query(x[i])[part]
                k = module.key(x[keys])[:, part]
                logits = mix[0] * logits + mix[1] * (k @ q) / d**0.5
            rows.append(logits.softmax(0) @ v[keys, part])
        heads.append(torch.stack(rows))
    return module.output(torch.cat(heads, -1))


def row(module: Synthesizer, x: Tensor, h: int, i: int, keys: list[int]) -> Tensor:
    """S[i, j] of head h for each j of `keys`, from token x [D] at position i."""
    d = module.width // module.heads
    part = slice(h * d, (h + 1) * d)
    match module.config.variant:
        case "dense":
            hidden = module.hidden(x)[part]
            return (hidden * (hidden > 0)) @ module.W_2[h][:, keys]
        case "factorized_random":
            return (module.R_1[h, i] * module.R_2[h, keys]).sum(-1)
        case "factorized_dense":
            A = x[part] @ module.F_A[h]
            C = x[part] @ module.F_B[h]
            a = len(A)
            return torch.stack([A[j % a] * C[j // a] for j in keys]) if keys else A[:0]
    return module.R[h, i, keys]


class Sdpa(Synthesizer):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        v = self.split(self.value(x))
        rows, columns = self.features(x)
        width = max(rows.shape[-1], v.shape[-1])
        # the fused kernel needs one width for all three
        rows, columns, values = (F.pad(t, (0, width - t.shape[-1])) for t in (rows, columns, v))
        bias = None if mask is None else at.allowed_keys(x, x, at.key_mask(mask), self.causal)
        causal = self.causal and mask is None
        o = F.scaled_dot_product_attention(
            rows, columns, values, attn_mask=bias, is_causal=causal, scale=1.0
        )[..., : v.shape[-1]]
        if mask is not None:
            seen = mask.cumsum(-1) > 0 if self.causal else mask.any(-1, keepdim=True)
            o = o.masked_fill(~seen[:, None, :, None], 0)
        return self.output(at.merge(o))

    def features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Row and column features [B, H, N, ·], whose product is the logits."""
        B, N = x.shape[:2]
        if self.config.variant == "dense":
            rows = self.split(self.hidden(x).relu())
            columns = self.W_2[..., :N].mT.contiguous().expand(B, -1, -1, -1)
        else:
            rows, columns = (R[:, :N].expand(B, -1, -1, -1) for R in (self.R_1, self.R_2))
        if not self.config.mixture:
            return rows, columns
        alpha = self.alpha.softmax(0)
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        q = alpha[1] / q.shape[-1] ** 0.5 * q
        return torch.cat([alpha[0] * rows, q], -1), torch.cat([columns, k], -1)

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if config.variant not in FEATURES:
            return f"variant={config.variant} is not a product of features; use synthesizer:eager"
        return Synthesizer.needs(config, w)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections; then both products of the fused kernel, at the padded width."""
        features = w.head_width if config.variant == "dense" else config.rank
        width = max(features + config.mixture * w.head_width, w.head_width)
        core = 2 * 2 * w.heads * w.tokens * w.seq_len * width
        return at.Flops(at.projection_flops(w, projections(config)), core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 4 * w.tokens * w.width * (1 + config.mixture) + w.heads * w.tokens


def projections(config: Config) -> int:
    """Number of D × D projections: W_V, W_O, W_1 of the dense variant, W_Q and W_K if mixed."""
    return 2 + (config.variant == "dense") + 2 * config.mixture


def parameters(config: Config, w: at.Workload) -> int:
    """The projections and the parameters tied to positions."""
    D = w.width
    H = w.heads
    n = config.n_max or w.seq_len
    positional = {
        "dense": D * n,
        "random": H * n * n,
        "fixed_random": 0,
        "factorized_random": 2 * H * n * config.rank,
        "factorized_dense": D * sum(sides(n)),
    }[config.variant]
    return projections(config) * D * (D + config.bias) + positional + 2 * config.mixture


def default(config: Config, w: at.Workload) -> str:
    """The fused kernel, if it is exact, unless eight sequences share the same weights."""
    shared = config.variant == "factorized_random" and not config.mixture and not w.padding
    if Sdpa.needs(config, w) or (shared and w.batch >= 8):
        return "eager"
    return "sdpa"


def exempt(config: Config) -> Mapping[at.Exemption, str]:
    """A given `n_max` makes the parameters independent of N."""
    return {} if config.n_max else {at.Exemption.EXTRA_PADDING: "the logits have N columns"}


CARD = at.Card(
    forms={"eager": Synthesizer, "sdpa": Sdpa},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.LOW_RANK_LEARNED,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Synthesizer: Rethinking Self-Attention in Transformer Models",
        "Tay et al.",
        2020,
        "arXiv:2005.00743",
    ),
    cost=at.Cost("O(N²)", time=2, memory=2),
    examples=(
        Config(bias=True, n_max=64),
        Config(variant="random", mixture=True),
        Config(variant="factorized_random", rank=6, mixture=True),
        Config(variant="factorized_dense"),
        Config(variant="fixed_random"),
    ),
    default=default,
    needs=Synthesizer.needs,
    exempt=exempt,
    no_decode_reason="left out: its logits have N columns, so N is fixed in advance",
)
