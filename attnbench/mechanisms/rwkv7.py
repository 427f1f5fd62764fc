"""RWKV-7 (Peng et al., 2025): a matrix remembers; tokens remove at one key and add at another.

    x_m = x + (x' − x) ⊙ μ_m, x' the token before, m ∈ {r, k, v, w, a, g}   [B, N, D] each
    r, k, v = x_r W_R, x_k W_K, x_v W_V                [B, H, N, d] each
    w = exp(−e^{−1/2} σ(tanh(x_w W_1) W_2 + b_w))      [B, H, N, d]
    a = σ(x_a A_1 A_2 + b_a)                           [B, H, N, d]
    κ = (k ⊙ ξ) / ‖k ⊙ ξ‖,  k̃ = k ⊙ (1 + (a − 1) ⊙ α)  [B, H, N, d]
    S_t = (diag(w_t) − (a_t ⊙ κ_t) κ_tᵀ) S_{t−1} + k̃_t v_tᵀ   [B, H, d, d]
    o_t = S_tᵀ r_t                                     [B, H, N, d]
    y = ((GroupNorm(o) + (r · (ρ ⊙ k̃)) v) ⊙ σ(x_g G_1) G_2) W_O   [B, N, D]

μ, ξ, α, ρ and the b are learned for each channel; W_1 and A_1 project to R numbers, G_1 to T.
GroupNorm normalises each head of each token, then scales and shifts each channel.

`eager` is this recurrence, token by token; `chunked` computes chunks of C tokens by products and a
triangular system (`attention.kernels.recurrence`). S is float32 for narrower inputs. Padding has
w = 1, a = 0 and v = 0. The core begins with r, k, v, and what is added to b_w and b_a. Always
causal. For decoding, the state is S and the last x.

Left out: values mixed with those of the first layer, of which this is one.
Notation: our R and T are the ranks of the paper's loramlp, our κ its κ̂, our S its state transposed.
Source: arXiv:2503.14456, section 4.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from attnbench import attention as at

EPSILON = 64e-5  # of GroupNorm, as in the authors' code
SMALLEST = 1e-24  # squared norm of κ
SMALL = "GroupNorm magnifies the rounding of r and k where a token's o is small"


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`rank`: R; None: 2.5 √D, and `gate_rank`: T; None: 5 √D, rounded to multiples of 32, at least
    32; `chunk`: C, tokens of a chunk, at most 64; None: 16, or 32 from d = 64 on."""

    rank: int | None = None
    gate_rank: int | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        self.require_at_least(1, "rank", "gate_rank", "chunk")
        if (self.chunk or 1) > 64:
            raise ValueError("the decays of more than 64 tokens may not fit float32; lower chunk")


class Rwkv7(at.Recurrent):
    rule = staticmethod(at.dplr_rule)
    by_row = True
    least_decay = -math.exp(-0.5)  # the least log of a decay; others have any

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        R, T = ranks(config, workload)
        self.b_w = nn.Parameter(torch.linspace(-5.5, 0.5, D))
        self.b_a = nn.Parameter(torch.zeros(D))
        self.xi = nn.Parameter(torch.full((D,), 0.7))
        self.alpha = nn.Parameter(torch.ones(D))
        if workload.level is at.Level.CORE:
            return
        self.mu = nn.Parameter(torch.rand(6, D))
        self.r, self.k, self.v = (nn.Linear(D, D, bias=config.bias) for _ in "rkv")
        self.w, self.a = low_rank(D, R, nn.Tanh()), low_rank(D, R)
        self.g = low_rank(D, T, nn.Sigmoid())
        self.rho = nn.Parameter(torch.zeros(D))
        self.scales = nn.Parameter(torch.ones(D))
        self.shifts = nn.Parameter(torch.zeros(D))
        self.output = nn.Linear(D, D, bias=config.bias)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        """Shapes of r, k, v, tanh(x_w W_1) W_2 and x_a A_1 A_2."""
        w = workload
        return ((w.batch, w.heads, w.seq_len, w.head_width),) * 5

    def start(self, batch: int, capacity: int) -> at.RecurrentState:
        like = self.output.weight
        return at.RecurrentState(self.zero_state(batch, like), like.new_zeros(batch, 1, self.width))

    def extend(self, x: Tensor, mask: Tensor | None, state: at.State) -> tuple[Tensor, at.State]:
        S, last = state
        if mask is not None:
            x = x * mask[..., None]
        change = torch.cat([last, x[:, :-1]], 1) - x
        projected = self.r, self.k, self.v, self.w, self.a, self.g
        r, k, v, w, a, g = (
            m(torch.addcmul(x, change, mu)) for m, mu in zip(projected, self.mu, strict=True)
        )
        r, k, v, w, a = (self.split(t) for t in (r, k, v, w, a))
        o, S = self.scan(r, k, v, w, a, mask, S)
        o = layer_norm(o.transpose(1, 2), o.shape[-1:], eps=EPSILON).flatten(2)
        own = (r * self.by_head(self.rho) * self.added(k, self.rates(a))).sum(-1, keepdim=True) * v
        y = torch.addcmul(self.shifts, o, self.scales) + at.merge(own)
        return self.output(y * g), at.RecurrentState(S, x[:, -1:].clone())

    def scan(
        self,
        r: Tensor,
        k: Tensor,
        v: Tensor,
        w: Tensor,
        a: Tensor,
        mask: Tensor | None,
        S: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """o [B, H, N, d], and S after the tokens."""
        dtype = v.dtype
        r, k, v, w, a = (at.widen(t) for t in (r, k, v, w, a))
        g = -math.exp(-0.5) * (w + self.by_head(at.widen(self.b_w))).sigmoid()
        a = self.rates(a)
        kappa = at.UnitNorm.apply(k * self.by_head(at.widen(self.xi)), SMALLEST)
        k = self.added(k, a)
        if mask is not None:
            g, a, v = (t * mask[:, None, :, None] for t in (g, a, v))
        # the rule reads S after its decay, and κ reads it before
        read = kappa * (-g).exp()
        chunk = self.chunk(self.config, r.shape[-1])
        o, S = self.rule(S, g, r, k, v, a * kappa, read, chunk)
        return o.to(dtype), S

    def by_head(self, channels: Tensor) -> Tensor:
        """[D] to [H, 1, d]."""
        return channels.view(self.heads, 1, -1)

    def rates(self, a: Tensor) -> Tensor:
        """a of x_a A_1 A_2."""
        return (a + self.by_head(self.b_a).to(a.dtype)).sigmoid()

    def added(self, k: Tensor, a: Tensor) -> Tensor:
        """k̃ = k ⊙ (1 − α + a ⊙ α), for which training keeps less."""
        alpha = self.by_head(self.alpha).to(a.dtype)
        return k * torch.addcmul(1 - alpha, a, alpha)

    @staticmethod
    def state_shape(config: Config, workload: at.Workload) -> tuple[int, ...]:
        return workload.heads, workload.head_width, workload.head_width

    @classmethod
    def state_elements(cls, config: Config, workload: at.Workload) -> int:
        return super().state_elements(config, workload) + workload.batch * workload.width

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """The projections; then those of `dplr_flops`."""
        d = w.head_width
        chunk = cls.chunk(config, w.head_width)
        core = at.dplr_flops(w.seq_len, chunk, w.heads, d, d)
        return at.Flops(2 * w.tokens * projections(config, w), w.batch * core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Logs of decays, a, κ twice and k̃; in training, S after every token."""
        return w.tokens * w.width * (6 + w.trains * w.head_width)


def reference(module: Rwkv7, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    H = module.heads
    D = module.width
    d = D // H
    heads = []
    real = [mask is None or bool(mask[t]) for t in range(len(x))]
    x = torch.stack([x[t] if real[t] else torch.zeros_like(x[t]) for t in range(len(x))])
    before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
    x_r, x_k, x_v, x_w, x_a, x_g = (x + (before - x) * mu for mu in module.mu)
    r = module.r(x_r)
    k = module.k(x_k)
    v = module.v(x_v)
    gate = module.g(x_g)
    w = (-math.exp(-0.5) * (module.w(x_w) + module.b_w).sigmoid()).exp()
    a = (module.a(x_a) + module.b_a).sigmoid()
    added = k * (1 + (a - 1) * module.alpha)
    for h in range(H):
        S = x.new_zeros(d, d)
        outputs = []
        own = slice(h * d, (h + 1) * d)
        for t in range(len(x)):
            kappa = k[t, own] * module.xi[own]
            kappa = kappa / (kappa @ kappa).sqrt().clamp(min=1e-12)
            if real[t]:
                removed = torch.outer(a[t, own] * kappa, kappa @ S)
                S = w[t, own][:, None] * S - removed + torch.outer(added[t, own], v[t, own])
            o = r[t, own] @ S
            centred = o - o.mean()
            o = centred / (centred.square().mean() + EPSILON).sqrt()
            o = o * module.scales[own] + module.shifts[own]
            outputs.append(o + r[t, own] @ (module.rho * added[t])[own] * v[t, own])
        heads.append(torch.stack(outputs))
    return module.output(torch.cat(heads, -1) * gate)


class Chunked(at.InChunks, Rwkv7):
    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Logs of decays, a, κ twice and k̃, gradients, and what one part of the tokens takes."""
        kept = w.tokens * w.width * (6 + 7 * w.trains)
        return kept + at.part_elements(w, w.tokens * w.width, 60)


def low_rank(width: int, rank: int, *between: nn.Module) -> nn.Sequential:
    """To a rank and back."""
    down = nn.Linear(width, rank, bias=False)
    up = nn.Linear(rank, width, bias=False)
    return nn.Sequential(down, *between, up)


def ranks(config: Config, w: at.Workload) -> tuple[int, int]:
    """R and T."""
    R, T = (max(32, 32 * round(factor * w.width**0.5 / 32)) for factor in (2.5, 5))
    return config.rank or R, config.gate_rank or T


def projections(config: Config, w: at.Workload) -> int:
    """Elements of W_R, W_K, W_V and W_O, and of W, A and G, two of each."""
    R, T = ranks(config, w)
    return w.width * (4 * w.width + 4 * R + 2 * T)


def parameters(config: Config, w: at.Workload) -> int:
    """The projections (with biases), and 13 numbers for each channel."""
    return projections(config, w) + (4 * config.bias + 13) * w.width


CARD = at.Card(
    forms={"eager": Rwkv7, "chunked": Chunked},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.STATE,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        'RWKV-7 "Goose" with Expressive Dynamic State Evolution',
        "Peng et al.",
        2025,
        "arXiv:2503.14456",
    ),
    cost=at.Cost("O(N·d²)", time=1, memory=1),
    examples=(Config(chunk=8), Config(chunk=5, rank=3, gate_rank=2, bias=True), Config()),
    default="chunked",
    uncompiled=at.UNROLLED,
    launches=at.IN_TURN,
    tolerance=at.Tolerance(float16=0.01, bfloat16=0.1, reason=SMALL),
)
