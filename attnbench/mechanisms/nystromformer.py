"""Nyströmformer (Xiong et al., 2021): softmax attention estimated from M averages of tokens.

    q, k, v = x W_Q, x W_K, x W_V                        [B, H, N, d] each
    q̃, k̃ = means of q, k over M segments               [B, H, M, d]
    F = softmax(q k̃ᵀ / √d)                              [B, H, N, M]
    A = softmax(q̃ k̃ᵀ / √d)                              [B, H, M, M]
    W = softmax(q̃ kᵀ / √d)                              [B, H, M, N]
    Z₀ = Aᵀ / (‖A‖₁ ‖A‖∞)                               [B, H, M, M]
    Z ← Z (13 I − A Z (15 I − A Z (7 I − A Z))) / 4     six times, towards A⁺
    o = (F Z) (W v) + conv(v)                           [B, H, N, d]

conv has one kernel per head, along the tokens. The first M − N mod M segments have ⌊N / M⌋ tokens,
the others one more. Means are over real tokens; a segment without real tokens is not a landmark.
For N ≤ M every token is a landmark and S S⁺ S = S, so o is computed as softmax attention, as in
the released code. A and Z are at least float32. No causal form: landmarks average past and future.

`sdpa` is exact: F (Z (W v)) is softmax attention of q over k̃ with values Z (W v), and W v is that
of q̃ over k, so torch's fused kernels compute both and neither F nor W is stored.

Differs from the released code, where the scale of Z₀ is one number for the whole batch: here each
A has its own, as printed. Softmax makes ‖A‖∞ = 1.
Notation: our M is the paper's m, our F, A, W its F̃, A_S, B̃.
Source: arXiv:2102.03902, equations (9) to (15).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`landmarks`: M; `iterations` towards A⁺; `conv_kernel`: taps of conv, odd; 0: no conv."""

    landmarks: int = 64
    iterations: int = 6
    conv_kernel: int = 33

    def __post_init__(self) -> None:
        self.require_at_least(1, "landmarks")
        self.require_at_least(0, "iterations")
        if self.conv_kernel < 0 or (self.conv_kernel and self.conv_kernel % 2 == 0):
            raise ValueError(f"conv_kernel is {self.conv_kernel}; it must be odd, or 0 for none")


class Nystromformer(at.QKVAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        H = workload.heads
        taps = config.conv_kernel
        self.conv = None
        if taps:
            self.conv = nn.Conv2d(H, H, (taps, 1), padding=(taps // 2, 0), groups=H, bias=False)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        keys = at.key_mask(mask)
        if mask is not None:
            q, k, v = (x * mask[:, None, :, None] for x in (q, k, v))
        exact = q.shape[2] <= self.config.landmarks
        o = (self.softmax if exact else self.approximate)(q, k, v, keys)
        return o if self.conv is None else o + self.conv(v)

    def approximate(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None) -> Tensor:
        """Attention by landmarks of q and k, which are 0 at padding."""
        low_q, low_k, seen, Z = self.landmarks(q, k, keys)
        return weights(q, low_k, seen) @ Z @ self.softmax(low_q, k, v, keys)

    def landmarks(
        self, q: Tensor, k: Tensor, keys: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """q̃ and k̃, which of them have real tokens [B, 1, 1, M], and Z."""
        M = self.config.landmarks
        real = torch.ones_like(q[:1, :1, :, :1]) if keys is None else keys.mT
        count = segment_sums(at.widen(real.to(q.dtype)), M)  # [B or 1, 1, M, 1]
        low_q, low_k = ((segment_sums(x, M) / count.clamp(min=1)).to(x.dtype) for x in (q, k))
        seen = None if keys is None else count.mT > 0
        both = None if seen is None else seen & seen.mT
        A = weights(at.widen(low_q), at.widen(low_k), both)
        return low_q, low_k, seen, self.inverse(A).to(q.dtype)

    def softmax(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None) -> Tensor:
        """Softmax attention."""
        return weights(q, k, keys) @ v

    def inverse(self, A: Tensor) -> Tensor:
        """The iteration towards A⁺, [B, H, M, M]."""
        norm = A.sum(-2).amax(-1)[..., None, None]
        Z = A.mT / (norm + (norm == 0))
        I = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)  # noqa: E741
        for _ in range(self.config.iterations):
            P = A @ Z
            Z = Z / 4 @ (13 * I - P @ (15 * I - P @ (7 * I - P)))
        return Z

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """q k̃ᵀ, q̃ kᵀ, W v, F Z v; F Z; A; four products per iteration; conv."""
        M = config.landmarks
        H = w.heads
        conv = 2 * w.tokens * w.width * config.conv_kernel
        if w.seq_len <= M:
            return at.Flops(at.projection_flops(w), 4 * w.tokens * w.seq_len * w.width + conv)
        small = w.batch * (2 * M * M * w.width + config.iterations * 4 * 2 * H * M**3)
        return at.Flops(
            at.projection_flops(w), 2 * w.tokens * M * (4 * w.width + H * M) + small + conv
        )

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        M = config.landmarks
        if w.seq_len <= M:
            return 2 * w.heads * w.tokens * w.seq_len
        return w.heads * (5 * w.tokens * M + (3 + 9 * config.iterations) * w.batch * M * M)


def reference(module: Nystromformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    d = module.width // module.heads
    config = module.config
    real = [j for j in range(N) if mask is None or mask[j]]
    groups = [[j for j in group if j in real] for group in segments(N, config.landmarks)]
    groups = [group for group in groups if group]
    heads = []
    for h in range(module.heads):
        part = slice(h * d, (h + 1) * d)
        q, k, v = (f(x)[:, part] for f in (module.query, module.key, module.value))
        if config.landmarks >= N:
            o = (q @ k[real].T / d**0.5).softmax(-1) @ v[real]
        else:
            low_q, low_k = (torch.stack([t[g].mean(0) for g in groups]) for t in (q, k))
            F, A = ((t @ low_k.T / d**0.5).softmax(-1) for t in (q, low_q))
            W = (low_q @ k[real].T / d**0.5).softmax(-1)
            o = F @ pseudo_inverse(A, config.iterations) @ W @ v[real]
        heads.append(o if module.conv is None else o + convolved(module.conv.weight[h], v, real))
    return module.output(torch.cat(heads, -1))


def segments(N: int, M: int) -> list[list[int]]:
    """The tokens of each segment."""
    sizes = [N // M + (s >= M - N % M) for s in range(M)]
    return [group.tolist() for group in torch.arange(N).split(sizes)]


def pseudo_inverse(A: Tensor, iterations: int) -> Tensor:
    Z = A.T / (A.abs().sum(0).max() * A.abs().sum(1).max())
    for _ in range(iterations):
        P = A @ Z
        Z = (13 * Z - 15 * Z @ P + 7 * Z @ P @ P - Z @ P @ P @ P) / 4
    return Z


def convolved(weight: Tensor, v: Tensor, real: list[int]) -> Tensor:
    taps = weight.flatten()
    rows = []
    for i in range(len(v)):
        near = [j for j in real if abs(j - i) <= len(taps) // 2]
        terms = (taps[j - i + len(taps) // 2] * v[j] for j in near)
        rows.append(sum(terms, torch.zeros_like(v[i])))
    return torch.stack(rows)


class Sdpa(Nystromformer):
    def approximate(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None) -> Tensor:
        low_q, low_k, seen, Z = self.landmarks(q, k, keys)
        return self.softmax(q, low_k, Z @ self.softmax(low_q, k, v, keys), seen)

    def softmax(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor | None) -> Tensor:
        if keys is not None:
            # a row without keys may be NaN; it may use all, whose values are 0
            keys = keys | ~keys.any(-1, keepdim=True)
        return scaled_dot_product_attention(q, k, v, attn_mask=keys)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """As eager, but Z (W v) instead of F Z."""
        plain = Nystromformer.flops(config, w)
        M = config.landmarks
        if w.seq_len <= M:
            return plain
        saved = 2 * M * M * (w.tokens * w.heads - w.batch * w.width)
        return at.Flops(plain.projections, plain.core - saved)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        M = config.landmarks
        if w.seq_len <= M:
            return w.heads * w.tokens
        return w.heads * (w.tokens + (3 + 9 * config.iterations) * w.batch * M * M)


def weights(q: Tensor, k: Tensor, keys: Tensor | None) -> Tensor:
    """softmax(q kᵀ / √d); 0 in rows without keys."""
    return at.masked_softmax(q @ (k.mT / q.shape[-1] ** 0.5), keys)


def segment_sums(x: Tensor, M: int) -> Tensor:
    """[..., N, e] to [..., M, e], the longer segments last."""
    size, extra = divmod(x.shape[-2], M)
    short, long = x.split([(M - extra) * size, extra * (size + 1)], -2)
    sums = short.unflatten(-2, (-1, size)).sum(-2)
    if not extra:
        return sums
    return torch.cat([sums, long.unflatten(-2, (-1, size + 1)).sum(-2)], -2)


def parameters(config: Config, w: at.Workload) -> int:
    """The four projections and a convolution kernel for each head."""
    return at.projection_parameters(config, w) + w.heads * config.conv_kernel


CARD = at.Card(
    forms={"eager": Nystromformer, "sdpa": Sdpa},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.MEMORY,
    causality=at.Causality.NEVER,
    paper=at.Paper(
        "Nyströmformer: A Nyström-Based Algorithm for Approximating Self-Attention",
        "Xiong et al.",
        2021,
        "arXiv:2102.03902",
    ),
    cost=at.Cost("O(N·m)", time=1, memory=1),
    symbols={"m": ("landmarks", "landmarks"), "k": ("landmarks", "landmarks")},
    examples=(
        Config(landmarks=4, conv_kernel=5),
        Config(landmarks=7, conv_kernel=0, iterations=3, bias=True),
        Config(landmarks=20, conv_kernel=33, bias=True),
    ),
    default="sdpa",
    exempt={at.Exemption.EXTRA_PADDING: "a landmark averages N / M tokens"},
    no_decode_reason="its landmarks are means over parts of the whole sequence",
)
