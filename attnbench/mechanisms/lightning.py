"""Lightning attention (Qin et al., 2024): a matrix sums up past tokens, and fades at a fixed rate.

    λ_h = exp(−2^(−8 (h + 1) / H) (1 − l + 10⁻⁵))
    q, k, v = SiLU(x W_Q), SiLU(x W_K), SiLU(x W_V)    [B, H, N, d] each
    S_t = λ_h S_{t−1} + k_t v_tᵀ                       [B, H, d, d]
    o_t = S_tᵀ q_t                                     [B, H, N, d]
    y = (RMSNorm(o) ⊙ σ(x W_G)) W_O                    [B, N, D]

RMSNorm is over all heads of a token together, with learned scales. Deeper layers decay more
slowly: l counts them from 0, the first, to 1, the last.

`eager` is this recurrence, token by token; `chunked` computes chunks of C tokens by products
(`attention.kernels.recurrence`). S is float32 for narrower inputs. Padding adds nothing to S. The
core begins with q, k and v after SiLU. Always causal. For decoding, the state is S.

Notation: heads count from 0; our l is l / (L − 1) of MiniMax-01 (arXiv:2501.08313).
Source: arXiv:2401.04658, section 3.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from attnbench import attention as at

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Config(at.OwnHeads):
    """`depth`: l, from 0 to 1; `chunk`: C, tokens of a chunk; None: 32, or 64 from d = 64 on;
    `heads`: H; `head_width`: d; None: D / H."""

    depth: float = 0.0
    chunk: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(1, "chunk")
        if not 0 <= self.depth <= 1:
            raise ValueError(f"depth is {self.depth}; it must be from 0 to 1")


class Lightning(at.Recurrent, at.QKVAttention):
    rule = staticmethod(at.decay_rule)

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        if workload.level is not at.Level.CORE:
            self.gate = nn.Linear(workload.width, workload.inner_width, bias=config.bias)
            self.norm = nn.RMSNorm(workload.inner_width, eps=EPSILON)

    def extend(self, x: Tensor, mask: Tensor | None, state: at.State) -> tuple[Tensor, at.State]:
        q, k, v = (silu(t) for t in self.projected(x))
        o, S = self.scan(q, k, v, mask, *state)
        return self.output(
            self.norm(at.merge(o).to(self.norm.weight.dtype)) * self.gate(x).sigmoid()
        ), (S,)

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        """o [B, H, N, d], and S after the tokens."""
        dtype = v.dtype
        if mask is not None:
            v = v * mask[:, None, :, None]
        q = at.widen(q)
        k = at.widen(k)
        v = at.widen(v)
        h = torch.arange(1, self.heads + 1, device=q.device, dtype=q.dtype)
        g = -(2 ** (-8 * h / self.heads)) * (1 - self.config.depth + 1e-5)
        chunk = self.chunk(self.config, q.shape[-1])
        o, S = self.rule(S, g[None, :, None], q, k, v, chunk)
        return o.to(dtype), S

    @staticmethod
    def state_shape(config: Config, workload: at.Workload) -> tuple[int, ...]:
        return workload.heads, workload.head_width, 1, workload.head_width

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """The five projections; then those of `decay_flops`."""
        d = w.head_width
        core = at.decay_flops(w.seq_len, cls.chunk(config, d), w.heads, w.heads, d, d)
        return at.Flops(10 * w.tokens * w.width * w.inner_width, w.batch * core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """In training, S after every token."""
        return w.tokens * w.inner_width * (2 + w.trains * w.head_width)


def reference(module: Lightning, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    d = module.head_width
    heads = []
    for h in range(module.heads):
        maps = module.query, module.key, module.value
        projected = [m(x)[:, h * d : (h + 1) * d] for m in maps]
        q, k, v = (u * u.sigmoid() for u in projected)
        slope = 2.0 ** (-8 * (h + 1) / module.heads) * (1 - module.config.depth + 1e-5)
        S = x.new_zeros(d, d)
        outputs = []
        for t in range(len(x)):
            S = x.new_tensor(-slope).exp() * S
            if mask is None or mask[t]:
                S = S + torch.outer(k[t], v[t])
            outputs.append(q[t] @ S)
        heads.append(torch.stack(outputs))
    o = torch.cat(heads, -1)
    o = o / (o.square().mean(-1, keepdim=True) + EPSILON).sqrt() * module.norm.weight
    return module.output(o * module.gate(x).sigmoid())


class Chunked(at.InChunks, Lightning):
    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Chunks of q, k, v and o, scores before and after decay, and S before every chunk."""
        C = Chunked.chunk(config, w.head_width)
        states = -(-w.seq_len // C) * w.batch * w.inner_width * w.head_width
        return (
            2 * w.heads * w.tokens * min(C, w.seq_len) + 6 * w.tokens * w.inner_width + 2 * states
        )


def parameters(config: Config, w: at.Workload) -> int:
    """Five projections, D × H d (with biases), and the scales of RMSNorm."""
    return 5 * w.width * w.inner_width + config.bias * (4 * w.inner_width + w.width) + w.inner_width


CARD = at.Card(
    forms={"eager": Lightning, "chunked": Chunked},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.STATE,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "Lightning Attention-2: A Free Lunch for Handling Unlimited Sequence Lengths in Large"
        " Language Models",
        "Qin et al.",
        2024,
        "arXiv:2401.04658",
    ),
    cost=at.Cost("O(N·d²)", time=1, memory=1),
    examples=(
        Config(chunk=8),
        Config(chunk=5, depth=0.5, bias=True),
        Config(chunk=6, heads=3, head_width=6, bias=True),
        Config(),
    ),
    default="chunked",
    uncompiled=at.UNROLLED,
    launches=at.IN_TURN,
)
