"""Adaptively sparse transformer (Correia et al., 2019): each head learns how many weights are 0.

    q, k, v = x W_Q, x W_K, x W_V                       [B, H, N, d] each
    Z = q kᵀ / √d                                       [B, H, N, N]
    A = α-entmax(Z), along keys                         [B, H, N, N]
    o = A v                                             [B, H, N, d]

    α-entmax(z)_j = [(α − 1) z_j − τ]₊^(1 / (α − 1)), with τ such that they sum to 1

Each head learns its α = 1 + sigmoid(a). Towards 1 this becomes softmax; at 2 it is sparsemax.

With y_j = [(α − 1) z_j − τ]₊, τ solves ‖y‖_p = 1 for p = 1 / (α − 1). That norm is convex,
decreasing and almost linear in τ, so Newton's method increases to τ from its first step on and
converges to the last digits in 3 to 10 steps. Both gradients, for z and α, are the paper's closed
forms.

`chunked` is exact. It processes a few rows at a time, keeps only τ and recomputes the weights in
the backward pass, so no N × N tensor is stored. Without a mask its τ starts where it would be if
the numbers of a row were normally distributed, which saves steps. For decoding, the state is the
cache of k and v.

Differs from the paper in one bound: α stays within [1.01, 2), because p diverges at 1.
Source: arXiv:1909.00015, equations (6) to (8) and proposition 1.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnbench import attention as at

STEPS = 10  # the flattest rows need all; most stop after 4 or 5
LEAST = 1e-30  # of y; whatever is smaller counts as 0
NEGLIGIBLE = 1e-20  # powers of y
GRID = 17  # points of a normal distribution
SPARSITY_RANGE = (0.01, 1 - 1e-6)  # of α − 1


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """Adaptively sparse attention has no further options: α is learned."""


class AdaptivelySparse(at.CachedAttention):
    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.a = nn.Parameter(torch.randn(workload.heads))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        logits = q @ (k.mT / q.shape[-1] ** 0.5)  # [B, H, N, N]
        allowed = at.allowed_keys(q, k, at.key_mask(mask), self.causal)
        if allowed is not None:
            logits = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
        o = self.entmax(logits) @ v
        return o if mask is None or allowed is None else o * allowed.any(-1, keepdim=True)

    def attend_next(self, q: Tensor, state: at.Cache, mask: Tensor | None) -> Tensor:
        k, v = state.held()
        logits = q / q.shape[-1] ** 0.5 @ k.mT
        if mask is not None:
            logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
        return self.entmax(logits) @ v

    def entmax(self, logits: Tensor) -> Tensor:
        """The weights, [B, H, N, N]."""
        return Entmax.apply(logits, self.sparsity()[:, None, None])

    def sparsity(self) -> Tensor:
        """α - 1 of each head [H], at least float32: narrow types would round it to 1."""
        return at.widen(self.a).sigmoid().clamp(*SPARSITY_RANGE)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """q kᵀ and A v; the products are full even if causal."""
        return at.Flops(at.projection_flops(w), 2 * (2 * w.tokens * w.seq_len * w.width))


def reference(module: AdaptivelySparse, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    d = module.width // module.heads
    q = module.query(x)
    k = module.key(x)
    v = module.value(x)
    heads = []
    for h in range(module.heads):
        part = slice(h * d, (h + 1) * d)
        alpha = 1 + torch.sigmoid(module.a[h])
        rows = []
        for i in range(len(x)):
            keys = [j for j in range(len(x)) if mask is None or mask[j]]
            keys = [j for j in keys if j <= i or not module.causal]
            z = k[keys, part] @ q[i, part] / d**0.5
            rows.append(entmax(z, alpha) @ v[keys, part] if keys else torch.zeros_like(v[i, part]))
        heads.append(torch.stack(rows))
    return module.output(torch.cat(heads, -1))


def entmax(z: Tensor, alpha: Tensor) -> Tensor:
    """τ by bisection; one Newton step at the root then provides the gradients."""
    p = 1 / (alpha - 1)
    x = (alpha - 1) * z
    power = p.item()
    entries = x.tolist()
    low = max(entries) - 1
    high = max(entries)
    for _ in range(60):
        middle = (low + high) / 2
        over = sum((entry - middle) ** power for entry in entries if entry > middle) > 1
        low, high = (middle, high) if over else (low, middle)
    inside = x > low
    y = x[inside] - low
    tau = low + ((y**p).sum() - 1) / (p * y ** (p - 1)).sum().detach()
    return torch.zeros_like(z).masked_scatter(inside, (x[inside] - tau) ** p)


class Chunked(AdaptivelySparse):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        sparsity = self.sparsity().repeat(len(q))  # [B·H]
        keys = None if mask is None else mask.repeat_interleave(self.heads, 0)  # [B·H, N]
        q, k, v = (x.flatten(0, 1) for x in (q / q.shape[-1] ** 0.5, k, v))
        o = Rows.apply(q, k, v, sparsity, keys, self.causal).unflatten(0, (-1, self.heads))
        if mask is None:
            return o
        seen = mask.cumsum(-1) > 0 if self.causal else mask.any(-1, keepdim=True)
        return o * seen[:, None, :, None]

    @classmethod
    def flops(cls, config: Config, w: at.Workload) -> at.Flops:
        """As eager; without a mask also the means and squares from which τ starts."""
        eager = super().flops(config, w)
        starts = not (w.causal or w.padding)
        first = 2 * w.tokens * w.width * (1 + 2 * w.head_width)
        return replace(eager, core=eager.core + (first if starts else 0))

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return 2 * w.heads * w.tokens + 5 * at.logits_at_once(w.device)


def threshold(
    x: Tensor, a: Tensor, start: Tensor | None = None, counts: Tensor | None = None
) -> Tensor:
    """τ [·, 1] of rows x = (α - 1) (z - max z) [·, N]; a = α - 1.

    `start`: about where it is; `counts` [N]: how often each number of a row stands there. The
    largest of each row is 0: beside larger ones, numbers would be too coarse for τ.
    """
    N = x.shape[-1]
    lowest = -1.0  # since no weight is above 1, and the largest at least 1 / N
    # the p-norm of N numbers is at least N^a times their mean
    tau = x.mean(-1, keepdim=True) - N**-a if start is None else start
    tau = torch.minimum(tau.clamp(min=lowest), -(N**-a))
    for _ in range(STEPS):
        y, w = powers(x, tau, a)
        w = w if counts is None else w * counts
        total = y.mul_(w).sum(-1, keepdim=True)
        step = total * (1 - total**-a) / w.sum(-1, keepdim=True)
        tau = (tau + step).clamp(min=lowest)
        # convergence is quadratic, so the next step would be below the last digit; a GPU, which
        # would have to be waited for, takes them all, as the many rows of its pieces mostly need
        if x.is_cpu and step.abs().amax() < torch.finfo(x.dtype).eps ** 0.6:
            break
    return tau


def normal_threshold(q: Tensor, k: Tensor, a: Tensor) -> Tensor:
    """τ [G, N, 1] if each row of q kᵀ were drawn from a normal distribution of its mean and width.

    It is not shifted by the largest of its row. q and k are [G, N, d]: means over keys come from
    means of k and of products of its columns.
    """
    q = at.widen(q)
    k = at.widen(k)
    a = a[:, None, None]
    mean = q @ k.mean(-2, keepdim=True).mT
    square = ((q @ (k.mT @ k / k.shape[-2])) * q).sum(-1, keepdim=True)
    grid = torch.linspace(-4, 4, GRID, device=q.device, dtype=q.dtype)
    width = (square - mean.square()).clamp(min=0).sqrt()
    largest = width * grid[-1]
    count = k.shape[-2]
    counts = count * (-grid.square() / 2).softmax(-1)
    return threshold(width * (grid - grid[-1]), a, -largest - count**-a, counts) + mean + largest


def powers(x: Tensor, tau: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """y = [x - τ]₊ and w = y^(1/a - 1), which is also A^(2 - α)."""
    y = (x - tau).clamp_(min=LEAST)
    # a quarter of the time of a power, if no number is so small that the processor needs long
    logs = torch.threshold(y.log(), math.log(2 * LEAST), -math.inf)
    w = logs.mul_(1 / a - 1).clamp_(min=math.log(NEGLIGIBLE)).exp_()
    return y, torch.threshold(w, 2 * NEGLIGIBLE, 0.0)


def weights(x: Tensor, a: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """A and w [·, N] from x = (α - 1) z [·, N] and τ [·, 1]."""
    y, w = powers(x, tau, a)
    A = y.mul_(w)
    return A.div_(A.sum(-1, keepdim=True)), w


def gradients(A: Tensor, w: Tensor, a: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the logits [·, N] and, per row, of α [·, 1] from the gradient of A."""
    skewed = (w * grad).sum(-1, keepdim=True) / w.sum(-1, keepdim=True)
    slope = (A * grad).sum(-1, keepdim=True) - skewed
    entropy = A.clamp(min=torch.finfo(A.dtype).tiny).log_().mul_(A)
    tilt = (entropy * grad).sum(-1, keepdim=True) - skewed * entropy.sum(-1, keepdim=True)
    return w * (grad - skewed), slope / a**2 - tilt / a


class Entmax(at.Written):
    """logits [B, H, N, N] and α - 1 [H, 1, 1] to weights [B, H, N, N]."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, a: Tensor) -> Tensor:
        # powers lose too much in the half types
        x = a * at.widen(logits)
        x = x - x.amax(-1, keepdim=True)
        A, _ = weights(x, a, threshold(x, a))
        ctx.save_for_backward(A, a)
        return A.to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        A, a = ctx.saved_tensors
        dtype = grad.dtype
        grad = at.widen(grad)
        to_logits, to_alpha = gradients(A, A ** (1 - a), a, grad)
        return to_logits.to(dtype), to_alpha.sum((0, 2, 3))[:, None, None]


class Rows(at.Written):
    """q (scaled), k, v [B·H, N, d], α - 1 [B·H], keys [B·H, N] or None to o [B·H, N, d]."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, a: Tensor, keys: Tensor | None, causal: bool
    ) -> Tensor:
        o = torch.empty_like(v)
        tau = at.widen(q.new_empty(*q.shape[:2], 1))
        if guessed := keys is None and not causal:
            heads = max(1, at.logits_at_once(q.device.type) // (GRID * q.shape[1]))
            parts = zip(*(t.split(heads) for t in (scaled(q, a), k, a)), strict=True)
            tau = torch.cat([normal_threshold(*part) for part in parts])
        for part, x, largest in pieces(scaled(q, a), k, keys, causal):
            exponent = a[part[0], None, None]
            tau[part] = threshold(x, exponent, tau[part] - largest if guessed else None)
            A, _ = weights(x, exponent, tau[part])
            o[part] = A.to(v.dtype) @ v[part[0]]
        ctx.save_for_backward(q, k, v, a, keys, tau)
        ctx.causal = causal
        return o

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, a, keys, tau = ctx.saved_tensors
        dq, dk, dv, da = (torch.zeros_like(x) for x in (q, k, v, a))
        for part, x, _ in pieces(scaled(q, a), k, keys, ctx.causal):
            head = part[0]
            A, w = weights(x, a[head, None, None], tau[part])
            dv[head] += A.to(v.dtype).mT @ grad[part]
            to_A = at.widen(grad[part] @ v[head].mT)
            to_logits, to_alpha = gradients(A, w, a[head, None, None], to_A)
            to_logits = to_logits.to(q.dtype)
            dq[part] = to_logits @ k[head]
            dk[head] += to_logits.mT @ q[part]
            da[head] += to_alpha.sum((1, 2))
        return dq, dk, dv, da, None, None


def scaled(q: Tensor, a: Tensor) -> Tensor:
    """(α - 1) q."""
    return q * a[:, None, None].to(q.dtype)


def pieces(
    q: Tensor, k: Tensor, keys: Tensor | None, causal: bool
) -> Iterator[tuple[tuple[slice, slice], Tensor, Tensor]]:
    """Slices of heads and rows, q kᵀ [heads, rows, N] less the largest of each row, and these.

    The cache holds a few.
    """
    count, N = q.shape[:2]
    size = at.logits_at_once(q.device.type) // 2
    rows = min(N, max(1, size // N))
    heads = max(1, size // (rows * N))
    lowest = torch.finfo(q.dtype).min
    for h in range(0, count, heads):
        for i in range(0, N, rows):
            part = slice(h, h + heads), slice(i, i + rows)
            x = q[part] @ k[part[0]].mT
            if causal:
                j = torch.arange(N, device=q.device)
                x.masked_fill_(j > j[part[1], None], lowest)
            if keys is not None:
                x.masked_fill_(~keys[part[0], None], lowest)
            x = at.widen(x)
            largest = x.amax(-1, keepdim=True)
            x -= largest  # rows without a key become 0
            yield part, x, largest


def parameters(config: Config, w: at.Workload) -> int:
    """The four projections and one α for each head."""
    return at.projection_parameters(config, w) + w.heads


CARD = at.Card(
    forms={"eager": AdaptivelySparse, "chunked": Chunked},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.FULL,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper("Adaptively Sparse Transformers", "Correia et al.", 2019, "arXiv:1909.00015"),
    cost=at.Cost("O(N²·d)", time=2, memory=2),
    examples=(Config(), Config(bias=True)),
    default="chunked",  # faster at every length
    uncompiled="torch.compile cannot trace Newton's method, which stops when its steps are small",
    launches="some rows at a time, whose logits Newton's method reads in each of its ten steps",
)
