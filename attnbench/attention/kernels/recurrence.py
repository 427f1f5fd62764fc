"""Recurrences over tokens with a matrix as state, token by token and in chunks.

    decay   S_t = e^{g_t} S_{t−1} + k_t v_tᵀ                                 [B, H, dk, dv]
    delta   S_t = (I − β_t k_t k_tᵀ) e^{g_t} S_{t−1} + β_t k_t v_tᵀ          [B, H, dk, dv]
    dplr    S_t = (I − b_t r_tᵀ) e^{g_t} S_{t−1} + k_t v_tᵀ                  [B, H, dk, dv]
    o_t = S_tᵀ q_t                                                           [B, H, N, dv]

Logs of decays g ≤ 0 are [B, H, N], or [1, H, 1] if they are the same at every token, or
[B, H, N, dk] if every row of S has its own: e^{g_t} is then a diagonal matrix, as always in `dplr`,
"diagonal plus low rank". In the decay rule R heads share their q and k, [B, K, N, dk] with K = H /
R; its state is [B, K, dk, R, dv], so that shared products are one product. All rules take the state
before the tokens and return that after them. Tokens that do not fill a chunk form a shorter one.

In a chunk of C tokens, with G_i the sum of g up to and including token i, Γ_ij = e^{G_i − G_j} for
j ≤ i, and S the state before the chunk:

    decay   O = (Q Kᵀ ⊙ Γ) V + (Q ⊙ e^G) S
            S⁺ = e^{G_C} S + (K ⊙ e^{G_C − G})ᵀ V
    delta   [U W] = (I + tril(X Kᵀ ⊙ Γ, −1))⁻¹ [diag(β) V, X ⊙ e^G]          X = diag(β) K
            O = A U + (Q ⊙ e^G − A W) S                   A = Q Kᵀ ⊙ Γ
            S⁺ = T U + (e^{G_C} I − T W) S                T = (K ⊙ e^{G_C − G})ᵀ
    dplr    the same with B for K, R for X and −tril(R Kᵀ ⊙ Γ, −1) V for diag(β) V; what the keys
            themselves add to O and S⁺ is as in the decay rule

All exponents are at most 0, so strong decays neither overflow nor give NaN gradients. G is float64,
since one strong decay would leave float32 sums after it too few digits for their differences: in
chunks, strong decays cost no digits either. G has one number for a token of a head, so float64
costs little. With decays by row, Γ is inside the products: these are float32 on a CPU beside decays
that leave enough, else float64, and the strongest decays are bounded (`attention.kernels.decays`).
Only `dplr` multiplies by e^G and divides by it: its decays are to be weak, g ≥ −1, and its chunks
to have at most 64 tokens.

Only the states of chunks, S⁺ from S, are computed one after the other; of the rest, as many chunks
at a time as a core's cache holds. Decays by row take several times the memory of their inputs, so
in training they keep the inputs and the states between such parts, and compute all but the last
two parts once more.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnbench.attention.kernels.autograd import recomputed, widened
from attnbench.attention.kernels.decays import (
    DecayRatio,
    WeakDecays,
    channel_flops,
    channel_products,
)
from attnbench.attention.kernels.primitives import logits_at_once
from attnbench.attention.kernels.systems import Solved, carried

UNROLLED = "torch.compile would unroll the loop over tokens"
IN_TURN = "a state goes from chunk to chunk in turn, with a small product for each"

Rule = Callable[..., tuple[Tensor, Tensor]]


@widened
def decay_rule(
    S: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor, chunk: int | None
) -> tuple[Tensor, Tensor]:
    """o [B, H, N, dv], and S after the tokens; without a chunk, token by token.

    Shapes: g [B, H, N] or [1, H, 1], q and k [B, K, N, dk], v [B, H, N, dv]. With g
    [B, H, N, dk], K is H and S is [B, H, dk, dv].
    """
    by_row = g.dim() == 4
    if chunk is None or q.shape[2] == 1:
        return by_token(row_decay_token if by_row else decay_token, S, g, q, k, v)
    return by_chunk(row_decay_chunks if by_row else decay_chunks, chunk, S, g, q, k, v)


@widened
def delta_rule(
    S: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, chunk: int | None
) -> tuple[Tensor, Tensor]:
    """o [B, H, N, dv], and S after the tokens; without a chunk, token by token.

    Shapes: g [B, H, N], [1, H, 1] or [B, H, N, dk], q and k [B, H, N, dk], v [B, H, N, dv],
    β [B, H, N].
    """
    if chunk is None or q.shape[2] == 1:
        return by_token(delta_token, S, g, q, k, v, beta)
    return by_chunk(delta_chunks, chunk, S, g, q, k, v, beta)


@widened
def dplr_rule(
    S: Tensor,
    g: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    b: Tensor,
    r: Tensor,
    chunk: int | None,
) -> tuple[Tensor, Tensor]:
    """o [B, H, N, dv], and S after the tokens; without a chunk, token by token.

    Shapes: g ≥ −1, q, k, b and r [B, H, N, dk], v [B, H, N, dv].
    """
    if chunk is None or q.shape[2] == 1:
        return by_token(dplr_token, S, g, q, k, v, b, r)
    return by_chunk(dplr_chunks, chunk, S, g, q, k, v, b, r)


def decay_flops(seq_len: int, chunk: int | None, groups: int, heads: int, dk: int, dv: int) -> int:
    """FLOPs of `decay_rule` for one sequence, with K groups: k vᵀ and Sᵀ q for each token.

    In chunks also Q Kᵀ of each group, and its product with V for each head.
    """
    near = 0 if chunk is None or seq_len == 1 else pairs(seq_len, chunk)
    return 4 * heads * seq_len * dk * dv + 2 * near * (groups * dk + heads * dv)


def row_decay_flops(seq_len: int, chunk: int | None, heads: int, dk: int, dv: int) -> int:
    """FLOPs of `decay_rule` for one sequence with decays by row.

    Those of one decay, but with products by channel for Q Kᵀ.
    """
    near = 0 if chunk is None or seq_len == 1 else channel_products_flops(seq_len, chunk, 1, dk)
    return decay_flops(seq_len, chunk, 0, heads, dk, dv) + heads * near


def delta_flops(
    seq_len: int, chunk: int | None, heads: int, dk: int, dv: int, by_row: bool = False
) -> int:
    """FLOPs of `delta_rule` for one sequence: Sᵀ k, k (v − Sᵀ k)ᵀ and Sᵀ q for each token.

    In chunks K Kᵀ, Q Kᵀ (`by_row` by channel), the triangular solution [U W], A and T times it, the
    states of chunks, and what is read of them.
    """
    if chunk is None or seq_len == 1:
        return 6 * heads * seq_len * dk * dv
    near = pairs(seq_len, chunk)
    both = dk + dv
    products = channel_products_flops(seq_len, chunk, 2, dk) if by_row else 4 * near * dk
    solved = products + near * both + 2 * (near + seq_len * dk) * both
    states = -(-seq_len // chunk) * dk + seq_len
    return heads * (solved + 2 * states * dk * dv)


def dplr_flops(seq_len: int, chunk: int | None, heads: int, dk: int, dv: int) -> int:
    """FLOPs of `dplr_rule` for one sequence: those of the delta rule, and k vᵀ.

    In chunks also products with K, and those with V.
    """
    added = 2 * seq_len * dk * dv
    if chunk is not None and seq_len > 1:
        added += 4 * pairs(seq_len, chunk) * (dk + dv)
    return delta_flops(seq_len, chunk, heads, dk, dv) + heads * added


def pairs(seq_len: int, chunk: int) -> int:
    """How many pairs of tokens lie in one chunk, in both orders and with themselves: Σ C²."""
    return sum(count * C * C for count, C in spans(seq_len, chunk, seq_len))


def channel_products_flops(seq_len: int, chunk: int, rows: int, dk: int) -> int:
    """FLOPs of `channel_products` in all chunks of one head."""
    return rows * sum(count * channel_flops(C, dk) for count, C in spans(seq_len, chunk, seq_len))


def by_token(rule: Rule, S: Tensor, g: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
    outputs = []
    g = g.expand(-1, -1, inputs[0].shape[2], *g.shape[3:])
    for token in zip(*(x.unbind(2) for x in (g, *inputs)), strict=True):
        o, S = rule(S, *token)
        outputs.append(o)
    return torch.stack(outputs, 2), S


def decay_token(S: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """g [B, H], q and k [B, K, dk], v [B, H, dv] to o [B, H, dv], and S."""
    decay = g.exp().unflatten(1, S.shape[1:4:2])  # [B, K, R]
    added = k[..., None] @ v.reshape(*k.shape[:2], 1, -1)  # [B, K, dk, R dv]
    S = decay[:, :, None, :, None] * S + added.view(S.shape)
    return (q[:, :, None] @ S.flatten(3)).view(v.shape), S


def row_decay_token(S: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """g, q and k [B, H, dk], v [B, H, dv] to o [B, H, dv], and S."""
    S = g.exp()[..., None] * S + k[..., None] @ v[:, :, None]
    return (q[:, :, None] @ S).squeeze(2), S


def delta_token(
    S: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """g [B, H] or [B, H, dk], q and k [B, H, dk], v [B, H, dv], β [B, H] to o [B, H, dv], and S."""
    S = g.exp().view(*g.shape[:2], -1, 1) * S
    change = beta[..., None, None] * (v[:, :, None] - k[:, :, None] @ S)  # [B, H, 1, dv]
    S = S + k[..., None] @ change
    return (q[:, :, None] @ S).squeeze(2), S


def dplr_token(
    S: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor, b: Tensor, r: Tensor
) -> tuple[Tensor, Tensor]:
    """g, q, k, b and r [B, H, dk], v [B, H, dv] to o [B, H, dv], and S."""
    S = g.exp()[..., None] * S
    S = S - b[..., None] @ (r[:, :, None] @ S) + k[..., None] @ v[:, :, None]
    return (q[:, :, None] @ S).squeeze(2), S


def by_chunk(
    rule: Rule, chunk: int, S: Tensor, g: Tensor, *inputs: Tensor
) -> tuple[Tensor, Tensor]:
    outputs: list[Tensor] = []
    q = inputs[0]
    most = max(1, logits_at_once(q.device.type) * q.shape[2] // (q.numel() * chunk))
    parts = [*spans(q.shape[2], chunk, most)]
    sizes = [count * C for count, C in parts]
    # with tokens before heads, as projections have them, gradients are laid out as inputs are
    flat = (x.transpose(1, 2) for x in (g, *inputs))
    every = [[x] * len(parts) if x.shape[1] == 1 else x.split(sizes, 1) for x in flat]
    for (_, C), *read in zip(parts, *every, strict=True):
        # the backward pass begins with the last parts, so recomputing these would save little
        if g.dim() == 4 and torch.is_grad_enabled() and len(outputs) < len(parts) - 2:
            o, S = recomputed(by_part, rule, C, S, *read)
        else:
            o, S = by_part(rule, C, S, *read)
        outputs.append(o)
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)).transpose(1, 2), S


def by_part(rule: Rule, C: int, S: Tensor, g: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
    """o [B, tokens, H, dv] of whole chunks, and S after them."""
    decays = chunks(g, C) if g.dim() == 4 else sums(g, C)
    o, S = rule(S, decays, *(chunks(x, C) for x in inputs))
    return o.permute(1, 0, 3, 2, 4).flatten(1, 2), S


def spans(seq_len: int, chunk: int, most: int) -> Iterator[tuple[int, int]]:
    """Counts of whole chunks, at most `most` each, with their length C; then the shorter chunk."""
    whole, rest = divmod(seq_len, chunk)
    yield from ((min(most, whole - done), chunk) for done in range(0, whole, most))
    if rest:
        yield 1, rest


def chunks(x: Tensor, C: int) -> Tensor:
    """Tokens [B, N, H, ...] as chunks [n, B, H, C, ...]."""
    return x.unflatten(1, (-1, C)).movedim((1, 2), (0, 3)).contiguous()


def sums(g: Tensor, C: int) -> Tensor:
    """G in float64: [n, B, H, C], or [1, 1, H, C] of constant decays."""
    if g.shape[1] == 1:
        return g.mT[None] * torch.arange(1, C + 1, dtype=torch.float64, device=g.device)
    # `cumsum` to float64 would sum gradients in the type of g
    return chunks(g, C).double().cumsum(-1)


def decay_chunks(S: Tensor, G: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """q and k [n, B, K, C, dk], v [n, B, H, C, dv] to o [n, B, H, C, dv], and S."""
    groups = S.shape[1:4:2]  # K, R
    v = v.unflatten(2, groups)  # [n, B, K, R, C, ...]
    G = G.unflatten(2, groups)
    growth, left = (x.to(v.dtype).exp() for x in (G, G[..., -1:] - G))
    A = (q @ k.mT)[:, :, :, None] * DecayRatio.apply(G, v.dtype)  # [n, B, K, R, C, C]
    kept = v * left[..., None]
    added = k.mT @ kept.transpose(3, 4).flatten(4)  # [n, B, K, dk, R dv]
    decay = growth[:, :, :, None, :, -1:].expand(len(q), *(-1,) * 5)  # [n, ..., 1, R, 1]
    before, S = carried(torch.addcmul, added.unflatten(-1, S.shape[3:]), decay, S)
    read = (q @ before.flatten(4)).unflatten(-1, S.shape[3:])  # [n, B, K, C, R, dv]
    o = torch.addcmul(A @ v, read.transpose(3, 4), growth[..., None])
    return o.flatten(2, 3), S


def row_decay_chunks(
    S: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    """g, q and k [n, B, H, C, dk], v [n, B, H, C, dv] to o [n, B, H, C, dv], and S."""
    k, last, q, A = channel_products(k, g, q)
    added = k.mT @ v
    before, S = carried(torch.addcmul, added, last.mT.expand_as(added), S)
    return A @ v + q @ before, S


def delta_chunks(
    S: Tensor, decays: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """q and k [n, B, H, C, dk], v [n, B, H, C, dv] to o [n, B, H, C, dv], and S.

    `decays` are G [n, B, H, C], or g [n, B, H, C, dk] if every row of S has its own.
    """
    u = beta[..., None] * v
    r = beta[..., None] * k
    if decays.dim() == 5:
        k, last, r, q, L, A = channel_products(k, decays, r, q)
    else:
        gamma = DecayRatio.apply(decays, u.dtype)
        exponents = decays, decays[..., -1:] - decays
        growth, left = (x.to(u.dtype).exp()[..., None] for x in exponents)
        L, A = (x @ k.mT * gamma for x in (r, q))
        k = k * left
        last = growth[..., -1:, :]
        r = r * growth
        q = q * growth
    o, S = Solved.apply(S, L, A, torch.cat([u, r], -1), q, k, last)
    return o, S


def dplr_chunks(
    S: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor, b: Tensor, r: Tensor
) -> tuple[Tensor, Tensor]:
    """g, q, k, b and r [n, B, H, C, dk], v [n, B, H, C, dv] to o [n, B, H, C, dv], and S."""
    r, q, b, k, last, b_last, k_last = WeakDecays.apply(g, r, q, b, k)
    past = torch.ones(*q.shape[-2:-1] * 2, dtype=q.dtype, device=q.device).tril()
    L = r @ b.mT
    A = q @ b.mT * past
    right = torch.cat([(r @ k.mT * -past.tril(-1)) @ v, r], -1)
    added = (q @ k.mT * past) @ v, k_last.mT @ v
    o, S = Solved.apply(S, L, A, right, q, b_last, last, *added)
    return o, S
