"""Gated linear attention (GLA, Yang et al., 2023): a matrix remembers; its rows fade as learned.

    q, k = x W_Q, x W_K                                [B, H, N, d / s]
    v = x W_V                                          [B, H, N, d]
    α = σ(x W_F W_α + b)^(1/τ)                         [B, H, N, d / s]
    S_t = diag(α_t) S_{t−1} + k_t v_tᵀ                 [B, H, d / s, d]
    o_t = S_tᵀ q_t / √(d / s)                          [B, H, N, d]
    y = (RMSNorm(o) ⊙ SiLU(x W_G)) W_O                 [B, N, D]

W_F projects to R numbers. RMSNorm is over each head of each token, with learned scales shared by
the heads.

`eager` is this recurrence, token by token; `chunked` computes chunks of C tokens by products
(`attention.kernels.recurrence`), by channel on a GPU in float64, which is slow on those for
consumers. S is float32 for narrower inputs. Padding has α = 1 and adds nothing to S. The core
begins with q, k, v and x W_F W_α. Always causal. For decoding, the state is S.

Source: arXiv:2312.06635, equation (3) and section 4.4.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, silu

from attnbench import attention as at

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`narrow`: s, width of values over width of keys; `rank`: R; `root`: τ; `chunk`: C, tokens of
    a chunk; None: 16, or 32 from d / s = 64 on."""

    narrow: int = 2
    rank: int = 16
    root: float = 16.0
    chunk: int | None = None

    def __post_init__(self) -> None:
        self.require_at_least(1, "narrow", "rank", "root", "chunk")


class GatedLinear(at.Recurrent):
    rule = staticmethod(at.decay_rule)
    by_row = True

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        D = workload.width
        narrow = workload.width // config.narrow
        self.b = nn.Parameter(torch.zeros(narrow))
        if workload.level is at.Level.CORE:
            return
        self.query = nn.Linear(D, narrow, bias=config.bias)
        self.key = nn.Linear(D, narrow, bias=config.bias)
        self.value = nn.Linear(D, D, bias=config.bias)
        self.forget = nn.Sequential(
            nn.Linear(D, config.rank, bias=False), nn.Linear(config.rank, narrow, bias=False)
        )
        self.gate = nn.Linear(D, D, bias=config.bias)
        self.norm = nn.RMSNorm(workload.head_width, eps=EPSILON)
        self.output = nn.Linear(D, D, bias=config.bias)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        """Shapes of q, k, v and x W_F W_α."""
        w = workload
        tokens = w.batch, w.heads, w.seq_len
        keys = *tokens, w.head_width // config.narrow
        return keys, keys, (*tokens, w.head_width), keys

    def extend(self, x: Tensor, mask: Tensor | None, state: at.State) -> tuple[Tensor, at.State]:
        q, k, v, f = (self.split(m(x)) for m in (self.query, self.key, self.value, self.forget))
        o, S = self.scan(q, k, v, f, mask, *state)
        return self.output(
            at.merge(self.norm(o.to(self.norm.weight.dtype))) * silu(self.gate(x))
        ), (S,)

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, f: Tensor, mask: Tensor | None, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        """o [B, H, N, d], and S after the tokens."""
        dtype = v.dtype
        b = at.widen(self.b).view(self.heads, 1, -1)
        q = at.widen(q) * q.shape[-1] ** -0.5
        k = at.widen(k)
        v = at.widen(v)
        g = logsigmoid(at.widen(f) + b) / self.config.root
        if mask is not None:
            k, g = (x * mask[:, None, :, None] for x in (k, g))
        o, S = self.rule(S, g, q, k, v, self.chunk(self.config, q.shape[-1]))
        return o.to(dtype), S

    @staticmethod
    def state_shape(config: Config, workload: at.Workload) -> tuple[int, ...]:
        d = workload.head_width
        return workload.heads, d // config.narrow, d

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """The projections; then those of `row_decay_flops`."""
        d = w.head_width
        dk = w.head_width // config.narrow
        core = at.row_decay_flops(w.seq_len, cls.chunk(config, dk), w.heads, dk, d)
        return at.Flops(2 * w.tokens * projections(config, w), w.batch * core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Logs of decays, q and k once more; in training, S after every token."""
        dk = w.head_width // config.narrow
        return w.tokens * w.width * (2 + w.trains * dk)


def reference(module: GatedLinear, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    d = module.width // module.heads
    dk = d // module.config.narrow
    heads = []
    rates = (module.forget(x) + module.b).sigmoid() ** (1 / module.config.root)
    for h in range(module.heads):
        own = slice(h * dk, (h + 1) * dk)
        q = module.query(x)[:, own]
        k = module.key(x)[:, own]
        alpha = rates[:, own]
        v = module.value(x)[:, h * d : (h + 1) * d]
        S = x.new_zeros(dk, d)
        outputs = []
        for t in range(len(x)):
            if mask is None or mask[t]:
                S = alpha[t][:, None] * S + torch.outer(k[t], v[t])
            o = q[t] @ S / dk**0.5
            outputs.append(o / (o.square().mean() + EPSILON).sqrt() * module.norm.weight)
        heads.append(torch.stack(outputs))
    gate = module.gate(x)
    return module.output(torch.cat(heads, -1) * gate * gate.sigmoid())


class Chunked(at.InChunks, GatedLinear):
    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Logs of decays, q and k once more, gradients, and what one part of the tokens takes."""
        kept = w.tokens * w.width * (2 + 3 * w.trains)
        return kept + at.part_elements(w, w.tokens * w.width // config.narrow, 24)


def projections(config: Config, w: at.Workload) -> int:
    """Elements of W_Q and W_K, of W_V, W_G and W_O, and of W_F and W_α."""
    narrow = w.width // config.narrow
    return w.width * (2 * narrow + 3 * w.width + config.rank) + config.rank * narrow


def parameters(config: Config, w: at.Workload) -> int:
    """The projections (with biases), b, and the scales of RMSNorm."""
    D = w.width
    narrow = w.width // config.narrow
    biases = config.bias * (3 * D + 2 * narrow)
    return projections(config, w) + biases + narrow + w.head_width


def needs(config: Config, w: at.Workload) -> str | None:
    if w.head_width % config.narrow:
        return f"heads of width {w.head_width} cannot have keys {config.narrow} times as narrow"
    return None


CARD = at.Card(
    forms={"eager": GatedLinear, "chunked": Chunked},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.STATE,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "Gated Linear Attention Transformers with Hardware-Efficient Training",
        "Yang et al.",
        2023,
        "arXiv:2312.06635",
    ),
    cost=at.Cost("O(N·d²)", time=1, memory=1),
    examples=(
        Config(chunk=8),
        Config(chunk=5, narrow=4, rank=3, root=1.0, bias=True),
        Config(),
    ),
    default="chunked",
    needs=needs,
    uncompiled=at.UNROLLED,
    launches=at.IN_TURN,
)
