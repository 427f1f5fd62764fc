"""Linear Transformer (Katharopoulos et al., 2020): no softmax, so one sum of keys serves all.

    q, k, v = x W_Q, x W_K, x W_V                      [B, H, N, d] each
    φ(x) = elu(x) + 1                                  [B, H, N, d]
    S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j)               [B, H, d, d], [B, H, d]
    o_i = Sᵀ φ(q_i) / (zᵀ φ(q_i) + 10⁻⁶)               [B, H, N, d]

q and k are not scaled. Padding is zeroed after φ, since φ(0) = 1. S and z are sums over N: for
inputs of fewer than 32 bits, they and the quotient are float32.

Causal: S and z run over j ≤ i, in chunks of C tokens. The C × C products within a chunk are stored
and one S between chunks, but never [N, d, d]. For decoding, the state is S and z.

`folded` is exact, for full attention only. V and o are never stored; W_V and W_O multiply S:
    T = φ(K)ᵀ x                                        [B, D, D]
    M_h = T_h W_V,h W_O,h                              [B, H, d, D]
    y = merge(φ(q) / (zᵀ φ(q) + 10⁻⁶)) M               [B, N, D]

Notation: our S and z are the paper's S_N and Z_N.
Source: arXiv:2006.16236, equations (5) to (12); 10⁻⁶ is from the authors' code.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import elu, pad

from attnbench import attention as at

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`chunk`: C, tokens of a chunk in causal attention; shorter sequences are one chunk."""

    chunk: int = 32

    def __post_init__(self) -> None:
        self.require_at_least(1, "chunk")


class LinearTransformer(at.QKVAttention, at.Recurrent):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if self.causal:
            return self.scan(q, k, v, mask, self.zero_state(len(v), v))[0]
        phi_q, phi_k = features(q, k, mask)
        return quotient(self.full_sums(phi_q, phi_k, at.widen(v)), v.dtype)

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        """o of tokens after a state, and [S z] after them, [B, H, d, d + 1].

        A column of ones appended to v makes z the last column of S.
        """
        sums, S = at.sum_rule(
            S, *features(q, k, mask), pad(at.widen(v), (0, 1), value=1), self.config.chunk
        )
        return quotient(sums, v.dtype), S

    def full_sums(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Sᵀ q and zᵀ q, concatenated."""
        S = k.mT @ v
        z = k.sum(-2)
        return q @ torch.cat([S, z[..., None]], -1)

    def extend(self, x: Tensor, mask: Tensor | None, state: at.State) -> tuple[Tensor, at.State]:
        q, k, v = self.projected(x)
        o, S = self.scan(q, k, v, mask, *state)
        return self.output(at.merge(o)), (S,)

    @staticmethod
    def state_shape(config: Config, workload: at.Workload) -> tuple[int, ...]:
        return workload.heads, workload.head_width, workload.head_width + 1

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """φ(K)ᵀ v and φ(Q) [S z]; causal: φ(K)ᵀ [v 1], φ(Q) S, and two products in each chunk."""
        projections = at.projection_flops(w)
        d = w.head_width
        wider = w.width + w.heads
        if not w.causal:
            return at.Flops(projections, 2 * w.tokens * d * (w.width + wider))
        heads = w.batch * w.heads
        return at.Flops(projections, heads * at.sum_flops(w.seq_len, config.chunk, d, d + 1))

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        if not w.causal:
            return 3 * w.tokens * w.width
        states = -(-w.seq_len // config.chunk) * w.batch * w.width * w.head_width
        return 4 * w.tokens * w.width + 2 * w.tokens * w.heads * config.chunk + 2 * states


def reference(module: LinearTransformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    d = module.width // module.heads
    q = phi(module.query(x))
    k = phi(module.key(x))
    v = module.value(x)
    real = [j for j in range(N) if mask is None or mask[j]]
    rows = []
    for i in range(N):
        keys = [j for j in real if j <= i or not module.causal]
        heads = []
        for part in (slice(h * d, (h + 1) * d) for h in range(module.heads)):
            similarity = k[keys][:, part] @ q[i, part]
            heads.append(similarity @ v[keys][:, part] / (similarity.sum() + EPSILON))
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


def phi(x: Tensor) -> Tensor:
    """1 + x where x is positive, eˣ elsewhere."""
    return torch.where(x > 0, 1 + x, x.clamp(max=0).exp())


class Folded(LinearTransformer):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        heads = (self.heads, -1, self.width)  # the rows of a projection: [H, d, D]
        q = feature(self.query(x))  # [B, N, D]
        k = feature(self.key(x))
        if mask is not None:
            k = k * mask[..., None]
        T, z = (t.unflatten(1, (self.heads, -1)) for t in Sums.apply(k, x))
        T = T.transpose(0, 1)  # [H, B, d, D]
        S = T.flatten(1, 2) @ self.value.weight.view(heads).mT  # [H, B d, d]
        if self.config.bias:
            S = S + z.transpose(0, 1).flatten(1)[..., None] * self.value.bias.view(heads[0], 1, -1)
        M = S @ self.output.weight.T.reshape(heads)
        M = M.view(T.shape).transpose(0, 1).flatten(1, 2)  # [B, D, D]
        norm = (q @ by_head(z) + EPSILON).reciprocal()  # [B, N, H]
        q = (q.unflatten(-1, (self.heads, -1)) * norm[..., None]).flatten(2)
        return torch.baddbmm(self.output.bias, q, M) if self.config.bias else q @ M

    @staticmethod
    def needs(config: Config, w: at.Workload) -> str | None:
        if w.level is at.Level.CORE:
            return at.NO_SEPARATE_CORE
        if w.causal:
            return "W_V and W_O fold into one S per sequence, but a causal S changes with i"
        if w.dtype in ("float16", "bfloat16"):
            return f"T would be stored in {w.dtype}; use linear_transformer:eager"
        return None

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """W_Q, W_K and the product with M; then φ(K)ᵀ x, the normaliser, S and M."""
        D = w.width
        small = 2 * 2 * w.batch * D * D * w.head_width
        core = 2 * w.tokens * D * (D + w.heads) + small
        return at.Flops(at.projection_flops(w, 3), core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 3 * w.tokens * w.width + 2 * w.batch * w.width**2


class Sums(at.Written):
    """kᵀ x [B, D, D] and Σ k [B, D] of k and x [B, N, D]; the gradient of k is one product."""

    twice = True

    @staticmethod
    def forward(ctx: Any, k: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(k, x)
        return k.mT @ x, k.sum(1)

    @staticmethod
    def backward(ctx: Any, dT: Tensor, dz: Tensor) -> tuple[Tensor, Tensor]:
        k, x = ctx.saved_tensors
        return torch.baddbmm(dz[:, None], x, dT.mT), k @ dT


def features(q: Tensor, k: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """φ(q) and φ(k), the latter 0 at padding."""
    phi_q = feature(q)
    phi_k = feature(k)
    if mask is not None:
        phi_k = phi_k * mask[:, None, :, None]
    return at.widen(phi_q), at.widen(phi_k)


def quotient(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """[Sᵀ q, zᵀ q] of each query to o."""
    return (sums[..., :-1] / (sums[..., -1:] + EPSILON)).to(dtype)


def feature(x: Tensor) -> Tensor:
    """φ(x) = elu(x) + 1."""
    return elu(x).add_(1)


def by_head(z: Tensor) -> Tensor:
    """[B, H, d] to [B, D, H]: column h holds z_h in the rows of head h, and zeros elsewhere."""
    return torch.diag_embed(z.mT, dim1=-2, dim2=-1).transpose(1, 2).flatten(1, 2)


def default(config: Config, w: at.Workload) -> str:
    """Folded once a D × D matrix per sequence is small compared with its tokens."""
    if Folded.needs(config, w):
        return "eager"
    return "folded" if w.seq_len >= w.width else "eager"


CARD = at.Card(
    forms={"eager": LinearTransformer, "folded": Folded},
    config=Config,
    reference=reference,
    parameters=at.projection_parameters,
    family=at.Family.KERNEL,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention",
        "Katharopoulos et al.",
        2020,
        "arXiv:2006.16236",
    ),
    cost=at.Cost("O(N·d²)", time=1, memory=1),
    examples=(Config(chunk=8), Config(bias=True, chunk=64)),
    default=default,
)
