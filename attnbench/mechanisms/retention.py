"""Retention (RetNet, Sun et al., 2023): a matrix sums up past tokens, and fades at a fixed rate.

    q, k = x W_Q, x W_K                                [B, H, N, d] each
    v = x W_V                                          [B, H, N, e d]
    γ_h = 1 − 2^(−5−h)
    S_n = γ_h S_{n−1} + k_nᵀ v_n / √d                  [B, H, d, e d]
    o_n = q_n S_n                                      [B, H, N, e d]
    y = (SiLU(x W_G) ⊙ GroupNorm(o)) W_O               [B, N, D]

Values and gates are e times as wide as D. GroupNorm normalises each head of each token, without
learned scales. `eager` is this recurrence, token by token; `chunked` computes chunks of C tokens by
products (`attention.kernels.recurrence`). S is float32 for narrower inputs. Padding adds nothing to
S.

Left out: the rotation of q and k by positions (xPos), and the factors that keep scores small,
which GroupNorm cancels up to its ε. Always causal. For decoding, the state is S.
Notation: our e is the factor α of the authors' code; heads count from 0.
Source: arXiv:2307.08621, equations (6) to (8).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, silu

from attnbench import attention as at

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`expand`: e, width of values over width of keys; `chunk`: C, tokens of a chunk; None: 32, or
    64 from d = 64 on."""

    expand: int = 2
    chunk: int | None = None

    def __post_init__(self) -> None:
        self.require_at_least(1, "expand", "chunk")


class Retention(at.Recurrent, at.QKVAttention):
    rule = staticmethod(at.decay_rule)

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        if workload.level is not at.Level.CORE:
            D = workload.width
            self.gate = nn.Linear(D, config.expand * D, bias=config.bias)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        w = workload
        shape = w.batch, w.heads, w.seq_len, w.head_width
        return shape, shape, (*shape[:3], config.expand * w.head_width)

    def extend(self, x: Tensor, mask: Tensor | None, state: at.State) -> tuple[Tensor, at.State]:
        q, k, v = self.projected(x)
        o, S = self.scan(q, k, v, mask, *state)
        o = layer_norm(o.transpose(1, 2), o.shape[-1:], eps=EPSILON).flatten(2)
        return self.output(silu(self.gate(x)) * o), (S,)

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        """o [B, H, N, e d], and S after the tokens."""
        dtype = v.dtype
        scale = q.shape[-1] ** -0.5
        if mask is not None:
            v = v * mask[:, None, :, None]
        q = at.widen(q)
        k = at.widen(k) * scale
        v = at.widen(v)
        o, S = self.rule(S, decays(q), q, k, v, self.chunk(self.config, q.shape[-1]))
        return o.to(dtype), S

    @staticmethod
    def state_shape(config: Config, workload: at.Workload) -> tuple[int, ...]:
        d = workload.head_width
        return workload.heads, d, 1, config.expand * d

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """W_Q, W_K, and W_V, W_G and W_O of e D² each; then those of `decay_flops`."""
        d = w.head_width
        e = config.expand
        projections = 2 * w.tokens * w.width**2 * (2 + 3 * e)
        core = at.decay_flops(w.seq_len, cls.chunk(config, d), w.heads, w.heads, d, e * d)
        return at.Flops(projections, w.batch * core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """In training, S after every token."""
        states = w.head_width if w.trains else 0
        return config.expand * w.tokens * w.width * (2 + states)


def reference(module: Retention, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    d = module.width // module.heads
    e = module.config.expand
    heads = []
    for h in range(module.heads):
        q, k = (m(x)[:, h * d : (h + 1) * d] for m in (module.query, module.key))
        v = module.value(x)[:, h * e * d : (h + 1) * e * d]
        S = x.new_zeros(d, e * d)
        outputs = []
        for n in range(len(x)):
            S = (1 - 2.0 ** (-5 - h)) * S
            if mask is None or mask[n]:
                S = S + torch.outer(k[n], v[n]) / d**0.5
            o = q[n] @ S
            centred = o - o.mean()
            outputs.append(centred / (centred.square().mean() + EPSILON).sqrt())
        heads.append(torch.stack(outputs))
    gate = module.gate(x)
    return module.output(gate * gate.sigmoid() * torch.cat(heads, -1))


class Chunked(at.InChunks, Retention):
    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Chunks of q, k, v and o, scores before and after decay, and S before every chunk."""
        e = config.expand
        d = w.head_width
        C = Chunked.chunk(config, w.head_width)
        states = -(-w.seq_len // C) * w.batch * w.width * d
        scores = w.heads * w.tokens * min(C, w.seq_len)
        return 2 * scores + (2 + 4 * e) * w.tokens * w.width + 2 * e * states


def decays(like: Tensor) -> Tensor:
    """log γ of each head, [1, H, 1]."""
    h = torch.arange(like.shape[1], device=like.device, dtype=torch.float64)
    return torch.log1p(-(2.0 ** (-5 - h))).to(like.dtype)[None, :, None]


def parameters(config: Config, w: at.Workload) -> int:
    """W_Q and W_K of D², W_V, W_G and W_O of e D² (with biases)."""
    D = w.width
    e = config.expand
    return D * D * (2 + 3 * e) + config.bias * D * (3 + 2 * e)


CARD = at.Card(
    forms={"eager": Retention, "chunked": Chunked},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.STATE,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "Retentive Network: A Successor to Transformer for Large Language Models",
        "Sun et al.",
        2023,
        "arXiv:2307.08621",
    ),
    cost=at.Cost("O(N·d²)", time=1, memory=1),
    examples=(
        Config(chunk=8),
        Config(chunk=5, expand=1, bias=True),
        Config(),
    ),
    default="chunked",
    uncompiled=at.UNROLLED,
    launches=at.IN_TURN,
)
