"""Gated DeltaNet (Yang et al., 2024): a matrix remembers; a token fades it and rewrites one key.

    q, k = SiLU(conv(x [W_Q, W_K]))                    [B, H, N, d] each
    v = SiLU(conv(x W_V))                              [B, V, N, e D / V]
    q̂ = q / (‖q‖ √d),  k̂ = k / ‖k‖
    β = σ(x W_β),  α = exp(−e^A softplus(x W_α + b))   [B, V, N]
    S_t = α_t (I − β_t k̂_t k̂_tᵀ) S_{t−1} + β_t k̂_t v_tᵀ   [B, V, d, e D / V]
    o_t = S_tᵀ q̂_t                                     [B, V, N, e D / V]
    y = (RMSNorm(o) ⊙ SiLU(x W_G)) W_O                 [B, N, D]

conv is causal, with one filter of W tokens for each channel. V / H consecutive heads of values
share q and k, two in Qwen3-Next. A and b are learned for each head of values; RMSNorm is over
each head of each token, with learned scales shared by the heads. `gate=False` is DeltaNet
(arXiv:2406.06484): α = 1 and no W_G. `negative` doubles β, so that the state may change its sign
(arXiv:2411.12537).

`eager` is this recurrence, token by token; `chunked` computes chunks of C tokens by products and a
triangular system (`attention.kernels.recurrence`). S is float32 for narrower inputs. Padding has
α = 1 and β = 0. The projections include conv; the core begins with SiLU(conv) of q, k and v, and
with x W_β and x W_α. ‖x‖² has 10⁻⁶ added, as in the authors' code. Always causal. For decoding, the
state is S and the last W − 1 inputs of conv.

Source: arXiv:2412.06464, equation (10) and section 3.4.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from attnbench import attention as at

EPSILON = 1e-6
SMALL = "RMSNorm magnifies the rounding of q and k where a token's o is small"


@dataclass(frozen=True, kw_only=True)
class Config(at.OwnHeads):
    """`gate`: False: DeltaNet; `expand`: e, width of values over keys; None: 2, in DeltaNet
    1; `value_heads`: V, a multiple of H; None: H; `conv`: W, tokens of a filter; `negative`: β up
    to 2; `chunk`: C, tokens of a chunk; None: 32, or 64 from d = 64 on; `heads`: H;
    `head_width`: d; None: D / H."""

    gate: bool = True
    expand: int | None = None
    value_heads: int | None = None
    conv: int = 4
    negative: bool = False
    chunk: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "expand", "value_heads", "conv", "chunk")

    @property
    def wider(self) -> int:
        """e."""
        return (2 if self.gate else 1) if self.expand is None else self.expand


class GatedDeltaNet(at.Convolved):
    rule = staticmethod(at.delta_rule)

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        inner = workload.inner_width
        e = config.wider
        V, wide = values(config, workload)
        self.value_heads = V
        if config.gate:
            self.A, self.b = (nn.Parameter(rate) for rate in at.decay_rates(V))
        if workload.level is at.Level.CORE:
            return
        mixed = (2 + e) * inner
        self.mix = nn.Linear(D, mixed, bias=config.bias)  # W_Q, W_K, W_V
        self.taps = nn.Parameter(at.random_taps(config.conv, mixed))
        self.rates = nn.Linear(D, (1 + config.gate) * V, bias=config.bias)  # W_β, W_α
        if config.gate:
            self.gate = nn.Linear(D, e * inner, bias=config.bias)
        self.norm = nn.RMSNorm(wide, eps=EPSILON)
        self.output = nn.Linear(e * inner, D, bias=config.bias)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        """Shapes of q, k, v, and x W_β above x W_α."""
        w = workload
        V, wide = values(config, workload)
        keys = (w.batch, w.heads, w.seq_len, w.head_width)
        rates = (1 + config.gate) * V
        return keys, keys, (w.batch, V, w.seq_len, wide), (w.batch, rates, w.seq_len)

    def extend(self, x: Tensor, mask: Tensor | None, state: at.State) -> tuple[Tensor, at.State]:
        S, inputs = state
        mixed = self.mix(x)
        if mask is not None:
            mixed = mixed * mask[..., None]
        mixed, inputs = self.convolve(mixed, inputs)
        keys = self.inner_width
        q, k, v = mixed.split([keys, keys, mixed.shape[-1] - 2 * keys], -1)
        v = v.unflatten(-1, (self.value_heads, -1)).transpose(1, 2)
        o, S = self.scan(self.split(q), self.split(k), v, self.rates(x).mT, mask, S)
        o = at.merge(self.norm(o.to(self.norm.weight.dtype)))
        o = o * silu(self.gate(x)) if self.config.gate else o
        return self.output(o), at.RecurrentState(S, inputs)

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, rates: Tensor, mask: Tensor | None, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        """o [B, V, N, e D / V], and S after the tokens."""
        dtype = v.dtype
        q = unit(q, q.shape[-1] ** -0.5)
        k = unit(k)
        v = at.widen(v)
        if (shared := self.value_heads // self.heads) > 1:
            q = q.repeat_interleave(shared, 1)
            k = k.repeat_interleave(shared, 1)
        beta, g = self.step_sizes(at.widen(rates))
        if mask is not None:
            beta = beta * mask[:, None]
            g = g * mask[:, None]
        o, S = self.rule(S, g, q, k, v, beta, self.chunk(self.config, q.shape[-1]))
        return o.to(dtype), S

    def step_sizes(self, rates: Tensor) -> tuple[Tensor, Tensor]:
        """β [B, V, N], and log α of the same shape, or [1, 1, 1] without decay."""
        beta = rates[:, : self.value_heads].sigmoid() * (1 + self.config.negative)
        if not self.config.gate:
            return beta, rates.new_zeros(1, 1, 1)
        speed = softplus(rates[:, self.value_heads :] + at.widen(self.b)[:, None])
        return beta, -at.widen(self.A).exp()[:, None] * speed

    @staticmethod
    def state_shape(config: Config, workload: at.Workload) -> tuple[int, ...]:
        V, wide = values(config, workload)
        return V, workload.head_width, wide

    @classmethod
    def state_elements(cls, config: Config, workload: at.Workload) -> int:
        inputs = workload.batch * (config.conv - 1) * (2 + config.wider) * workload.inner_width
        return super().state_elements(config, workload) + inputs

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """The projections; then those of `delta_flops`. conv is not a matrix product."""
        d = w.head_width
        V, wide = values(config, w)
        core = at.delta_flops(w.seq_len, cls.chunk(config, d), V, d, wide)
        return at.Flops(2 * w.tokens * projections(config, w), w.batch * core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """q, k and v twice; in training, S after every token."""
        keys = values(config, w)[0] * w.head_width
        wide = config.wider * w.inner_width
        return w.tokens * (4 * keys + 2 * wide + w.trains * wide * w.head_width)


def reference(module: GatedDeltaNet, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    c = module.config
    H = module.heads
    D = module.inner_width
    d = D // H
    e = c.wider
    V = module.value_heads
    wide = e * D // V
    real = [mask is None or bool(mask[t]) for t in range(len(x))]
    mixed = [module.mix(x[t]) if real[t] else x.new_zeros((2 + e) * D) for t in range(len(x))]
    rates = module.rates(x)
    heads = []
    for h in range(V):
        S = x.new_zeros(d, wide)
        outputs = []
        for t in range(len(x)):
            past = [mixed[t - j] * module.taps[-1 - j] for j in range(min(c.conv, t + 1))]
            y = torch.stack(past).sum(0)
            y = y * y.sigmoid()
            q, k = (y[start + h * H // V * d :][:d] for start in (0, D))
            v = y[2 * D + h * wide :][:wide]
            q, k = (u / (u @ u + EPSILON).sqrt() for u in (q, k))
            if real[t]:
                if c.gate:
                    speed = (1 + (rates[t, V + h] + module.b[h]).exp()).log()
                    S = (-module.A[h].exp() * speed).exp() * S
                beta = rates[t, h].sigmoid() * (2 if c.negative else 1)
                S = S + beta * torch.outer(k, v - k @ S)
            o = q @ S / d**0.5
            outputs.append(o / (o.square().mean() + EPSILON).sqrt() * module.norm.weight)
        heads.append(torch.stack(outputs))
    o = torch.cat(heads, -1)
    if not c.gate:
        return module.output(o)
    gate = module.gate(x)
    return module.output(o * gate * gate.sigmoid())


class Chunked(at.InChunks, GatedDeltaNet):
    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Chunks of q, k, v and o, four tensors of C × C, and S before every chunk."""
        d = w.head_width
        C = Chunked.chunk(config, w.head_width)
        V, wide = values(config, w)
        states = -(-w.seq_len // C) * w.batch * V * d * (d + 2 * wide)
        squares = 4 * V * w.tokens * min(C, w.seq_len)
        return squares + V * (8 * d + 4 * wide) * w.tokens + states


def unit(x: Tensor, scale: float = 1.0) -> Tensor:
    """scale · x / ‖x‖ over the last dimension."""
    return at.UnitNorm.apply(at.widen(x), EPSILON, scale)


def values(config: Config, w: at.Workload) -> tuple[int, int]:
    """V, and the width of a head of values."""
    V = config.value_heads or w.heads
    return V, config.wider * w.inner_width // V


def projections(config: Config, w: at.Workload) -> int:
    """Elements of W_Q, W_K, W_V, W_β and W_O, and if `gate` of W_α and W_G."""
    e = config.wider
    rates = (1 + config.gate) * values(config, w)[0]
    return ((2 + e + (config.gate + 1) * e) * w.inner_width + rates) * w.width


def parameters(config: Config, w: at.Workload) -> int:
    """The projections (with biases) and filters, A and b, and the scales of RMSNorm."""
    inner = w.inner_width
    e = config.wider
    gate = int(config.gate)
    V, wide = values(config, w)
    biases = (2 + e) * inner + (1 + gate) * V + gate * e * inner + w.width
    filters = config.conv * (2 + e) * inner
    scales = gate * 2 * V + wide
    return projections(config, w) + config.bias * biases + filters + scales


def needs(config: Config, w: at.Workload) -> str | None:
    V, wide = values(config, w)
    if V % w.heads:
        return f"{V} heads of values cannot share {w.heads} heads of keys equally"
    if V * wide != config.wider * w.inner_width:
        return f"values of width {config.wider * w.inner_width} cannot form {V} heads"
    return None


CARD = at.Card(
    forms={"eager": GatedDeltaNet, "chunked": Chunked},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.STATE,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "Gated Delta Networks: Improving Mamba2 with Delta Rule",
        "Yang et al.",
        2024,
        "arXiv:2412.06464",
    ),
    cost=at.Cost("O(N·d²)", time=1, memory=1),
    examples=(
        Config(chunk=8),
        Config(gate=False, negative=True, chunk=5, conv=2),
        Config(expand=1, bias=True, conv=1, chunk=6),
        Config(value_heads=8, chunk=7),
        Config(heads=2, head_width=5, value_heads=6, expand=3, chunk=6, bias=True),
        Config(),
    ),
    default="chunked",
    needs=needs,
    uncompiled=at.UNROLLED,
    launches=at.IN_TURN,
    tolerance=at.Tolerance(float16=0.01, reason=SMALL),
)
