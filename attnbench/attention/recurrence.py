"""Recurrences over tokens with a matrix as state, token by token and in chunks.

    decay   S_t = e^{g_t} S_{t−1} + k_t v_tᵀ                                 [B, H, dk, dv]
    delta   S_t = (I − β_t k_t k_tᵀ) e^{g_t} S_{t−1} + β_t k_t v_tᵀ          [B, H, dk, dv]
    sum     S_t = S_{t−1} + k_t v_tᵀ                                         [B, H, dk, dv]
    o_t = S_tᵀ q_t                                                           [B, H, N, dv]

Logs of decays g ≤ 0 are [B, H, N], or [1, H, 1] if they are the same at every token, or
[B, H, N, dk] if every row of S has its own: e^{g_t} is then a diagonal matrix. In the decay rule R
heads share their q and k, [B, K, N, dk] with K = H / R; its state is [B, K, dk, R, dv], so that
shared products are one product. All rules take the state before the tokens and return that after
them. Tokens that do not fill a chunk form a shorter one; only the rule `sum`, whose chunks need not
follow one another, pads them.

In a chunk of C tokens, with G_i the sum of g up to and including token i, Γ_ij = e^{G_i − G_j} for
j ≤ i, and S the state before the chunk:

    decay   O = (Q Kᵀ ⊙ Γ) V + (Q ⊙ e^G) S
            S⁺ = e^{G_C} S + (K ⊙ e^{G_C − G})ᵀ V
    delta   [U W] = (I + tril(diag(β) K Kᵀ ⊙ Γ, −1))⁻¹ diag(β) [V, K ⊙ e^G]
            O = A U + (Q ⊙ e^G − A W) S                   A = Q Kᵀ ⊙ Γ
            S⁺ = T U + (e^{G_C} I − T W) S                T = (K ⊙ e^{G_C − G})ᵀ

All exponents are at most 0, so strong decays neither overflow nor give NaN gradients. G is float64,
since one strong decay would leave float32 sums after it too few digits for their differences: in
chunks, strong decays cost no digits either. Of decays by row, Γ stands inside the products, which
`attention.channels` computes, and G is no sum at all.

Only the states of chunks, S⁺ from S, are computed one after the other; of the rest, as many chunks
at a time as a core's cache holds. Decays by row take several times the memory of their inputs, so
in training they keep the inputs and the states between such parts, and compute all but the last
part once more.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, silu
from torch.utils.checkpoint import checkpoint

from attnbench.attention.channels import channel_flops, channel_products
from attnbench.attention.contract import CoreAttention, Flops, State
from attnbench.attention.primitives import logits_at_once, widen
from attnbench.records import Workload

BLOCK = 256  # tokens that a convolution reads at a time
UNROLLED = "torch.compile would unroll the loop over tokens"

Rule = Callable[..., tuple[Tensor, Tensor]]


class Recurrent(CoreAttention):
    """A mechanism that keeps S of past tokens; a subclass writes `scan` and `extend`."""

    output: nn.Linear

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.shape = self.state_shape(config, workload)

    @staticmethod
    def state_shape(config: Any, workload: Workload) -> tuple[int, ...]:
        """The shape of S of one sequence."""
        raise NotImplementedError

    @classmethod
    def state_elements(cls, config: Any, workload: Workload) -> int:
        return workload.batch * prod(cls.state_shape(config, workload))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.extend(x, mask, self.start(len(x), 0))[0]

    def extend(self, x: Tensor, mask: Tensor | None, state: State) -> tuple[Tensor, State]:
        """The outputs of tokens after a state, and the state after them."""
        raise NotImplementedError

    def attend(self, *inputs: Any) -> Tensor:
        """Tensors of `core_inputs` and a mask [B, N] or None to the output of the core."""
        return self.scan(*inputs, self.nothing(len(inputs[0]), inputs[0]))[0]

    def scan(self, *inputs: Any) -> tuple[Tensor, Tensor]:
        """The core: its inputs, a mask and S to its output, and S after the tokens."""
        raise NotImplementedError

    def nothing(self, batch: int, like: Tensor) -> Tensor:
        """S before the first token, on the device of `like` and at least as precise."""
        return widen(like.new_zeros(batch, *self.shape))

    def start(self, batch: int, capacity: int) -> State:
        return (self.nothing(batch, self.output.weight),)

    def prefill(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.extend(x, None, state)

    @staticmethod
    def chunk(config: Any, d: int) -> int | None:
        """Tokens of a chunk, for d rows of S; None: token by token."""
        return None

    @classmethod
    def step_flops(cls, config: Any, w: Workload) -> Flops:
        """Those of one token."""
        return cls.flops(config, replace(w, seq_len=1))


class Kept(NamedTuple):
    """S, and the last inputs of the convolution [B, W − 1, channels]."""

    S: Tensor
    inputs: Tensor


class Convolved(Recurrent):
    """A recurrence over what a short convolution with `taps` [W, channels] gives."""

    taps: nn.Parameter

    def start(self, batch: int, capacity: int) -> Kept:
        like = self.output.weight
        inputs = like.new_zeros(batch, *self.taps[1:].shape)
        return Kept(self.nothing(batch, like), inputs)


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


def sum_rule(S: Tensor, q: Tensor, k: Tensor, v: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """o [B, H, N, dv], and S after the tokens; q and k [B, H, N, dk], v [B, H, N, dv]."""
    N = q.shape[2]
    if N == 1:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        after = torch.baddbmm(S.flatten(0, 1), k.mT, v)
        return (q @ after).view(*S.shape[:2], 1, -1), after.view(S.shape)
    C = min(chunk, N)
    q, k, v = (pad(x, (0, 0, 0, -N % C)).unflatten(2, (-1, C)) for x in (q, k, v))
    states = torch.cat([S[:, :, None], k.mT @ v], 2).cumsum_(2)  # [B, H, N / C + 1, dk, dv]
    o = (q @ k.mT).tril() @ v + q @ states[:, :, :-1]
    # the rest of the states is freed with them
    return o.flatten(2, 3)[:, :, :N], states[:, :, -1].clone()


def sum_flops(seq_len: int, chunk: int, dk: int, dv: int) -> int:
    """FLOPs of `sum_rule` for one head of one sequence: k vᵀ and Sᵀ q for each token.

    In chunks, the last of which is padded, also Q Kᵀ and its product with V.
    """
    if seq_len == 1:
        return 4 * dk * dv
    C = min(chunk, seq_len)
    return 2 * (seq_len + -seq_len % C) * (2 * dk * dv + C * (dk + dv))


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
    near, both = pairs(seq_len, chunk), dk + dv
    products = channel_products_flops(seq_len, chunk, 2, dk) if by_row else 4 * near * dk
    solved = products + near * both + 2 * (near + seq_len * dk) * both
    states = -(-seq_len // chunk) * dk + seq_len
    return heads * (solved + 2 * states * dk * dv)


def chunk_length(dk: int, by_row: bool = False) -> int:
    """Tokens of a chunk for which both rules were fastest on a CPU, with dk rows of S."""
    if by_row:
        return 32 if dk >= 64 else 16
    return 64 if dk >= 64 else 32


def pairs(seq_len: int, chunk: int) -> int:
    """How many pairs of tokens lie in one chunk, in both orders and with themselves: Σ C²."""
    return sum(count * C * C for count, C in spans(seq_len, chunk, seq_len))


def channel_products_flops(seq_len: int, chunk: int, rows: int, dk: int) -> int:
    """FLOPs of `channel_products` in all chunks of one head."""
    return sum(count * channel_flops(C, rows, dk) for count, C in spans(seq_len, chunk, seq_len))


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


def by_chunk(
    rule: Rule, chunk: int, S: Tensor, g: Tensor, *inputs: Tensor
) -> tuple[Tensor, Tensor]:
    outputs, start, q = [], 0, inputs[0]
    most = max(1, logits_at_once(q.device.type) * q.shape[2] // (q.numel() * chunk))
    for count, C in spans(q.shape[2], chunk, most):
        part = slice(start, start := start + count * C)
        read = [x if x.shape[2] == 1 else x[:, :, part] for x in (g, *inputs)]
        # the backward pass begins with the last part, which it would compute once more at once
        if g.dim() == 4 and torch.is_grad_enabled() and start < q.shape[2]:
            o, S = checkpoint(by_part, rule, C, S, *read, use_reentrant=False)
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
    """Numbers of whole chunks, at most so many, with their length C, then the shorter chunk."""
    whole, rest = divmod(seq_len, chunk)
    yield from ((min(most, whole - done), chunk) for done in range(0, whole, most))
    if rest:
        yield 1, rest


def chunks(x: Tensor, C: int) -> Tensor:
    """Tokens [B, H, N, ...] as chunks [n, B, H, C, ...]."""
    return x.unflatten(2, (-1, C)).movedim(2, 0).contiguous()


def sums(g: Tensor, C: int) -> Tensor:
    """G in float64: [n, B, H, C], or [1, 1, H, C] of constant decays."""
    if g.shape[2] == 1:
        return g[None] * torch.arange(1, C + 1, dtype=torch.float64, device=g.device)
    # `cumsum` to float64 would sum gradients in the type of g
    return chunks(g, C).double().cumsum(-1)


class Ratio(torch.autograd.Function):
    """Γ [..., C, C] in a `dtype`, of G [..., C]: e^{G_i − G_j} for j ≤ i, else 0.

    Differences are masked before `exp`, which would overflow there, and by 0: it is slow at −∞.
    Their float64 stays in the cache, some squares of C × C at a time.
    """

    @staticmethod
    def forward(ctx: Any, G: Tensor, dtype: torch.dtype) -> Tensor:
        gamma = G.new_empty(*G.shape, G.shape[-1], dtype=dtype)
        for square, rows in squares(gamma, G):
            square.copy_(rows[:, :, None] - rows[:, None]).tril_().exp_().tril_()
        ctx.save_for_backward(gamma)
        return gamma

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (gamma,) = ctx.saved_tensors
        to = gamma.new_empty(gamma.shape[:-1], dtype=torch.float64)
        for change, square, rows in squares(gradient, gamma, to):
            differences = (change * square).double()
            torch.sub(differences.sum(-1), differences.sum(-2), out=rows)
        return to, None


def squares(gamma: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Parts of [..., C, C] and of others with the same first dimensions, which become one.

    Each is what a core's cache holds, or what fills a GPU.
    """
    first = gamma.dim() - 3
    count = max(1, (2**18 if gamma.is_cpu else 2**26) // gamma.shape[-1] ** 2)
    parts = (x.flatten(0, first).split(count) for x in (gamma, *others))
    return zip(*parts, strict=True)


def decay_chunks(S: Tensor, G: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """q and k [n, B, K, C, dk], v [n, B, H, C, dv] to o [n, B, H, C, dv], and S."""
    groups = S.shape[1:4:2]  # K, R
    v, G = v.unflatten(2, groups), G.unflatten(2, groups)  # [n, B, K, R, C, ...]
    growth, left = (x.to(v.dtype).exp() for x in (G, G[..., -1:] - G))
    A = (q @ k.mT)[:, :, :, None] * Ratio.apply(G, v.dtype)  # [n, B, K, R, C, C]
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
    A, growth, left = channel_products(q[..., None, :], k, g)
    added = (k * left).mT @ v
    before, S = carried(torch.addcmul, added, growth[..., -1, :, None].expand_as(added), S)
    return A.squeeze(-2) @ v + (q * growth) @ before, S


def delta_chunks(
    S: Tensor, decays: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """q and k [n, B, H, C, dk], v [n, B, H, C, dv] to o [n, B, H, C, dv], and S.

    `decays` are G [n, B, H, C], or g [n, B, H, C, dk] if every row of S has its own.
    """
    dk, dv = S.shape[2:]
    beta = beta[..., None]
    if decays.dim() == 5:
        products, growth, left = channel_products(torch.stack([beta * k, q], -2), k, decays)
        L, A = products.unbind(-2)
    else:
        gamma = Ratio.apply(decays, v.dtype)
        exponents = decays, decays[..., -1:] - decays
        growth, left = (x.to(v.dtype).exp()[..., None] for x in exponents)
        L, A = (x @ k.mT * gamma for x in (beta * k, q))
    right = beta * torch.cat([v, k * growth], -1)
    # reads L below its diagonal only
    UW = torch.linalg.solve_triangular(L, right, upper=False, unitriangular=True)
    AU, AW = (A @ UW).split([dv, dk], -1)
    TU, TW = ((k * left).mT @ UW).split([dv, dk], -1)
    factor = growth[..., -1, :, None] * torch.eye(dk, dtype=k.dtype, device=k.device) - TW
    sequences = S.flatten(0, 1)  # [B H, dk, dv]
    before, S = carried(torch.baddbmm, TU.flatten(1, 2), factor.flatten(1, 2), sequences)
    read = (q * growth - AW).flatten(0, 2)
    o = torch.baddbmm(AU.flatten(0, 2), read, before.flatten(0, 1))
    return o.view(v.shape), S.unflatten(0, v.shape[1:3])


def carried(
    apply: Callable[[Tensor, Tensor, Tensor], Tensor], added: Tensor, factor: Tensor, S: Tensor
) -> tuple[Tensor, Tensor]:
    """The state before each chunk, with S⁺ = apply(added, factor, S), and the last state."""
    before = []
    for a, f in zip(added.unbind(), factor.unbind(), strict=True):
        before.append(S)
        S = apply(a, f, S)
    return torch.stack(before), S


class Convolution(torch.autograd.Function):
    """A causal convolution of each channel of x [B, N, channels] that follows `before`.

    `before` [B, W − 1, channels]; `taps` [W, channels], the last for the token itself; a bias
    [channels] or None. A block of tokens at a time stays in the cache, and channels stay the last
    dimension; a general convolution would first make the tokens the last one.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, before: Tensor, taps: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, before, taps)
        ctx.has_bias = bias is not None
        y = torch.empty_like(x)
        for start, rows in zip(range(0, x.shape[1], BLOCK), y.split(BLOCK, 1), strict=True):
            n = rows.shape[1]
            past = preceded(x, before, start, start + n)
            if bias is None:
                torch.mul(past[:, :n], taps[0], out=rows)
            else:
                torch.addcmul(bias, past[:, :n], taps[0], out=rows)
            for lag in range(1, len(taps)):
                rows.addcmul_(past[:, lag : lag + n], taps[lag])
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, before, taps = ctx.saved_tensors
        W = len(taps)
        both, d_taps = x.new_zeros(len(x), W - 1 + x.shape[1], x.shape[2]), torch.zeros_like(taps)
        for start, rows in zip(range(0, x.shape[1], BLOCK), gradient.split(BLOCK, 1), strict=True):
            n = rows.shape[1]
            past = preceded(x, before, start, start + n)
            for lag in range(W):
                both[:, start + lag : start + lag + n].addcmul_(rows, taps[lag])
                d_taps[lag] += (past[:, lag : lag + n] * rows).sum((0, 1))
        d_bias = gradient.sum((0, 1)) if ctx.has_bias else None
        return both[:, W - 1 :], both[:, : W - 1], d_taps, d_bias


def preceded(x: Tensor, before: Tensor, start: int, end: int) -> Tensor:
    """Tokens `start` to `end` of x [B, N, channels], and as many before them as `before` has."""
    first = start - before.shape[1]
    return x[:, first:end] if first >= 0 else torch.cat([before[:, start:], x[:, :end]], 1)


def short_convolution(
    x: Tensor, before: Tensor, taps: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """SiLU of the `Convolution` of x [B, N, channels], and the last W − 1 inputs."""
    last = preceded(x, before, x.shape[1], x.shape[1])
    return silu(Convolution.apply(x, before, taps, bias)), last.clone()


def random_taps(count: int, channels: int) -> Tensor:
    """Taps [W, channels], uniform in ± 1 / √W, as torch draws those of such convolutions."""
    return torch.empty(count, channels).uniform_(-(count**-0.5), count**-0.5)


def decay_rates(heads: int) -> tuple[Tensor, Tensor]:
    """A and b of decays e^{−e^A softplus(· + b)}, [H] each, as Mamba-2 draws them.

    e^A is uniform in [1, 16], and softplus(b) log-uniform in [0.001, 0.1].
    """
    speed = 10 ** torch.empty(heads).uniform_(-3, -1)
    return torch.empty(heads).uniform_(1, 16).log(), speed.expm1().log()
