"""Performer (Choromanski et al., 2021): random features estimate softmax at linear cost.

    q, k, v = x W_Q, x W_K, x W_V                             [B, H, N, d] each
    φ(q_i) = exp(ω q̂_i − |q̂_i|²/2 − max_f ω q̂_i) + ε       [B, H, N, M]
    φ(k_j) = exp(ω k̂_j − |k̂_j|²/2 − max_j,f ω k̂_j) + ε     [B, H, N, M]
    S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j)                [B, H, M, d], [B, H, M]
    o_i = Sᵀ φ(q_i) / zᵀ φ(q_i)                         [B, H, N, d]

x̂ = x / d^¼; ω: [M, d] is drawn once for all heads: Gaussian rows, orthogonal in blocks of d. The
maxima are constants for the gradient. As ε is added after them, they do not cancel exactly: that
of the keys is over the real tokens of a sequence, and causal attention, where it would depend on
the future, omits it: exp(ω k̂ − |k̂|²/2) is at most exp(|ω|²/2). `trigonometric` is the feature map
of the first version, exp(|x̂|²/2) [cos ω x̂, sin ω x̂]; `relu` is the generalised kernel
max(ω x̂ / √M, 0) + ε.

Causal: sums over j ≤ i, in chunks of C tokens with one S between them. For decoding, the state is S
and z, and ω stays the same. Types of fewer than 32 bits are converted to float32. `chunked` is
exact: φ is never stored, but computed for some tokens at a time and, in training, again for the
gradient. Full attention keeps ε and maxima out of the sums,
    φ(q_i) = a_i f(q_i) + ε,  φ(k_j) = b f(k_j) + ε
    Sᵀ φ(q_i) = a_i Cᵀ f(q_i) + ε Cᵀ 1,  C = b Σ_j f(k_j) v_jᵀ + ε 1 Σ_j v_jᵀ
so that a and b, which need the maxima, scale small results. The gradient of `positive`, by hand
(`Estimate`), needs of f only its values: f(x) = exp(ω x̂ − |x̂|²/2) is its own derivative by the
exponent.

Differs from the released code: Q of the QR decomposition takes the signs of R's diagonal, without
which its rows are not uniform in direction; ω is redrawn only with `redraw`.
With `trigonometric`, φ has negative entries, which cancel where zᵀ φ(q_i) is near 0: float32 then
deviates from the equations by up to about 10⁻⁴ of the largest output, other kernels by 10⁻⁶.
Notation: our M is the paper's m; ε is 10⁻⁶, with relu 10⁻³, as in the authors' code.
Source: arXiv:2009.14794, equations (4) to (7) and section 2.4.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnbench import attention as at

KERNELS = ("positive", "trigonometric", "relu")


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`features`: M; `kernel`: positive, trigonometric or relu; `orthogonal`: rows of ω.

    `redraw`: a new ω in each training forward; `epsilon`: ε; None: the authors' value;
    `chunk`: C, tokens of a chunk in causal attention.
    """

    features: int = 256
    kernel: str = "positive"
    orthogonal: bool = True
    redraw: bool = False
    epsilon: float | None = None
    chunk: int = 64

    def __post_init__(self) -> None:
        self.require_one_of("kernel", KERNELS)
        self.require_at_least(1, "features", "chunk")
        self.require_at_least(0, "epsilon")
        if self.epsilon is not None and self.kernel == "trigonometric":
            raise ValueError("kernel=trigonometric takes no epsilon; leave it out")
        if self.epsilon == 0 and self.kernel == "relu":
            raise ValueError("epsilon is 0; kernel=relu needs more, or queries may read no key")

    @property
    def added(self) -> float:
        """ε."""
        if self.epsilon is not None:
            return self.epsilon
        return {"positive": 1e-6, "trigonometric": 0.0, "relu": 1e-3}[self.kernel]

    @property
    def columns(self) -> int:
        """Columns of φ."""
        return self.features * (2 if self.kernel == "trigonometric" else 1)


class Performer(at.QKVAttention, at.Recurrent):
    omega: Tensor

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        omega = draw(config.features, workload.head_width, config.orthogonal)
        self.register_buffer("omega", omega)

    def draws(self, index: int) -> at.Draws:
        return {"omega": self.omega}

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if self.training and self.config.redraw:
            M, d = self.omega.shape
            omega = draw(M, d, self.config.orthogonal, self.omega.device)
            self.omega = omega.to(self.omega.dtype)
        if self.causal:
            return self.scan(q, k, v, mask, self.zero_state(len(v), v))[0]
        dtype = v.dtype
        q, k, v, keys = scaled(q, k, v, mask)
        return quotient(self.full_sums(q, k, v, keys), keys, dtype)

    def scan(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        """o of tokens after a state, and [S z] after them, [B, H, M, d + 1]."""
        dtype = v.dtype
        q, k, v, keys = scaled(q, k, v, mask)
        sums, S = self.causal_sums(q, k, v, keys, S)
        return quotient(sums, keys, dtype), S

    def full_sums(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None) -> Tensor:
        """Sᵀ φ(q) and zᵀ φ(q), concatenated."""
        phi = self.key_features(k, keys)
        S = phi.mT @ v
        z = phi.sum(-2)
        return self.query_features(q) @ torch.cat([S, z[..., None]], -1)

    def causal_sums(
        self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same over j ≤ i and earlier tokens, and [S z] after them.

        A column of ones in v makes z the last column of S.
        """
        q = self.query_features(q)
        k = self.key_features(k, keys)
        v = pad(v, (0, 1), value=1)
        return at.sum_rule(S, q, k, v, self.config.chunk)

    def extend(self, x: Tensor, mask: Tensor | None, state: at.State) -> tuple[Tensor, at.State]:
        q, k, v = self.projected(x)
        o, S = self.scan(q, k, v, mask, *state)
        return self.output(at.merge(o)), (S,)

    @staticmethod
    def state_shape(config: Config, workload: at.Workload) -> tuple[int, ...]:
        return workload.heads, config.columns, workload.head_width + 1

    def query_features(self, q: Tensor) -> Tensor:
        """φ(q̂) [B, H, N, M], up to a factor per query that cancels."""
        u = q @ self.omega.T.to(q.dtype)
        if self.config.kernel != "positive":
            return self.unscaled(u)
        top = u.detach().amax(-1, keepdim=True)
        return (u - half_square(q) - top).exp() + self.config.added

    def key_features(self, k: Tensor, keys: Tensor | None) -> Tensor:
        """φ(k̂) [B, H, N, M], 0 at padding."""
        u = k @ self.omega.T.to(k.dtype)
        if self.config.kernel == "positive":
            top = 0 if self.causal else finite(highest(u.detach(), keys))
            phi = (u - half_square(k) - top).exp() + self.config.added
        elif self.config.kernel == "trigonometric":
            phi = self.unscaled(u) * half_square(k).exp()
        else:
            phi = self.unscaled(u)
        return phi if keys is None else phi * keys

    def unscaled(self, u: Tensor) -> Tensor:
        """The part of φ that `trigonometric` and `relu` compute from u = ω x̂ alone."""
        if self.config.kernel == "relu":
            return (u * self.config.features**-0.5).relu() + self.config.added
        return torch.cat([u.cos(), u.sin()], -1)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """ω q, ω k; φ(K)ᵀ v and φ(Q) [S z]. Causal: φ(K)ᵀ [v 1], and two products per chunk."""
        omega = 2 * 2 * w.tokens * config.features * w.width
        if w.causal:
            return at.Flops(at.projection_flops(w), omega + prefix_flops(config, w, w.seq_len))
        return at.Flops(
            at.projection_flops(w), omega + 2 * w.tokens * config.columns * (2 * w.width + w.heads)
        )

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 4 * w.tokens * w.heads * config.columns


def reference(module: Performer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    d = module.width // module.heads
    omega = draws["omega"]
    real = [j for j in range(N) if mask is None or mask[j]]
    heads = []
    for part in (slice(h * d, (h + 1) * d) for h in range(module.heads)):
        q, k, v = (f(x)[:, part] for f in (module.query, module.key, module.value))
        q = q / d**0.25
        k = k[real] / d**0.25
        v = v[real]
        top = 0.0 if module.causal else (k @ omega.T).detach().max()
        phi_k = phi(module.config, omega, k, top)
        rows = []
        for i in range(N):
            phi_q = phi(module.config, omega, q[i], (omega @ q[i]).detach().max())
            seen = [n for n, j in enumerate(real) if j <= i or not module.causal]
            similarity = phi_k[seen] @ phi_q
            rows.append(similarity @ v[seen] / similarity.sum())
        heads.append(torch.stack(rows))
    return module.output(torch.cat(heads, -1))


def phi(config: Config, omega: Tensor, x: Tensor, top: float | Tensor) -> Tensor:
    """φ of scaled vectors, [..., d] to [..., M or 2M]."""
    u = x @ omega.T
    square = (x * x).sum(-1, keepdim=True)
    if config.kernel == "positive":
        return torch.exp(u - square / 2 - top) + config.added
    if config.kernel == "relu":
        return torch.clamp(u / config.features**0.5, min=0) + config.added
    return torch.exp(square / 2) * torch.cat([torch.cos(u), torch.sin(u)], -1)


class Chunked(Performer):
    block = 256  # tokens whose features exist at a time, so that they fit a cache

    def full_sums(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None) -> Tensor:
        v = pad(v, (0, 1), value=1)
        if keys is not None:
            v = v * keys
        if self.config.kernel != "positive":
            return joined([self.full_block(*part) for part in self.sequences(q, k, v, keys)], 0)
        exponent = with_square(self.omega.to(q.dtype))
        sums = [
            Estimate.apply(*part, exponent, self.config.added, self.block)
            for part in self.sequences(q, k, v, keys)
        ]
        return joined(sums, 0)

    def causal_sums(
        self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        parts = [self.causal_block(*part) for part in self.sequences(q, k, v, keys, S)]
        sums, last = zip(*parts, strict=True)
        return joined(sums, 0), joined(last, 0)

    def sequences(self, q: Tensor, *others: Tensor | None) -> Iterator[tuple[Any, ...]]:
        """The tensors in parts of a few sequences."""
        return cut(max(1, self.block // q.shape[2]), 0, q, *others)

    def full_block(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None) -> Tensor:
        """Sᵀ φ(q) and zᵀ φ(q) of the kernels whose a and b are one constant."""
        parts = [at.recomputed(self.key_sums, *part) for part in blocks(self.block, k, v)]
        C = self.factor * torch.stack(parts).sum(0) + self.config.added * v.sum(2, keepdim=True)
        sums = [at.recomputed(self.query_sums, x, C) for x in q.split(self.block, 2)]
        return joined(sums, 2)

    def causal_block(
        self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None, S: Tensor
    ) -> tuple[Tensor, Tensor]:
        outputs = []
        for part in cut(self.block, 2, q, k, v, keys):
            o, S = at.recomputed(super().causal_sums, *part, S)
            outputs.append(o)
        return joined(outputs, 2), S

    def key_sums(self, k: Tensor, v: Tensor) -> Tensor:
        """Σ f(k_j) v_jᵀ of these tokens, [B, H, M, d + 1]."""
        if self.config.kernel == "trigonometric":
            v = v * half_square(k).exp()
        return self.values(k).mT @ v

    def query_sums(self, q: Tensor, C: Tensor) -> Tensor:
        """a Cᵀ f(q_i) + ε Cᵀ 1, [B, H, N, d + 1]."""
        return self.factor * (self.values(q) @ C) + self.config.added * C.sum(2, keepdim=True)

    @property
    def factor(self) -> float:
        """a and b of the kernels `relu` and `trigonometric`."""
        return self.config.features**-0.5 if self.config.kernel == "relu" else 1.0

    def values(self, x: Tensor) -> Tensor:
        """f(x̂) [B, H, N, M or 2M] of the kernels `relu` and `trigonometric`."""
        u = x @ self.omega.T.to(x.dtype)
        return u.relu_() if self.config.kernel == "relu" else self.unscaled(u)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """As eager, with z in both products and |x̂|²/2 in that with ω; causal: block by block."""
        omega = 2 * 2 * w.tokens * config.features * w.width
        wider = w.width + w.heads
        if w.causal:
            full, rest = divmod(w.seq_len, Chunked.block)
            core = full * prefix_flops(config, w, Chunked.block)
            core += prefix_flops(config, w, rest) if rest else 0
            return at.Flops(at.projection_flops(w), omega + core)
        if config.kernel == "positive":
            omega = 2 * 2 * w.tokens * config.features * wider
        return at.Flops(at.projection_flops(w), omega + 2 * 2 * w.tokens * config.columns * wider)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        features = 3 * min(w.tokens, max(Chunked.block, w.batch)) * w.heads * config.columns
        return features + 4 * w.tokens * (w.width + w.heads)


class Estimate(at.Written):
    """Sᵀ φ(q) and zᵀ φ(q) [B, H, N, d + 1] of the kernel `positive`; f is there a block at a time.

    Takes q̂ and k̂ [B, H, N, d]; [v 1] [B, H, N, d + 1], 0 at padding; the mask of the keys or None;
    [ω −1] [M, d + 1], a constant; ε; and the tokens of a block.
    """

    twice = True

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keys: Tensor | None,
        exponent: Tensor,
        added: float,
        block: int,
    ) -> Tensor:
        sums, *factors = estimate(q, k, v, keys, exponent, added, block)
        ctx.save_for_backward(q, k, v, keys, exponent, *factors)
        ctx.added = added
        ctx.block = block
        return sums

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, keys, exponent, a, b, C = ctx.saved_tensors
        constants = (None,) * 4
        if torch.is_grad_enabled():

            def sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                return estimate(q, k, v, keys, exponent, ctx.added, ctx.block)[0]

            return *at.differentiated(sums, (q, k, v), gradient), *constants
        scaled_gradient = a * gradient
        dC = ctx.added * gradient.sum(2, keepdim=True)
        dq = []
        for x, g in blocks(ctx.block, q, scaled_gradient):
            f = exponential(x, exponent)
            dC = dC + f.mT @ g
            dq.append(by_exponent((g @ C.mT).mul_(f), x, exponent))
        dS = b * dC
        from_total = ctx.added * dC.sum(2, keepdim=True)
        dk = []
        dv = []
        for x, values in blocks(ctx.block, k, v):
            f = exponential(x, exponent)
            dv.append((f @ dS).add_(from_total))
            dk.append(by_exponent((values @ dS.mT).mul_(f), x, exponent))
        return joined(dq, 2), joined(dk, 2), joined(dv, 2), *constants


def estimate(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor | None,
    exponent: Tensor,
    added: float,
    block: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `Estimate` computes, and a [B, H, N, 1], b [B, H, 1, 1] and C [B, H, M, d + 1]."""
    key_sums = []
    tops = []
    every = zip(blocks(block, k, v), cut(block, 2, k, keys), strict=True)
    for (x, values), (_, real) in every:
        half = half_square(x)
        u = with_half(x, half) @ exponent.mT
        tops.append(highest(u.detach().amax(-1, keepdim=True) + half.detach(), real))
        key_sums.append(u.exp_().mT @ values)
    b = (-finite(torch.stack(tops).amax(0))).exp()
    C = b * sum(key_sums) + added * v.sum(2, keepdim=True)
    total = added * C.sum(2, keepdim=True)
    sums = []
    scales = []
    for x in q.split(block, 2):
        half = half_square(x)
        u = with_half(x, half) @ exponent.mT
        a = (-(u.detach().amax(-1, keepdim=True) + half.detach())).exp()
        scales.append(a)
        sums.append((u.exp_() @ C).mul_(a).add_(total))
    return joined(sums, 2), joined(scales, 2), b, C


def with_square(omega: Tensor) -> Tensor:
    """[ω −1] [M, d + 1], whose product with [x̂ |x̂|²/2] is the exponent of f."""
    return pad(omega, (0, 1), value=-1)


def with_half(x: Tensor, half: Tensor) -> Tensor:
    """[x̂ |x̂|²/2], [B, H, N, d + 1]."""
    return torch.cat([x, half], -1)


def exponential(x: Tensor, exponent: Tensor) -> Tensor:
    """f(x̂) of the kernel `positive`, [B, H, N, M]."""
    return (with_half(x, half_square(x)) @ exponent.mT).exp_()


def by_exponent(gradient: Tensor, x: Tensor, exponent: Tensor) -> Tensor:
    """The gradient of x̂ from that of the exponent, [B, H, N, M]."""
    d = x.shape[-1]
    both = gradient @ exponent
    return torch.addcmul(both[..., :d], x, both[..., d:])


def draw(rows: int, d: int, orthogonal: bool, device: torch.device | None = None) -> Tensor:
    """ω: Gaussian rows [M, d]; `orthogonal`: those of each block of d are orthogonal."""
    if not orthogonal:
        return torch.randn(rows, d, device=device)
    Q, R = torch.linalg.qr(torch.randn(-(-rows // d), d, d, device=device))
    Q = Q * R.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    return Q.mT.flatten(0, 1)[:rows] * torch.randn(rows, d, device=device).norm(dim=-1)[:, None]


def scaled(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """q̂, k̂ and v, 0 at padding, and the mask of the keys [B, 1, N, 1] or None."""
    scale = q.shape[-1] ** -0.25
    q = at.widen(q) * scale
    k = at.widen(k) * scale
    v = at.widen(v)
    if mask is None:
        return q, k, v, None
    keys = mask[:, None, :, None]
    return q, k * keys, v * keys, keys


def quotient(sums: Tensor, keys: Tensor | None, dtype: torch.dtype) -> Tensor:
    """[Sᵀ q, zᵀ q] of each query to o, 0 where there is no real key."""
    total = sums[..., -1:]
    if keys is not None:
        total = total + (total == 0)
    return (sums[..., :-1] / total).to(dtype)


def half_square(x: Tensor) -> Tensor:
    """|x|²/2, [B, H, N, 1]."""
    return x.square().sum(-1, keepdim=True) / 2


def highest(u: Tensor, keys: Tensor | None) -> Tensor:
    """The maximum over real tokens and columns, [B, H, 1, 1]; −∞ without real tokens."""
    u = u if keys is None else torch.where(keys, u, -torch.inf)
    return u.amax((2, 3), keepdim=True)


def finite(top: Tensor) -> Tensor:
    """Maxima, with 0 for those of no token."""
    return top.masked_fill(top.isneginf(), 0)


def cut(size: int, dim: int, *tensors: Tensor | None) -> Iterator[tuple[Tensor | None, ...]]:
    """Corresponding pieces of the tensors, of `size` along `dim`; None stays None."""
    pieces = [repeat(None) if t is None else t.split(size, dim) for t in tensors]
    return zip(*pieces, strict=False)


def blocks(size: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Corresponding blocks of `size` tokens of tensors [B, H, N, ·]."""
    return zip(*(x.split(size, 2) for x in tensors), strict=True)


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """The parts concatenated, a single one without a copy."""
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts), dim)


def prefix_flops(config: Config, w: at.Workload, tokens: int) -> int:
    """FLOPs of the causal products of `tokens` tokens of each sequence."""
    heads = w.batch * w.heads
    return heads * at.sum_flops(tokens, config.chunk, config.columns, w.head_width + 1)


def default(config: Config, w: at.Workload) -> str:
    """Chunked on a CPU, for its caches; whole products keep a GPU busier."""
    return "chunked" if w.device == "cpu" else "eager"


CARD = at.Card(
    forms={"eager": Performer, "chunked": Chunked},
    config=Config,
    reference=reference,
    parameters=at.projection_parameters,
    family=at.Family.KERNEL,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Rethinking Attention with Performers", "Choromanski et al.", 2021, "arXiv:2009.14794"
    ),
    cost=at.Cost("O(N·d·m)", time=1, memory=1),
    symbols={"m": ("random features", "features")},
    examples=(
        Config(features=10, chunk=8, epsilon=1e-3),
        Config(features=7, kernel="relu", orthogonal=False, bias=True, redraw=True),
        Config(features=24, kernel="trigonometric", chunk=16),
    ),
    default=default,
)
