"""Linformer (Wang et al., 2020): queries attend to R learned mixtures of the N keys and values.

    q, k, v = x W_Q, x W_K, x W_V                      [B, H, N, d] each
    k′ = E k,  v′ = F v                                [B, H, R, d]
    A  = softmax(q k′ᵀ / √d)                           [B, H, N, R]
    o  = A v′                                          [B, H, N, d]

E and F: [R, N] are learned. `sharing` follows the paper's section 4: with `none` every head has
its own pair, with `headwise` all heads share one pair, with `key_value` they share one E = F. Both
are tied to positions, so there is no causal form; padding is zeroed before them, since it cannot
be masked afterwards.

`folded` is exact: E (x W_K + 1 bᵀ) = (E x) W_K + (E 1) bᵀ, so W_K and W_V apply to R rows, not N.
`absorbed` also folds W_Q and W_O and stores neither q nor o; less work while R is at most d:
    G_h = k′_h W_Q,h / √d,  M_h = v′_h W_O,h           [B, H, R, D]
    y = softmax(x Gᵀ) M                                [B, N, H·R] by [B, H·R, D]

Left out: one projection for all layers, which concerns the model, not the layer.
Notation: our R is the paper's k.
Source: arXiv:2006.04768, equation (7) and section 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from attnbench import attention as at

SHARING = ("none", "headwise", "key_value")


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`rank`: R; `sharing`: none, headwise or key_value; `n_max`: columns of E; None: N."""

    rank: int = 256
    sharing: str = "headwise"
    n_max: int | None = None

    def __post_init__(self) -> None:
        self.require_one_of("sharing", SHARING)
        self.require_at_least(1, "rank", "n_max")

    @property
    def reductions(self) -> int:
        """2 for E and F, or 1 where both are the same."""
        return 1 if self.sharing == "key_value" else 2


class Linformer(at.QKVAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        N = config.n_max or workload.seq_len
        heads = (workload.heads,) if config.sharing == "none" else ()
        shape = (*heads, config.rank, N)
        self.E = nn.Parameter(torch.randn(shape) / N**0.5)
        self.F = nn.Parameter(torch.randn(shape) / N**0.5) if config.reductions == 2 else None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None:
            k, v = (x * mask[:, None, :, None] for x in (k, v))
        k = self.shorten(self.E, k)
        v = self.shorten(self.E if self.F is None else self.F, v)
        return at.biased_attention(q, k, v, None)

    def shorten(self, E: Tensor, x: Tensor) -> Tensor:
        """[B, H, N, d] to [B, H, R, d]."""
        E = E[..., : x.shape[2]]
        if self.config.sharing == "none":
            return torch.einsum("hrn,bhnd->bhrd", E, x)
        return self.split(E.expand(len(x), -1, -1).bmm(at.merge(x)))

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if config.n_max is not None and w.seq_len > config.n_max:
            return f"{w.seq_len} tokens exceed n_max = {config.n_max}, the columns of E"
        return None

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """E k, F v, q k′ᵀ and A v′; of one token with sharing=none, E k and F v are no products."""
        products = 2 if config.sharing == "none" and w.seq_len == 1 else 4
        return at.Flops(at.projection_flops(w), products * 2 * w.tokens * config.rank * w.width)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 2 * w.tokens * w.heads * config.rank + 2 * w.batch * config.rank * w.width


def reference(module: Linformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    d = module.width // module.heads
    real = [j for j in range(N) if mask is None or mask[j]]
    heads = []
    for h in range(module.heads):
        part = slice(h * d, (h + 1) * d)
        E = module.E[h] if module.E.dim() == 3 else module.E
        F = E if module.F is None else module.F[h] if module.F.dim() == 3 else module.F
        q, k, v = (f(x)[:, part] for f in (module.query, module.key, module.value))
        k = sum((torch.outer(E[:, j], k[j]) for j in real), torch.zeros(len(E), d).to(x))
        v = sum((torch.outer(F[:, j], v[j]) for j in real), torch.zeros(len(F), d).to(x))
        heads.append(torch.stack([v.T @ (k @ q_i / d**0.5).softmax(0) for q_i in q]))
    return module.output(torch.cat(heads, -1))


class Folded(Linformer):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        k, v = self.short(x, mask)
        return self.output(at.merge(at.biased_attention(self.split(self.query(x)), k, v, None)))

    def short(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """k′ and v′ [B, H, R, d] directly from x [B, N, D]."""
        R = self.config.rank
        N = x.shape[1]
        E = self.E if self.F is None else torch.cat([self.E, self.F])  # [R or 2R, N]
        E = E[:, :N]
        if mask is not None:
            x = x * mask[..., None]
        rows = E.expand(len(x), -1, -1).bmm(x)  # [B, R or 2R, D]
        k = linear(rows[:, :R], self.key.weight)
        v = linear(rows[:, -R:], self.value.weight)
        if self.config.bias:
            real = E.sum(-1)[None] if mask is None else mask.to(E.dtype) @ E.mT  # E 1
            k = k + real[:, :R, None] * self.key.bias
            v = v + real[:, -R:, None] * self.value.bias
        return self.split(k), self.split(v)

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if w.level is at.Level.CORE:
            return at.NO_SEPARATE_CORE
        if config.sharing == "none":
            return "with sharing=none folding saves nothing; use linformer:eager"
        return None

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """W_Q and W_O on all tokens, W_K and W_V on R rows; E x, F x, q k′ᵀ and A v′; E 1, F 1."""
        projections = at.projection_flops(w, 2) + 2 * 2 * w.batch * config.rank * w.width**2
        core = (config.reductions + 2) * 2 * w.tokens * config.rank * w.width
        return at.Flops(projections, core + real_flops(config, w))


class Absorbed(Folded):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        k, v = self.short(x, mask)
        k = k / k.shape[-1] ** 0.5
        heads = (self.heads, -1, self.width)  # the rows of a projection: [H, d, D]
        G = (k @ self.query.weight.view(heads)).flatten(1, 2).mT  # [B, D, H·R]
        M = (v @ self.output.weight.T.reshape(heads)).flatten(1, 2)  # [B, H·R, D]
        if not self.config.bias:
            return self.weights(x.bmm(G)).bmm(M)
        bias = (k * self.query.bias.view(self.heads, 1, -1)).sum(-1).flatten(1)  # [B, H·R]
        weights = self.weights(torch.baddbmm(bias[:, None], x, G))
        return torch.baddbmm(self.output.bias, weights, M)

    def weights(self, logits: Tensor) -> Tensor:
        """Softmax within each head, [B, N, H·R]."""
        return logits.unflatten(-1, (self.heads, -1)).softmax(-1).flatten(2)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """W_K and W_V on R rows; E x, F x, x Gᵀ, A M, and G and M themselves; E 1, F 1."""
        R = config.rank
        D = w.width
        wide = 2 * 2 * w.tokens * D * w.heads * R
        rows = 2 * 2 * w.batch * R * D**2
        core = config.reductions * 2 * w.tokens * R * D + wide + rows
        return at.Flops(rows, core + real_flops(config, w))

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Logits, weights, and G and M."""
        return 2 * w.heads * config.rank * (w.tokens + w.batch * w.width)


def real_flops(config: Config, w: at.Workload) -> int:
    """FLOPs of E 1 and F 1 of real tokens, which biases are multiplied by, beside padding."""
    return 2 * config.reductions * w.tokens * config.rank if config.bias and w.padding else 0


def parameters(config: Config, w: at.Workload) -> int:
    """The four projections and R N for each of E and F (of each head with sharing=none)."""
    heads = w.heads if config.sharing == "none" else 1
    return at.projection_parameters(config, w) + config.reductions * heads * config.rank * (
        config.n_max or w.seq_len
    )


def default(config: Config, w: at.Workload) -> str:
    """Folded while R is below N; absorbed where R ≤ d and the sequence is long."""
    if Folded.needs(config, w) or config.rank >= w.seq_len:
        return "eager"
    return "absorbed" if config.rank <= w.head_width and w.seq_len >= 2 * w.width else "folded"


def exempt(config: Config) -> Mapping[at.Exemption, str]:
    """A given `n_max` makes E and F independent of N."""
    return {} if config.n_max else {at.Exemption.EXTRA_PADDING: "E and F have N columns"}


CARD = at.Card(
    forms={"eager": Linformer, "folded": Folded, "absorbed": Absorbed},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.LOW_RANK,
    causality=at.Causality.NEVER,
    paper=at.Paper(
        "Linformer: Self-Attention with Linear Complexity", "Wang et al.", 2020, "arXiv:2006.04768"
    ),
    cost=at.Cost("O(N·d/ε²)", time=1, memory=1),
    symbols={"ε": ("error of the projection, which sets the rank", "rank")},
    examples=(
        Config(rank=5, bias=True),
        Config(rank=7, sharing="key_value", n_max=64),
        Config(rank=3, sharing="none", bias=True),
    ),
    default=default,
    needs=Linformer.needs,
    exempt=exempt,
    no_decode_reason="its projected keys are sums over the whole sequence",
)
