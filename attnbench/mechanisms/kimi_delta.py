"""Kimi delta attention (2025): Gated DeltaNet, in which each channel of the keys fades by itself.

    q, k, v = SiLU(conv(x [W_Q, W_K, W_V]))            [B, H, N, d] each
    q̂ = q / (‖q‖ √d),  k̂ = k / ‖k‖
    β = σ(x W_β)                                       [B, H, N]
    α = exp(−e^A softplus(x W_F W_α + b))              [B, H, N, d]
    S_t = (I − β_t k̂_t k̂_tᵀ) diag(α_t) S_{t−1} + β_t k̂_t v_tᵀ   [B, H, d, d]
    o_t = S_tᵀ q̂_t                                     [B, H, N, d]
    y = (RMSNorm(o) ⊙ σ(x W_E W_G)) W_O                [B, N, D]

conv is causal, with one filter of W tokens for each channel. A is learned for each head, b for each
channel; W_F and W_E project to R numbers. RMSNorm is over each head of each token, with learned
scales shared by the heads.

`eager` is this recurrence, token by token; `chunked` computes chunks of C tokens by products and a
triangular system (`attention.kernels.recurrence`): on a GPU, products by channel in float64, which
is slow on those for consumers. S is float32 for narrower inputs. Padding has α = 1 and β = 0. The
projections include conv; the core begins with SiLU(conv) of q, k and v, and with x W_β and
x W_F W_α. ‖x‖² has 10⁻⁶ added, as in the authors' code. Always causal. For decoding, the state is S
and the last W − 1 inputs of conv.

Notation: our R is the head width of the authors' code, our A its logarithm A_log.
Source: arXiv:2510.26692, section 3.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from attnbench import attention as at
from attnbench.mechanisms.gated_delta_net import EPSILON, SMALL, unit


@dataclass(frozen=True, kw_only=True)
class Config(at.OwnHeads):
    """`conv`: W, tokens of a filter; `rank`: R; None: d; `chunk`: C, tokens of a chunk; None: 16,
    or 32 from d = 64 on; `heads`: H; `head_width`: d; None: D / H."""

    conv: int = 4
    rank: int | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "conv", "rank", "chunk")


class KimiDelta(at.Convolved):
    rule = staticmethod(at.delta_rule)
    by_row = True

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        H = workload.heads
        R = rank(config, workload)
        inner = workload.inner_width
        self.A = nn.Parameter(at.decay_rates(H)[0])
        self.b = nn.Parameter(at.decay_rates(inner)[1])
        if workload.level is at.Level.CORE:
            return
        self.mix = nn.Linear(D, 3 * inner, bias=config.bias)  # W_Q, W_K, W_V
        self.taps = nn.Parameter(at.random_taps(config.conv, 3 * inner))
        self.beta = nn.Linear(D, H, bias=config.bias)
        self.forget = nn.Sequential(nn.Linear(D, R, bias=False), nn.Linear(R, inner, bias=False))
        self.gate = nn.Sequential(nn.Linear(D, R, bias=False), nn.Linear(R, inner, bias=False))
        self.norm = nn.RMSNorm(workload.head_width, eps=EPSILON)
        self.output = nn.Linear(inner, D, bias=config.bias)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        """Shapes of q, k, v, x W_β and x W_F W_α."""
        tokens = workload.batch, workload.heads, workload.seq_len
        wide = *tokens, workload.head_width
        return wide, wide, wide, tokens, wide

    def extend(self, x: Tensor, mask: Tensor | None, state: at.State) -> tuple[Tensor, at.State]:
        S, inputs = state
        mixed = self.mix(x)
        if mask is not None:
            mixed = mixed * mask[..., None]
        mixed, inputs = self.convolve(mixed, inputs)
        q, k, v = (self.split(t) for t in mixed.chunk(3, -1))
        beta = self.beta(x).mT
        alpha = self.split(self.forget(x))
        o, S = self.scan(q, k, v, beta, alpha, mask, S)
        y = self.output(at.merge(self.norm(o.to(self.norm.weight.dtype))) * self.gate(x).sigmoid())
        return y, at.RecurrentState(S, inputs)

    def scan(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        beta: Tensor,
        alpha: Tensor,
        mask: Tensor | None,
        S: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """o [B, H, N, d], and S after the tokens."""
        dtype = v.dtype
        q = unit(q, q.shape[-1] ** -0.5)
        k = unit(k)
        v = at.widen(v)
        beta = at.widen(beta).sigmoid()
        b = at.widen(self.b).view(self.heads, 1, -1)
        g = -at.widen(self.A).exp()[:, None, None] * softplus(at.widen(alpha) + b)
        if mask is not None:
            beta = beta * mask[:, None]
            g = g * mask[:, None, :, None]
        o, S = self.rule(S, g, q, k, v, beta, self.chunk(self.config, q.shape[-1]))
        return o.to(dtype), S

    @staticmethod
    def state_shape(config: Config, workload: at.Workload) -> tuple[int, ...]:
        return workload.heads, workload.head_width, workload.head_width

    @classmethod
    def state_elements(cls, config: Config, workload: at.Workload) -> int:
        inputs = workload.batch * (config.conv - 1) * 3 * workload.inner_width
        return super().state_elements(config, workload) + inputs

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """The projections; then those of `delta_flops`. conv is not a matrix product."""
        d = w.head_width
        chunk = cls.chunk(config, w.head_width)
        core = at.delta_flops(w.seq_len, chunk, w.heads, d, d, by_row=True)
        return at.Flops(2 * w.tokens * projections(config, w), w.batch * core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Logs of decays, q and k once more; in training, S after every token."""
        return w.tokens * w.inner_width * (4 + w.trains * w.head_width)


def reference(module: KimiDelta, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    H = module.heads
    D = module.inner_width
    d = D // H
    heads = []
    real = [mask is None or bool(mask[t]) for t in range(len(x))]
    mixed = [module.mix(x[t]) if real[t] else x.new_zeros(3 * D) for t in range(len(x))]
    beta = module.beta(x)
    forget = module.forget(x) + module.b
    for h in range(H):
        S = x.new_zeros(d, d)
        outputs = []
        own = slice(h * d, (h + 1) * d)
        for t in range(len(x)):
            past = [
                mixed[t - j] * module.taps[-1 - j] for j in range(min(module.config.conv, t + 1))
            ]
            y = torch.stack(past).sum(0)
            q, k, v = ((u * u.sigmoid())[own] for u in y.split(D))
            q, k = (u / (u @ u + EPSILON).sqrt() for u in (q, k))
            if real[t]:
                alpha = (-module.A[h].exp() * (1 + forget[t, own].exp()).log()).exp()
                S = alpha[:, None] * S
                S = S + beta[t, h].sigmoid() * torch.outer(k, v - k @ S)
            o = q @ S / d**0.5
            outputs.append(o / (o.square().mean() + EPSILON).sqrt() * module.norm.weight)
        heads.append(torch.stack(outputs))
    return module.output(torch.cat(heads, -1) * module.gate(x).sigmoid())


class Chunked(at.InChunks, KimiDelta):
    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Logs of decays, q and k once more, gradients, and what one part of the tokens takes."""
        kept = w.tokens * w.inner_width * (4 + 5 * w.trains)
        return kept + at.part_elements(w, w.tokens * w.inner_width, 40)


def rank(config: Config, w: at.Workload) -> int:
    """R."""
    return w.head_width if config.rank is None else config.rank


def projections(config: Config, w: at.Workload) -> int:
    """Elements of W_Q, W_K, W_V and W_O, of W_β, and of W_F, W_α, W_E and W_G."""
    R = rank(config, w)
    return w.width * (4 * w.inner_width + w.heads + 2 * R) + 2 * R * w.inner_width


def parameters(config: Config, w: at.Workload) -> int:
    """The projections (with biases) and filters, A and b, and the scales of RMSNorm."""
    inner = w.inner_width
    H = w.heads
    biases = config.bias * (3 * inner + H + w.width)
    return projections(config, w) + biases + (3 * config.conv + 1) * inner + H + w.head_width


CARD = at.Card(
    forms={"eager": KimiDelta, "chunked": Chunked},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.STATE,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "Kimi Linear: An Expressive, Efficient Attention Architecture",
        "Kimi Team",
        2025,
        "arXiv:2510.26692",
    ),
    cost=at.Cost("O(N·d²)", time=1, memory=1),
    examples=(
        Config(chunk=8),
        Config(chunk=5, conv=2, rank=3, bias=True),
        Config(chunk=6, heads=3, head_width=6, bias=True),
        Config(),
    ),
    default="chunked",
    uncompiled=at.UNROLLED,
    launches=at.IN_TURN,
    tolerance=at.Tolerance(float16=0.02, bfloat16=0.1, reason=SMALL),
)
