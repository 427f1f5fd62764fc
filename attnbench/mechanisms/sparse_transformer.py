"""Sparse Transformer (Child et al., 2019): half of the heads read near tokens, half every L-th.

    q, k, v = x W_Q, x W_K, x W_V                                 [B, H, N, d] each
    local      j ∈ S_i  if  ⌊j / L⌋ = ⌊i / L⌋
    strided    j ∈ S_i  if  (i − j) mod L = 0
    fixed      j ∈ S_i  if  j mod L ≥ L − c
    o_i = softmax_{j ∈ S_i}(q_i k_jᵀ / √d) v_j                    [B, H, N, d]

The first half of the heads is local; the others are strided or fixed, by `pattern`. Causal heads
also require j ≤ i. The tokens form a grid of N / L rows of L: local heads attend within rows and
strided heads within columns; no other scores are computed. A head without a key gives 0: this
happens in the causal fixed pattern to tokens before the first summary.

`sdpa` uses a fused kernel for each row and column, which stores no scores.
Differs from the paper: its local heads see the last L tokens; ours see the token's block, as
"Efficient Transformers: A Survey" prints. Full (non-causal) attention is an extension.
Left out: patterns that alternate by layer or are merged in one head; separate subblocks for the
summary heads.
Notation: our L is the paper's l (`stride`), c is `summary`; `stride=None` means the power of two
nearest √N.
Source: arXiv:1904.10509, section 4.3.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`pattern`: strided or fixed; `stride`: L, None for near √N; `summary`: c, for fixed."""

    pattern: str = "strided"
    stride: int | None = 128
    summary: int = 8

    def __post_init__(self) -> None:
        self.require_one_of("pattern", ("strided", "fixed"))
        self.require_at_least(1, "stride", "summary")

    def span(self, seq_len: int) -> int:
        """L for this length."""
        return self.stride or 2 ** round(math.log2(seq_len) / 2)

    def summaries(self, seq_len: int) -> int:
        """Number of the first N positions that are among the last c of their block."""
        L = self.span(seq_len)
        c = min(self.summary, L)
        return seq_len // L * c + max(0, seq_len % L - (L - c))


class SparseTransformer(at.QKVAttention):
    kernel: at.Kernel = staticmethod(at.softmax_attention)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        N = q.shape[2]
        local = self.heads // 2
        near = self.grid(q[:, :local], k[:, :local], v[:, :local], mask, columns=False)
        q = q[:, local:]
        k = k[:, local:]
        v = v[:, local:]
        if self.config.pattern == "strided":
            far = self.grid(q, k, v, mask, columns=True)
        else:
            far = self.summarised(q, k, v, mask)
        return torch.cat([near, far], 2)[:, :N].transpose(1, 2)

    def grid(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, columns: bool
    ) -> Tensor:
        """Attention within rows or columns: [B, h, N, d] three times to [B, N, h, d]."""
        B, _, N, _ = q.shape
        # a stride beyond N acts like N: one row, and columns of one token each
        L = min(self.config.span(N), N)
        if columns and L == N:
            return (v if mask is None else v * mask[:, None, :, None]).transpose(1, 2)
        axis = (1, 2) if columns else (1, 1)
        # a causal query never reaches the padding at the end
        extra = 0 if self.causal and mask is None else -N % L
        keys = at.padded_mask(mask, N, extra, q.device)
        if keys is not None:
            keys = keys.expand(B, -1).unflatten(1, (-1, L))
            keys = keys.transpose(*axis).flatten(0, 1)[:, None, None]
        rows = (F.pad(x.transpose(1, 2), (0, 0, 0, 0, 0, -N % L)) for x in (q, k, v))
        groups = (x.unflatten(1, (-1, L)).transpose(*axis).flatten(0, 1) for x in rows)
        q, k, v = (x.transpose(1, 2) for x in groups)
        o = self.kernel(q, k, v, keys, self.causal)
        del q, k, v  # before the output is copied
        o = o.transpose(1, 2).unflatten(0, (B, -1)).transpose(*axis)  # [B, N / L, L, h, d]
        return o.flatten(1, 2)[:, :N]

    def summarised(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """Attention to the last c tokens of every block: [B, h, N, d] to [B, N, h, d]."""
        N = q.shape[2]
        L = self.config.span(q.shape[2])
        S = self.config.summaries(N)
        c = min(self.config.summary, L)
        if S == 0:
            return torch.zeros_like(q).transpose(1, 2)
        starts = torch.arange(0, N, L, device=q.device)[:, None]
        j = (starts + torch.arange(L - c, L, device=q.device)).flatten()[:S]
        keys = None if mask is None else mask[:, None, None, j]
        if self.causal:
            past = j <= torch.arange(N, device=q.device)[:, None]  # [N, S]
            keys = past[None, None] if keys is None else keys & past
        return self.kernel(q, k[:, :, j], v[:, :, j], keys).transpose(1, 2)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """q kᵀ and A v within rows, and within columns or to the summaries."""
        N = w.seq_len
        d = w.head_width
        local = w.heads // 2
        L = min(config.span(N), N)
        n = -(-N // L)
        near = local * n * L * L
        far = n * L * n * (n > 1) if config.pattern == "strided" else N * config.summaries(N)
        return at.Flops(at.projection_flops(w), 4 * w.batch * d * (near + (w.heads - local) * far))

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        N = w.seq_len
        L = min(config.span(w.seq_len), w.seq_len)
        far = N // L if config.pattern == "strided" else config.summaries(N)
        return w.tokens * w.heads * (L + far)


def reference(module: SparseTransformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    H = module.heads
    d = module.width // module.heads
    q, k, v = (linear(x).view(N, H, d) for linear in (module.query, module.key, module.value))
    o = torch.zeros_like(q)
    for i in range(N):
        for h in range(H):
            keys = [j for j in chosen(module, i, h, N) if mask is None or mask[j]]
            if keys:
                o[i, h] = (k[keys, h] @ q[i, h] / d**0.5).softmax(0) @ v[keys, h]
    return module.output(o.flatten(1))


def chosen(module: SparseTransformer, i: int, h: int, N: int) -> list[int]:
    """S_i of head h."""
    config = module.config
    L = module.config.span(N)
    last = i + 1 if module.causal else N
    if h < module.heads // 2:
        return [j for j in range(last) if j // L == i // L]
    if config.pattern == "strided":
        return [j for j in range(last) if (i - j) % L == 0]
    return [j for j in range(last) if j % L >= L - config.summary]


class Sdpa(SparseTransformer):
    kernel = staticmethod(at.fused_attention)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        masked = config.pattern == "fixed" and w.causal
        mask = 2 * w.seq_len * config.summaries(w.seq_len) if masked else 0
        return 4 * w.tokens * w.width + mask


def needs(config: Config, w: at.Workload) -> str | None:
    return None if w.heads > 1 else "half of the heads are local, so it takes at least 2 heads"


def exempt(config: Config) -> Mapping[at.Exemption, str]:
    """A given `stride` makes the grid independent of N."""
    return {} if config.stride else {at.Exemption.EXTRA_PADDING: "the stride depends on N"}


CARD = at.Card(
    forms={"eager": SparseTransformer, "sdpa": Sdpa},
    config=Config,
    reference=reference,
    parameters=at.projection_parameters,
    family=at.Family.FIXED,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Generating Long Sequences with Sparse Transformers",
        "Child et al.",
        2019,
        "arXiv:1904.10509",
    ),
    cost=at.Cost("O(N·√N·d)", time=1.5, memory=1.5),
    symbols={"K": ("tokens that a query attends to", "stride")},
    examples=(
        Config(stride=8),
        Config(stride=None, bias=True),
        Config(pattern="fixed", stride=8, summary=3),
    ),
    default="sdpa",
    needs=needs,
    exempt=exempt,
    no_decode_reason="left out: its stride is √N by default, so a longer sequence changes what past"
    " tokens read",
)
