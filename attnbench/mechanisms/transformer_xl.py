"""Transformer-XL (Dai et al., 2019): segments of L tokens that also read the M tokens before them.

    h̃ = [SG(memory); segment]                                  [B, M + L, D]
    q = h W_q      k = h̃ W_k      v = h̃ W_v
    S_ij = ((q_i + u) · k_j + (q_i + v) · W_r R_{i−j}) / √d      [B, H, L, M + L]
    o_i = Σ_j≤i softmax_j(S_ij) v_j                              [B, H, N, d]

R_p = [sin(p ω); cos(p ω)], ω = 10000^(−2n / D), is the sinusoid of a distance p; u and v are
vectors of each head; SG stops the gradient. The memory is empty at the first token and grows to M.

The sequence is processed in segments of min(L, N) tokens. A layer's memory holds its inputs, which
are known in advance, so equal segments run together, as many as fit a small working set. The first
segments have fewer keys and the last has fewer queries, so nothing is padded. W_k and W_v read
each token once: the memory reuses the keys and values of its segment, and its gradient reaches the
projections but not the tokens. The shift of S needs no padding: it is a view with rows one element
shorter. `recomputed` does not keep S for the backward pass but computes it again. Where there is no
backward pass, a CPU's fused kernel takes the shifted position scores as a bias.

For decoding, the state is k and v of the last M + L tokens, and W_r R_p of as many distances.

Left out: evaluation with a longer memory than in training; the option `memory` sets it.
Notation: u and v as in the paper; R_p is its R_{i−j}. Always causal.
Source: arXiv:1901.02860, section 3.3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from attnbench import attention as at

PIECE = 1 << 20  # elements of S at a time on a CPU: a working set about the size of a cache

Parts = tuple[Tensor, ...]  # of tokens, of the memory and, if any, of compressed slots


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`segment`: L, tokens of a segment; `memory`: M, earlier tokens that it also reads."""

    segment: int = 384
    memory: int = 384

    def __post_init__(self) -> None:
        self.require_at_least(1, "segment")
        self.require_at_least(0, "memory")


class Kept(NamedTuple):
    """k and v of the last M + L tokens, [B, H, M + L, d], in a ring; W_r R_p / √d, as `distances`
    returns them; the number of past tokens."""

    k: Tensor
    v: Tensor
    R: Tensor
    length: int

    @property
    def cache(self) -> at.Cache:
        return at.Cache(self.k, self.v, 0, self.length)


class Group(NamedTuple):
    """Consecutive segments of equal shape."""

    start: int  # first token
    segments: int
    length: int  # tokens of each segment
    memory: int  # earlier tokens that each segment reads
    compressed: int = 0  # slots of an older, compressed memory that each segment reads
    step: int = 0  # slots that each segment adds
    slots: int = 0  # slots that exist when the first segment starts

    @property
    def keys(self) -> int:
        return self.compressed + self.memory + self.length


def groups(seq_len: int, segment: int, memory: int, slots: int = 0, rate: int = 1) -> list[Group]:
    """The segments of a sequence, neighbours of equal shape merged."""
    merged: list[Group] = []
    for start in range(0, seq_len, segment):
        old = max(0, start - memory) // rate
        length = min(segment, seq_len - start)
        shape = (length, min(memory, start), min(slots, old), segment // rate)
        if merged and merged[-1][2:6] == shape:
            merged[-1] = merged[-1]._replace(segments=merged[-1].segments + 1)
        else:
            merged.append(Group(start, 1, *shape, slots=old))
    return merged


class TransformerXL(at.QKVAttention):
    keeps_weights = True  # A, for the backward pass

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        shape = (workload.heads, 1, workload.head_width)
        self.position = nn.Linear(workload.width, workload.width, bias=False)
        self.u = nn.Parameter(0.02 * torch.randn(shape))
        self.v = nn.Parameter(0.02 * torch.randn(shape))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.swept(x, mask)[0]

    def swept(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """The output, and k and v of the tokens."""
        q = self.split(self.query(x))
        k = self.recalled(self.key, x)
        v = self.recalled(self.value, x)
        o = self.sweep(q, k, v, None if mask is None else (mask, mask))
        return self.output(o.flatten(2)), k[0], v[0]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        masks = None if mask is None else (mask, mask)
        return self.sweep(q, (k, k.detach()), (v, v.detach()), masks).transpose(1, 2)

    def recalled(self, linear: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor]:
        """A projection of the tokens twice, [B, H, N, d]; the second gives them no gradient."""
        if torch.is_grad_enabled():
            current, memory = Recall.apply(x, linear.weight, linear.bias)
            return self.split(current), self.split(memory)
        y = self.split(linear(x))
        return y, y

    def sweep(self, q: Tensor, k: Parts, v: Parts, masks: Parts | None) -> Tensor:
        """The attention of all segments, [B, N, H, d]; k, v and masks have all their `Parts`."""
        layout = self.layout(self.config, q.shape[2])
        R = self.distances(max(g.keys for g in layout), q)
        # split, as the backward pass of each slice would fill a whole tensor
        own = (t.split([g.segments * g.length for g in layout], 2) for t in (q, k[0], v[0]))
        groups = zip(layout, *own, strict=True)
        return torch.cat(
            [self.group(g, q, (n, *k[1:]), (m, *v[1:]), masks, R) for g, q, n, m in groups], 1
        )

    @staticmethod
    def layout(config: Any, seq_len: int) -> list[Group]:
        return groups(seq_len, min(config.segment, seq_len), config.memory)

    def distances(self, keys: int, q: Tensor) -> Tensor:
        """W_r R_p / √d for p = keys − 1 … 0: [H, d, keys]."""
        d = q.shape[-1]
        p = torch.arange(keys - 1, -1, -1, device=q.device, dtype=torch.float64)
        n = torch.arange(0, self.width, 2, device=q.device, dtype=torch.float64)
        angles = p[:, None] * 10000 ** (-n / self.width)
        R = torch.cat([angles.sin(), angles.cos()], 1).to(q.dtype)
        return self.position(R).view(keys, self.heads, d).permute(1, 2, 0) / d**0.5

    def group(self, g: Group, *sequences: Any) -> Tensor:
        """The outputs of one group's tokens, [B, segments · length, H, d]."""
        part = partial(read, self.keeps_weights, self.u, self.v)
        o = in_pieces(part, *self.segments(g, *sequences))
        return o.reshape(-1, g.segments * g.length, *o.shape[2:])

    def segments(
        self, g: Group, q: Tensor, k: Parts, v: Parts, masks: Parts | None, R: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """What `in_pieces` takes, for all segments of a group; n = B · segments.

        Of q and of the first parts of k and v, the group's tokens.
        """
        q = rows(g, q).flatten(1, 2)  # [H, n, L, d]
        keys, values = (window(g, t).flatten(1, 2) for t in (k, v))  # [H, n, P, d]
        allowed = at.causal_mask(g.length, g.keys, q.device)  # [L, P]
        if masks is not None:
            own = slice(g.start, g.start + g.segments * g.length)
            real = tuple(m[:, None, :, None] for m in (masks[0][:, own], *masks[1:]))
            allowed = allowed & window(g, real).flatten(1, 2).mT  # [1, n, L, P]
        return q, keys, values, R[:, :, R.shape[2] - g.keys :], allowed

    one_token_reason = "tokens of two segments have two memories"

    def start(self, batch: int, capacity: int) -> at.State:
        slots = min(self.config.memory + self.config.segment, capacity)
        d = self.width // self.heads
        cache = at.caches.empty(self.key.weight, batch, self.heads, slots, d)
        return Kept(cache.k, cache.v, self.distances(slots, cache.k).contiguous(), 0)

    def prefill(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        kept = Kept(*state)
        y, k, v = self.swept(x, None)
        cache = kept.cache.added(k, v)
        return y, kept._replace(length=cache.length)

    def step(self, x: Tensor, state: at.State) -> tuple[Tensor, at.State]:
        kept = Kept(*state)
        q, k, v = self.projected(x)
        cache = kept.cache.added(k, v)
        o, _ = self.read_next(q, cache.since(first_read(self.config, kept.length)), kept.R)
        return self.output(at.merge(o)), kept._replace(length=cache.length)

    def read_next(self, q: Tensor, pieces: list[at.Piece], R: Tensor) -> tuple[Tensor, Tensor]:
        """What one query of each head reads, [B, H, 1, d], and its weights; its key is the last."""
        keys = sum(k.shape[2] for k, _ in pieces)
        position = (q + self.v) @ R[:, :, R.shape[2] - keys :]
        return at.caches.read(q + self.u, pieces, position)

    @staticmethod
    def state_elements(config: Any, workload: at.Workload) -> int:
        """k and v of each sequence, and W_r R_p."""
        slots = min(config.memory + config.segment, workload.seq_len)
        return (2 * workload.batch + 1) * slots * workload.width

    @staticmethod
    def needs(config: Any, w: at.Workload) -> str | None:
        return "the sinusoids of distances need an even width" if w.width % 2 else None

    @classmethod
    def products(cls, config: Any, w: at.Workload) -> int:
        """Both halves of S and A v for every segment, and W_r R once."""
        layout = cls.layout(config, w.seq_len)
        pairs = sum(g.segments * g.length * g.keys for g in layout)
        distances = max(g.keys for g in layout)
        return 3 * (2 * w.batch * pairs * w.width) + 2 * distances * w.width**2

    @staticmethod
    def flops(config: Any, w: at.Workload) -> at.Flops:
        """Those of `products`; the memory costs no projection."""
        return at.Flops(at.projection_flops(w), TransformerXL.products(config, w))

    @staticmethod
    def elements(config: Any, w: at.Workload) -> int:
        return stored(TransformerXL.layout(config, w.seq_len), w)


def reference(module: TransformerXL, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    D = module.width
    H = module.heads
    d = module.width // module.heads
    L = module.config.segment
    M = module.config.memory
    q = module.query(x)
    new = (module.key(x), module.value(x))
    old = module.key(x.detach()), module.value(x.detach())
    outputs = []
    for i in range(len(x)):
        start = i // L * L
        keys = [j for j in range(max(0, start - M), i + 1) if mask is None or mask[j]]
        o = torch.zeros_like(x[i]).view(H, d)
        if keys:
            k, v = (torch.stack([(new if j >= start else old)[t][j] for j in keys]) for t in (0, 1))
            r = module.position(torch.stack([sinusoid(i - j, D, x) for j in keys]))
            k, v, r = (t.view(len(keys), H, d) for t in (k, v, r))
            logits = ((q[i].view(H, d) + module.u[:, 0]) * k).sum(-1)
            logits = logits + ((q[i].view(H, d) + module.v[:, 0]) * r).sum(-1)
            o = ((logits / d**0.5).softmax(0)[..., None] * v).sum(0)
        outputs.append(o.flatten())
    return module.output(torch.stack(outputs))


def sinusoid(p: int, D: int, like: Tensor) -> Tensor:
    """R_p [D]: the sines and then the cosines of a distance p."""
    angles = torch.tensor([p / 10000 ** (2 * n / D) for n in range(D // 2)], dtype=like.dtype)
    return torch.cat([angles.sin(), angles.cos()])


class Recomputed(TransformerXL):
    keeps_weights = False

    @staticmethod
    def elements(config: Any, w: at.Workload) -> int:
        return working(TransformerXL.layout(config, w.seq_len), w)


class Recall(at.Written):
    """x Wᵀ + b twice; the second copy passes its gradient to W and b but not to x."""

    lowered = twice = True

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        y = nn.functional.linear(x, weight, bias)
        return y, y.detach()

    @staticmethod
    def backward(ctx: Any, current: Tensor, memory: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        both = (current + memory).flatten(0, -2)
        bias = both.sum(0) if ctx.has_bias else None
        return current @ weight, both.mT @ x.flatten(0, -2), bias


def piece(device: str) -> int:
    """How many elements of S to compute at a time: what fits a cache, or what fills a GPU."""
    return PIECE if device == "cpu" else at.logits_at_once(device)


def in_pieces(
    part: Callable[..., Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    R: Tensor,
    allowed: Tensor,
) -> Tensor:
    """The outputs [n, L, H, d] of as many segments at a time as fit the working set."""
    step = max(1, piece(q.device.type) // (q.shape[0] * q.shape[2] * k.shape[2]))
    parts = zip(q.split(step, 1), k.split(step, 1), v.split(step, 1), strict=True)
    past = allowed.dim() == 2
    pieces = [
        part(*given, R, allowed if past else allowed[:, i * step : (i + 1) * step])
        for i, given in enumerate(parts)
    ]
    return torch.cat(pieces, 1).movedim(0, 2)


@at.lowered
def read(
    keeps_weights: bool,
    u: Tensor,
    t: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    R: Tensor,
    allowed: Tensor,
) -> Tensor:
    """A v of some segments: by `Read`, or without a backward pass by the fused kernel of a CPU."""
    # a compiler takes no product that is written into a view
    if torch.is_grad_enabled() or not q.is_cpu or torch.compiler.is_compiling():
        o, _ = Read.apply(keeps_weights, q, k, v, R, u, t, allowed, None)
        return o
    S, unshifted = shiftable(q, k.shape[2])
    torch.matmul(q.flatten(1, 2) + t, R, out=unshifted)
    mask_(S, allowed)
    o = nn.functional.scaled_dot_product_attention(q + u[:, None], k, v, attn_mask=S)
    return o.mul_(allowed.any(-1, keepdim=True)) if allowed.dim() > 2 else o


class Read(at.Written):
    """A v of some segments and, given `real`, the attention [n, P] that keys got from real tokens.

    All have their heads before their segments, so that one product of a head serves them all.
    Results are allocated before the scores: small tensors that outlive large ones would otherwise
    fragment the heap.
    """

    lowered = True

    @staticmethod
    def forward(
        ctx: Any,
        keeps_weights: bool,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        R: Tensor,
        u: Tensor,
        t: Tensor,
        allowed: Tensor,
        real: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        o = q.new_empty(q.shape)
        A = weights(q, k, R, u, t, allowed)
        torch.matmul(A, v, out=o)
        if allowed.dim() > 2:
            o.mul_(allowed.any(-1, keepdim=True))
        ctx.save_for_backward(q, k, v, R, u, t, allowed, o, A if keeps_weights else None)
        if real is None:
            return o, None
        used = (received(A) * real[..., None]).sum(1)
        ctx.mark_non_differentiable(used)
        return o, used

    @staticmethod
    def backward(ctx: Any, o: Tensor, used: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, R, u, t, allowed, output, A = ctx.saved_tensors
        dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
        A = weights(q, k, R, u, t, allowed) if A is None else A
        if allowed.dim() > 2:
            o = o * allowed.any(-1, keepdim=True)
        torch.matmul(A.mT, o, out=dv)
        S, unshifted = shiftable(A, A.shape[3])
        # one more column takes the mean of a row off
        o = torch.cat([o, -(o * output).sum(-1, keepdim=True)], -1)
        S.flatten(0, 1).baddbmm_(o.flatten(0, 1), pad(v, (0, 1), value=1).flatten(0, 1).mT, beta=0)
        S.mul_(A)
        torch.matmul(S.mT, (q + u[:, None]) / q.shape[-1] ** 0.5, out=dk)
        torch.matmul(S, k, out=dq)
        du = dq.div_(q.shape[-1] ** 0.5).sum((1, 2))[:, None]
        dR = (q.flatten(1, 2) + t).mT @ unshifted
        dt = unshifted @ R.mT
        return None, dq.add_(dt.view(q.shape)), dk, dv, dR, du, dt.sum(1, keepdim=True), None, None


def weights(q: Tensor, k: Tensor, R: Tensor, u: Tensor, t: Tensor, allowed: Tensor) -> Tensor:
    """A [H, n, L, P]; `allowed` is [L, P] if only causality masks, else [1, n, L, P].

    Rows where nothing is allowed have any weights.

    Row i of the position scores moves left by L − 1 − i. In a buffer of L P elements, the shifted
    rows are rows of P − 1 elements that start at L − 1. Each except the last also reads the first
    element of the next row, which lies in its future.
    """
    H, n, L, d = q.shape
    P = k.shape[2]
    position = (q.flatten(1, 2) + t) @ R  # [H, n L, P]
    shifted = position.as_strided((H * n, L, P), (L * P, P - 1, 1), L - 1)
    content = ((q + u[:, None]) / d**0.5).reshape(H * n, L, d)
    S = torch.baddbmm(shifted, content, k.flatten(0, 1).mT).view(H, n, L, P)
    mask_(S, allowed)
    return S.softmax(-1)


def mask_(S: Tensor, allowed: Tensor) -> None:
    """Makes scores [H, n, L, P] very low where not `allowed`; of [L, P], only the last L keys."""
    first = S.shape[3] - S.shape[2] if allowed.dim() == 2 else 0
    limit = S.new_full((), torch.inf).where(allowed[..., first:], torch.finfo(S.dtype).min / 2)
    S[..., first:].clamp_(max=limit)  # a third of the time that it takes to fill


def received(A: Tensor) -> Tensor:
    """The attention that each query gives each key in all heads, at least float32: [n, L, P]."""
    return A.sum(0, dtype=torch.promote_types(A.dtype, torch.float32))


def shiftable(like: Tensor, P: int) -> tuple[Tensor, Tensor]:
    """Empty scores [H, n, L, P] for `like` [H, n, L, ·], and a view of them before their shift.

    Rows of P elements that start at L − 1 are rows of P + 1 elements, moved right by L − 1 − i.
    What is read beyond the ends of a row has to be 0, as is what lies in its future.
    """
    H, n, L, _ = like.shape
    x = like.new_empty(H, n, L * (P + 1))
    x[..., : L - 1] = 0
    rows = x.view(H, n * L, P + 1)
    rows[..., P] = 0
    size = L * (P + 1)
    return x.as_strided((H, n, L, P), (n * size, size, P, 1), L - 1), rows[..., :P]


def first_read(config: Any, token: int) -> int:
    """The first token of the memory that a token reads."""
    return max(0, token - token % config.segment - config.memory)


def rows(g: Group, x: Tensor) -> Tensor:
    """A group's tokens [B, H, segments · length, d] by segment, [H, B, segments, length, d]."""
    return x.unflatten(2, (g.segments, g.length)).transpose(0, 1)


def window(g: Group, parts: Parts) -> Tensor:
    """What each segment reads, [H, B, segments, keys, d], oldest first.

    `parts`: the group's tokens, memory and, if any, compressed slots: [B, H, N or slots, d].
    """
    pieces = [rows(g, parts[0])]
    if g.memory:
        end = g.start + (g.segments - 1) * g.length
        pieces.insert(0, sliding(parts[1][:, :, g.start - g.memory : end], g.memory, g.length))
    if g.compressed:
        end = g.slots + (g.segments - 1) * g.step
        old = parts[2][:, :, g.slots - g.compressed : end]
        pieces.insert(0, sliding(old, g.compressed, g.step))
    return torch.cat(pieces, 3)


def sliding(x: Tensor, size: int, step: int) -> Tensor:
    """[B, H, n, d] to its windows, [H, B, windows, size, d]."""
    return x.unfold(2, size, step).permute(1, 0, 2, 4, 3)


def stored(layout: list[Group], w: at.Workload) -> int:
    """Elements of S that training keeps for the backward pass, plus the working set."""
    scores = w.batch * w.heads * sum(g.segments * g.length * g.keys for g in layout)
    return scores + working(layout, w) if w.trains else working(layout, w)


def working(layout: list[Group], w: at.Workload) -> int:
    """Elements of the windows of keys and values, and of three copies of S for one piece."""
    windows = 2 * w.batch * w.width * max(g.segments * g.keys for g in layout)
    segment = w.heads * max(g.length * g.keys for g in layout)
    return windows + 3 * max(segment, piece(w.device))


def parameters(config: Config, w: at.Workload) -> int:
    """The four projections, W_r, u and v."""
    return at.projection_parameters(config, w) + w.width**2 + 2 * w.width


def default(config: Config, w: at.Workload) -> str:
    """Recomputed where training would otherwise keep more than 0.5 GiB of float32 scores."""
    return "recomputed" if TransformerXL.elements(config, w) > 1 << 27 else "eager"


CARD = at.Card(
    forms={"eager": TransformerXL, "recomputed": Recomputed},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.RECURRENCE,
    causality=at.Causality.ALWAYS,
    paper=at.Paper(
        "Transformer-XL: Attentive Language Models beyond a Fixed-Length Context",
        "Dai et al.",
        2019,
        "arXiv:1901.02860",
    ),
    cost=at.Cost("O(N·(M + L))", time=1, memory=1),
    symbols={"L": ("tokens of a segment", "segment"), "M": ("tokens of memory", "memory")},
    examples=(
        Config(segment=7, memory=7),
        Config(segment=5, memory=12, bias=True),
        Config(segment=8, memory=3),
        Config(),
    ),
    default=default,
    launches="training computes scores twice, in pieces, each of which fills the GPU",
)
