"""Mamba-2 (Dao and Gu, 2024): a matrix remembers; each token says how much of it each head keeps.

    z, u, Δ = x [W_z, W_u, W_Δ]                        [B, N, e D], [B, N, e D + 2 K s], [B, N, H]
    x′, b, c = SiLU(conv(u))                           [B, H, N, p], [B, K, N, s], [B, K, N, s]
    Δ′ = softplus(Δ + β),  α = exp(−Δ′ e^A)            [B, H, N]
    S_t = α_t S_{t−1} + Δ′_t b_t x′_tᵀ                 [B, H, s, p]
    o_t = S_tᵀ c_t + δ x′_t                            [B, H, N, p]
    y = RMSNorm(merge(o) ⊙ SiLU(z)) W_O                [B, N, D]

conv is causal, with a bias and one filter of W tokens for each channel. K groups of heads share b
and c; A, β and δ are learned for each head. RMSNorm is over all heads of a group together, with
learned scales. The layer has its own heads, H = e D / p; those of the workload have no effect.

`eager` is the recurrence, token by token; `chunked` computes chunks of C tokens by products
(`attention.kernels.recurrence`) and never repeats b and c. S is float32 for narrower inputs.
Padding has Δ′ = 0. The projections include conv; the core begins with x′, b, c and Δ.

Always causal. For decoding, the state is S and the last W − 1 inputs of conv.
Notation: our S, s, p, c, b, x′, δ, β are the paper's h, N, P, C, B, X, D and the bias of Δ; our e
its expansion, our K its number of groups.
Source: arXiv:2405.21060, section 7 and algorithm 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu, softplus

from attnbench import attention as at

EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`expand`: e, inner width over D; `head_width`: p; None: 64, at most e D; `state`: s;
    `groups`: K; `conv`: W, tokens of a filter; `chunk`: C, tokens of a chunk; `heads`: H,
    which makes e D = H p; None: e D / p.

    Biases are those of the linear projections.
    """

    expand: int = 2
    head_width: int | None = None
    state: int = 128
    groups: int = 1
    conv: int = 4
    chunk: int = 64
    heads: int | None = None

    def __post_init__(self) -> None:
        options = ("expand", "head_width", "state", "groups", "conv", "chunk", "heads")
        self.require_at_least(1, *options)


class Mamba2(at.Convolved):
    rule = staticmethod(at.decay_rule)

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        inner, self.heads, self.head_width = inner_heads(config, workload)
        self.A, self.beta = (nn.Parameter(rate) for rate in at.decay_rates(self.heads))
        self.skip = nn.Parameter(torch.ones(self.heads))  # δ
        if workload.level is at.Level.CORE:
            return
        mixed = channels(config, workload)
        self.sizes = inner, mixed, self.heads  # of z, u and Δ
        self.mix = nn.Linear(D, sum(self.sizes), bias=config.bias)
        self.taps = nn.Parameter(at.random_taps(config.conv, mixed))
        self.taps_bias = nn.Parameter(torch.zeros(mixed))
        self.scales = nn.Parameter(torch.ones(inner))
        self.output = nn.Linear(inner, D, bias=config.bias)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        """Shapes of x′, b, c and Δ."""
        B = workload.batch
        N = workload.seq_len
        shared = B, config.groups, N, config.state
        _, H, p = inner_heads(config, workload)
        return (B, H, N, p), shared, shared, (B, H, N)

    def extend(self, x: Tensor, mask: Tensor | None, state: at.State) -> tuple[Tensor, at.State]:
        S, inputs = state
        z, u, delta = self.mix(x).split(self.sizes, -1)
        if mask is not None:
            u = u * mask[..., None]
        u, inputs = self.convolve(u, inputs, self.taps_bias)
        shared = self.config.groups * self.config.state
        v, k, q = u.split([self.sizes[0], shared, shared], -1)
        k, q = (t.unflatten(-1, (self.config.groups, -1)).transpose(1, 2) for t in (k, q))
        o, S = self.scan(self.split(v), k, q, delta.mT, mask, S)
        o = (at.merge(o) * silu(z)).unflatten(-1, (self.config.groups, -1))
        o = rms_norm(o, o.shape[-1:], eps=EPSILON).flatten(2)
        return self.output(o * self.scales), at.RecurrentState(S, inputs)

    def scan(
        self, v: Tensor, k: Tensor, q: Tensor, delta: Tensor, mask: Tensor | None, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        """o [B, H, N, p], and S after the tokens."""
        dtype = v.dtype
        v = at.widen(v)
        k = at.widen(k)
        q = at.widen(q)
        delta = softplus(at.widen(delta) + at.widen(self.beta)[:, None])
        if mask is not None:
            delta = delta * mask[:, None]
            v = v * mask[:, None, :, None]
        g = -at.widen(self.A).exp()[:, None] * delta
        chunk = self.chunk(self.config, self.config.state)
        o, S = self.rule(S, g, q, k, delta[..., None] * v, chunk)
        return torch.addcmul(o, at.widen(self.skip)[:, None, None], v).to(dtype), S

    @staticmethod
    def state_shape(config: Config, workload: at.Workload) -> tuple[int, ...]:
        _, H, p = inner_heads(config, workload)
        return config.groups, config.state, H // config.groups, p

    @classmethod
    def state_elements(cls, config: Config, workload: at.Workload) -> int:
        inputs = workload.batch * (config.conv - 1) * channels(config, workload)
        return super().state_elements(config, workload) + inputs

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """The projections; then those of `decay_flops`. conv is not a matrix product."""
        K = config.groups
        s = config.state
        _, H, p = inner_heads(config, w)
        core = at.decay_flops(w.seq_len, cls.chunk(config, s), K, H, s, p)
        return at.Flops(2 * w.tokens * projections(config, w), w.batch * core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """x′, b, c and o twice; in training, S after every token."""
        inner, _, _ = inner_heads(config, w)
        kept = inner * config.state if w.trains else 0
        return w.tokens * (2 * channels(config, w) + 2 * inner + kept)


def reference(module: Mamba2, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    c = module.config
    H = module.heads
    p = module.head_width
    s = c.state
    group = H // c.groups
    inner, mixed, _ = module.sizes
    projected = module.mix(x)
    z = projected[:, :inner]
    u = projected[:, inner : inner + mixed]
    delta = projected[:, -H:]
    real = [mask is None or bool(mask[t]) for t in range(len(x))]
    heads = []
    for h in range(H):
        S = x.new_zeros(s, p)
        outputs = []
        for t in range(len(x)):
            y: Tensor = module.taps_bias
            for j in range(min(c.conv, t + 1)):
                if real[t - j]:
                    y = y + u[t - j] * module.taps[-1 - j]
            y = y * y.sigmoid()
            v = y[h * p : (h + 1) * p]
            first = inner + h // group * s
            k = y[first : first + s]
            q = y[first + c.groups * s :][:s]
            if real[t]:
                step = (1 + (delta[t, h] + module.beta[h]).exp()).log()
                S = (-step * module.A[h].exp()).exp() * S + step * torch.outer(k, v)
            outputs.append(q @ S + module.skip[h] * v)
        heads.append(torch.stack(outputs))
    o = torch.cat(heads, -1) * z * z.sigmoid()
    o = o.view(len(x), c.groups, -1)
    o = o / (o.square().mean(-1, keepdim=True) + EPSILON).sqrt()
    return module.output(o.flatten(1) * module.scales)


class Chunked(at.InChunks, Mamba2):
    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Chunks of x′, b, c and o, three tensors of C × C, and S before every chunk."""
        inner, H, _ = inner_heads(config, w)
        states = -(-w.seq_len // config.chunk) * w.batch * inner * config.state
        squares = 3 * H * w.tokens * min(config.chunk, w.seq_len)
        return squares + 4 * w.tokens * (channels(config, w) + inner) + 2 * states


def inner_heads(config: Config, w: at.Workload) -> tuple[int, int, int]:
    """e D, H and p."""
    inner = config.expand * w.width
    if config.heads is not None:
        p = config.head_width or 64
        return config.heads * p, config.heads, p
    p = min(64, inner) if config.head_width is None else config.head_width
    return inner, inner // p, p


def channels(config: Config, w: at.Workload) -> int:
    """Channels of u: e D + 2 K s."""
    return inner_heads(config, w)[0] + 2 * config.groups * config.state


def projections(config: Config, w: at.Workload) -> int:
    """Elements of W_z, W_u, W_Δ and W_O."""
    inner, H, _ = inner_heads(config, w)
    return w.width * (inner + channels(config, w) + H + inner)


def parameters(config: Config, w: at.Workload) -> int:
    """The projections (with biases), conv with its bias, A, β and δ, and the scales of RMSNorm."""
    inner, H, _ = inner_heads(config, w)
    mixed = channels(config, w)
    biases = config.bias * (inner + mixed + H + w.width)
    return projections(config, w) + biases + (config.conv + 1) * mixed + 3 * H + inner


def needs(config: Config, w: at.Workload) -> str | None:
    inner, H, p = inner_heads(config, w)
    if inner % p:
        return f"the inner width {inner} is not divisible by heads of width {p}"
    if H % config.groups:
        return f"{H} heads cannot form {config.groups} equal groups"
    return None


CARD = at.Card(
    forms={"eager": Mamba2, "chunked": Chunked},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.STATE,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured"
        " State Space Duality",
        "Dao and Gu",
        2024,
        "arXiv:2405.21060",
    ),
    cost=at.Cost("O(N·s·D)", time=1, memory=1),
    symbols={"s": ("size of the state", "state")},
    examples=(
        Config(head_width=8, state=6, chunk=8),
        Config(head_width=4, state=5, groups=2, conv=2, chunk=7, bias=True),
        Config(state=3, expand=1, conv=1),
        Config(heads=6, head_width=5, state=4, groups=2, chunk=6),
    ),
    default="chunked",
    uncompiled=at.UNROLLED,
    launches=at.IN_TURN,
    needs=needs,
)
