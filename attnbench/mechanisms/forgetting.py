"""Forgetting attention (FoX, Lin et al., 2025): softmax attention whose keys fade with time.

    q, k, v = x W_Q, x W_K, x W_V                      [B, H, N, d] each
    f = σ(x W_F + b)                                   [B, H, N]
    F_i = log f_1 + … + log f_i                        [B, H, N]
    a_ij = softmax_j(q_i · k_j / √d + F_i − F_j),  j ≤ i
    o_i = Σ_j a_ij v_j                                 [B, H, N, d]

`eager` stores the weights. `sdpa` lets torch's fused kernel add the decays: F_i cancels in a
softmax, so they are further columns of the keys, which columns of q read. Queries go in blocks, and
each small group of a block has a column of its own, which counts from the group's middle: keys that
matter have small numbers, and lose no digits in long sequences. Narrow types, whose few digits
would not tell neighbours apart, have two such columns, which add up, and smaller groups. Training
keeps what the kernel made of a block, but one k for all, whose columns are written anew.

Padding fades nothing. The core begins with q, k, v and x W_F. Always causal. For decoding, the
state is the cache of k and v, and x W_F of every token.

Left out: the paper's variant with an output gate, normalised keys and shifted values ("Pro").
Source: arXiv:2503.02130, equations (6) to (8).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, scaled_dot_product_attention

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """No options of its own."""


class Kept(NamedTuple):
    """Buffers of k and v [B, H, S, d] and of x W_F [B, H, S] of past tokens, and their number.

    x W_F has a buffer of its own: as a column of k it would shift the rows of k, which kernels of
    GPUs read by 16 bytes.
    """

    k: Tensor
    v: Tensor
    f: Tensor
    length: int

    def added(self, k: Tensor, v: Tensor, f: Tensor) -> "Kept":
        """The state after further tokens, which are written into its buffers."""
        end = self.length + k.shape[2]
        new = slice(self.length, end)
        self.k[:, :, new] = k
        self.v[:, :, new] = v
        self.f[:, :, new] = f
        return self._replace(length=end)

    def held(self) -> tuple[Tensor, Tensor, Tensor]:
        """k, v and x W_F of all past tokens."""
        k, v, f = (kept[:, :, : self.length] for kept in (self.k, self.v, self.f))
        return k, v, f


class Forgetting(at.QKVAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.b = nn.Parameter(torch.zeros(workload.heads))
        if workload.level is not at.Level.CORE:
            self.forget = nn.Linear(workload.width, workload.heads, bias=config.bias)

    @staticmethod
    def core_inputs(config: Config, workload: at.Workload) -> tuple[tuple[int, ...], ...]:
        """Shapes of q, k, v and x W_F."""
        tokens = workload.batch, workload.heads, workload.seq_len
        return (*((*tokens, workload.head_width),) * 3, tokens)

    def projected(self, x: Tensor) -> tuple[Tensor, ...]:
        return *super().projected(x), self.forget(x).mT

    def fading(self, f: Tensor, mask: Tensor | None = None) -> Tensor:
        """log f of x W_F [B, H, N], in float64, whose sums keep their digits; 0 at padding."""
        faded = logsigmoid(f.double() + self.b.double()[:, None])
        return faded if mask is None else faded * mask[:, None]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, f: Tensor, mask: Tensor | None) -> Tensor:
        """Shapes of `core_inputs` and a mask [B, N] or None to [B, H, N, d]."""
        F = self.fading(f, mask).cumsum(-1)
        logits = q / q.shape[-1] ** 0.5 @ k.mT + (F[..., None] - F[:, :, None]).to(q.dtype)
        return at.masked_softmax(logits, at.allowed_keys(q, k, at.key_mask(mask), causal=True)) @ v

    one_token_reason = ""

    def start(self, batch: int, capacity: int) -> Kept:
        shape = batch, self.heads, capacity, self.width // self.heads
        like = self.output.weight
        k, v, f = (like.new_empty(size) for size in (shape, shape, shape[:3]))
        return Kept(k, v, f, 0)

    def prefill(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        q, k, v, f = self.projected(x)
        o = self.attend(q, k, v, f, None)
        return self.finished(o, x), Kept(*state).added(k, v, f)

    def step(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        q, k, v, f = self.projected(x)
        kept = Kept(*state).added(k, v, f)
        k, v, f = kept.held()
        F = self.fading(f).cumsum(-1)
        n = x.shape[1]
        decay = (F[..., -n:, None] - F[:, :, None]).to(q.dtype)  # of each key up to a query
        bias = decay.masked_fill(~at.causal_mask(n, kept.length, x.device), -torch.inf)
        o = scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.finished(o, x), kept

    @staticmethod
    def state_elements(config: Config, workload: at.Workload) -> int:
        return workload.tokens * (2 * workload.width + workload.heads)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """The projections with W_F; then q kᵀ and A v, in full."""
        forget = 2 * w.tokens * w.width * w.heads
        return at.Flops(at.projection_flops(w) + forget, 2 * (2 * w.tokens * w.seq_len * w.width))

    @classmethod
    def step_flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """Those of the tokens alone, whose queries read N keys."""
        core = 4 * w.step * w.tokens * w.width
        return replace(Forgetting.flops(config, at.each_alone(w)), core=core)


def reference(module: Forgetting, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    d = module.width // module.heads
    rows = []
    projected = [m.squeeze(0) for m in module.projected(x[None])]
    f = (projected[3] + module.b[:, None]).sigmoid()  # [H, N]
    for i in range(len(x)):
        keys = [j for j in range(i + 1) if mask is None or mask[j]]
        heads = []
        for h in range(module.heads):
            q, k, v = (p[h] for p in projected[:3])
            between = f if mask is None else torch.where(mask, f, 1.0)  # padding fades nothing
            faded = [between[h, j + 1 : i + 1].log().sum() for j in keys]
            logits = [k[j] @ q[i] / d**0.5 + fade for j, fade in zip(keys, faded, strict=True)]
            o = torch.stack(logits).softmax(0) @ v[keys] if keys else torch.zeros_like(q[i])
            heads.append(o)
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


class Sdpa(Forgetting):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, f: Tensor, mask: Tensor | None) -> Tensor:
        F = self.fading(f, mask).cumsum(-1)
        if mask is not None:
            v = v * mask[:, None, :, None]
        return at.Fading.apply(q, k, v, F, mask)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """As eager, with the columns of decays, and no keys after a block."""
        keys = sum(
            min(at.FADING_BLOCK, w.seq_len - start) * min(start + at.FADING_BLOCK, w.seq_len)
            for start in range(0, w.seq_len, at.FADING_BLOCK)
        )
        core = 4 * w.batch * keys * extended_width(w)
        return replace(Forgetting.flops(config, w), core=core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """q, k and v with the columns of decays, and the mask of a block."""
        return 4 * w.tokens * extended_width(w) + at.FADING_BLOCK * w.seq_len


def extended_width(w: at.Workload) -> int:
    """The width of q with the further columns of all heads."""
    return w.heads * at.fading_width(w.head_width, getattr(torch, w.dtype), w.device)


def parameters(config: Config, w: at.Workload) -> int:
    """Four D × D projections and D × H of W_F (with biases), and b."""
    return at.projection_parameters(config, w) + w.heads * (w.width + config.bias) + w.heads


CARD = at.Card(
    forms={"eager": Forgetting, "sdpa": Sdpa},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.FULL,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "Forgetting Transformer: Softmax Attention with a Forget Gate",
        "Lin et al.",
        2025,
        "arXiv:2503.02130",
    ),
    cost=at.Cost("O(N²·d)", time=2, memory=2),
    examples=(Config(), Config(bias=True)),
    default="sdpa",
    launches="a block of 128 queries at a time, which read all keys before them",
)
