"""Image Transformer (Parmar et al., 2018): each block of queries attends to a memory around it.

    q, k, v = x W_Q, x W_K, x W_V                                      [B, H, N, d] each
    q in blocks of l_q; each block has a memory M of l_m further keys  [B, n, H, l_q, d]
    A = softmax(q k_Mᵀ / √d)                                    [B, n, H, l_q, l_q + l_m]
    o = A v_M, the blocks concatenated                                      [B, H, N, d]

`layout=1d`: a block is l_q consecutive tokens; its memory is the block and the l_m tokens before.
`layout=2d`: the sequence is an image in blocks of h_q by w_q pixels, block after block in raster
order and in raster order within each block: the order in which the paper generates it. The memory
is the block, h_m rows above and w_m columns to the left and right: (h_q + h_m)(w_q + 2 w_m) keys.

Causal queries see only earlier tokens of the sequence. Full attention uses the same memory without
that restriction. `sdpa` uses a fused kernel for each block. In 1d, keys are concatenated from
slices of blocks, so that nothing is masked unless something is padded.
`flex` reads keys where they are, by torch's flex_attention.

Notation: `block` is l_q, `memory` l_m, `rows` h_q, `columns` w_q, `above` h_m, `beside` w_m, as
in the paper; `across` is the number of blocks side by side; None: about a square image.
Source: arXiv:1802.05751, section 4.2.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """`layout`: 1d or 2d. 1d: `block`, l_q; `memory`, l_m. 2d: `rows`, h_q; `columns`, w_q;
    `above`, h_m; `beside`, w_m; `across`, blocks side by side; None: about a square.
    """

    layout: str = "1d"
    block: int = 256
    memory: int = 256
    rows: int = 8
    columns: int = 16
    above: int = 8
    beside: int = 16
    across: int | None = None

    def __post_init__(self) -> None:
        self.require_one_of("layout", ("1d", "2d"))
        self.require_at_least(1, "block", "rows", "columns", "across")
        self.require_at_least(0, "memory", "above", "beside")

    def span(self, seq_len: int) -> int:
        """Tokens of a query block, l_q; in 1d at most N."""
        return self.rows * self.columns if self.layout == "2d" else min(self.block, seq_len)

    def grid(self, seq_len: int) -> tuple[int, int]:
        """Number of blocks from top to bottom and side by side, for this length."""
        n = -(-seq_len // self.span(seq_len))
        across = min(self.across or math.isqrt(n - 1) + 1, n)
        return -(-n // across), across

    def spans(self, seq_len: int) -> list[tuple[int, int]]:
        """Ranges of 1d blocks with equal memories: single blocks at the start, then the rest."""
        lq = self.span(seq_len)
        n = -(-seq_len // lq)
        short = min(-(-self.memory // lq), n)
        return [(i, i + 1) for i in range(short)] + [(short, n)] * (short < n)


Block = tuple[Tensor, Tensor, Tensor, Tensor | None]  # q, k, v and the allowed keys


class ImageTransformer(at.QKVAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        B, _, N, _ = q.shape
        blocks = self.lines if self.config.layout == "1d" else self.rectangles
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        parts = []
        for block_q, block_k, block_v, allowed in blocks(q, k, v, mask):
            q, k, v = (t.transpose(1, 2) for t in (block_q, block_k, block_v))
            o = self.dense(q, k, v, allowed).transpose(1, 2)  # [B n, l_q, H, d]
            parts.append(o.unflatten(0, (B, -1)))
        return torch.cat(parts, 1).flatten(1, 2)[:, :N].transpose(1, 2)

    def lines(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Iterator[Block]:
        """Queries [B n, l_q, H, d], keys and values [B n, S, H, d] and allowed keys, by range."""
        N = q.shape[1]
        lq = self.config.span(q.shape[1])
        if mask is None and N % lq and not self.causal:
            mask = torch.ones(q.shape[:2], dtype=torch.bool, device=q.device)
        q, k, v = (F.pad(t, (0, 0, 0, 0, 0, -N % lq)).unflatten(1, (-1, lq)) for t in (q, k, v))
        real = None if mask is None else F.pad(mask, (0, -N % lq)).unflatten(1, (-1, lq))
        for first, last in self.config.spans(N):
            memory = min(self.config.memory, first * lq)
            keys, values = (window(t, first, last, memory) for t in (k, v))
            allowed = at.causal_mask(lq, lq + memory, q.device) if self.causal else None
            if real is not None:
                tokens = window(real, first, last, memory)[:, None, None]  # [B n, 1, 1, S]
                allowed = tokens if allowed is None else tokens & allowed
            yield q[:, first:last].flatten(0, 1), keys, values, allowed

    def rectangles(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Iterator[Block]:
        """As `lines`, with all blocks at once."""
        B, N = q.shape[:2]
        lq = self.config.span(q.shape[1])
        n = -(-N // lq)
        room = math.prod(self.config.grid(N)) * lq
        q, k, v = (F.pad(t, (0, 0, 0, 0, 0, room - N)) for t in (q, k, v))
        keys, values = (self.around(t, N)[:, :n].flatten(0, 1) for t in (k, v))
        # pixels by their position in the sequence; −1 is outside the image
        position = torch.arange(1, room + 1, device=q.device)[None]
        position = self.around(position, N)[0, :n, None] - 1  # [n, 1, S]
        allowed = (position >= 0) & (position < N)
        if self.causal:
            allowed = allowed & (position <= torch.arange(n * lq, device=q.device).view(n, lq, 1))
        allowed = allowed.expand(B, -1, -1, -1)
        if mask is not None:
            allowed = allowed & F.pad(mask, (0, room - N))[:, position.clamp(min=0)]
        yield (
            q[:, : n * lq].unflatten(1, (n, lq)).flatten(0, 1),
            keys,
            values,
            allowed.flatten(0, 1)[:, None],
        )

    def around(self, x: Tensor, N: int) -> Tensor:
        """[B, room, ...] in blocks to the memory of each block, [B, blocks, S, ...]."""
        c = self.config
        down, across = self.config.grid(N)
        x = x.unflatten(1, (down, across, c.rows, c.columns)).transpose(2, 3)
        x = x.flatten(3, 4).flatten(1, 2)  # [B, h, w, ...]
        x = F.pad(x, (0, 0) * (x.dim() - 3) + (c.beside, c.beside, c.above, 0))
        x = x.unfold(1, c.rows + c.above, c.rows).unfold(2, c.columns + 2 * c.beside, c.columns)
        x = x.movedim((-2, -1), (3, 4))  # [B, down, across, h_q + h_m, w_q + 2 w_m, ...]
        return x.flatten(3, 4).flatten(1, 2)

    def dense(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """[G, H, l_q, d] and [G, H, S, d] twice to [G, H, l_q, d]."""
        return at.softmax_attention(q, k, v, mask)

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """q kᵀ and A v of every block, padding included."""
        return at.Flops(at.projection_flops(w), 4 * w.batch * scores(config, w) * w.width)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        keys = scores(config, w) // config.span(w.seq_len)
        return 2 * w.batch * (w.heads * scores(config, w) + keys * w.width)


def reference(module: ImageTransformer, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    H = module.heads
    d = module.width // module.heads
    q, k, v = (linear(x).view(N, H, d) for linear in (module.query, module.key, module.value))
    sees = {"1d": sees_line, "2d": sees_pixel}[module.config.layout]
    o = torch.zeros_like(q)
    for i in range(N):
        keys = [j for j in range(N) if (mask is None or mask[j]) and sees(module.config, N, i, j)]
        keys = [j for j in keys if j <= i or not module.causal]
        for h in range(H if keys else 0):
            o[i, h] = (k[keys, h] @ q[i, h] / d**0.5).softmax(0) @ v[keys, h]
    return module.output(o.flatten(1))


def sees_line(config: Config, N: int, i: int, j: int) -> bool:
    start = i // config.block * config.block
    return start - config.memory <= j < start + config.block


def sees_pixel(config: Config, N: int, i: int, j: int) -> bool:
    top, left = corner(config, N, i)
    y, x = corner(config, N, j)
    inside = j % (config.rows * config.columns)
    y = y + inside // config.columns
    x = x + inside % config.columns
    return (
        top - config.above <= y < top + config.rows
        and left - config.beside <= x < left + config.columns + config.beside
    )


def corner(config: Config, N: int, i: int) -> tuple[int, int]:
    """Row and column of the first pixel of the block of token i."""
    block = i // (config.rows * config.columns)
    across = config.grid(N)[1]
    return block // across * config.rows, block % across * config.columns


class Sdpa(ImageTransformer):
    def dense(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if mask is not None and mask.dim() == 2:
            # with a causal mask alone, every query sees at least itself
            return F.scaled_dot_product_attention(q, k, v, attn_mask=at.additive(mask, q.dtype))
        return at.fused_attention(q, k, v, mask)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        keys = scores(config, w) // config.span(w.seq_len)
        mask = scores(config, w) * (config.layout == "2d" and w.causal)
        return w.batch * (2 * keys * w.width + 2 * mask) + w.tokens * w.width


class Flex(at.flex.Form, ImageTransformer):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return self.fused(q, k, v, mask)

    @staticmethod
    def visible(config: Config, w: at.Workload) -> at.flex.Window:
        """The memory of each query, up to the query if causal."""
        return (seen_lines if config.layout == "1d" else seen_pixels)(config, w)


def seen_lines(config: Config, w: at.Workload) -> at.flex.Window:
    lq = config.block
    memory = config.memory
    causal = w.causal

    def bounds(i: Tensor) -> at.flex.Range:
        start = i // lq * lq
        return start - memory, i + 1 if causal else start + lq

    return at.flex.within(w.seq_len, bounds)


def seen_pixels(config: Config, w: at.Workload) -> at.flex.Window:
    c = config
    lq = config.span(w.seq_len)
    causal = w.causal
    across = c.grid(w.seq_len)[1]

    def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        block = i // lq
        other = j // lq
        inside = j % lq
        # row and column of key j, from the first pixel of the block of query i
        y = (other // across - block // across) * c.rows + inside // c.columns
        x = (other % across - block % across) * c.columns + inside % c.columns
        near = (y >= -c.above) & (y < c.rows) & (x >= -c.beside) & (x < c.columns + c.beside)
        return near & (j <= i) if causal else near

    first, last = (i // lq for i in at.flex.queries(w.seq_len))
    side = -(-c.beside // c.columns)  # blocks to the left and right, in each row of blocks
    part = [
        ((first - up * across - side) * lq, (last - up * across + side + 1) * lq)
        for up in range(-(-c.above // c.rows) + 1)
    ]
    return at.flex.Window(w.seq_len, allowed, part)


def window(x: Tensor, first: int, last: int, memory: int) -> Tensor:
    """Blocks `first` to `last` of [B, n, l_q, ...], each preceded by `memory` earlier tokens."""
    lq = x.shape[2]
    parts = [x[:, first:last]]
    for back in range(1, -(-memory // lq) + 1):
        size = min(lq, memory - (back - 1) * lq)
        parts.insert(0, x[:, first - back : last - back, lq - size :])
    return torch.cat(parts, 2).flatten(0, 1)


def scores(config: Config, w: at.Workload) -> int:
    """Query–key pairs of one head of one sequence, padding included."""
    lq = config.span(w.seq_len)
    if config.layout == "2d":
        n = -(-w.seq_len // lq)
        return n * lq * (config.rows + config.above) * (config.columns + 2 * config.beside)
    spans = config.spans(w.seq_len)
    return sum((last - i) * lq * (lq + min(config.memory, i * lq)) for i, last in spans)


def default(config: Config, w: at.Workload) -> str:
    """The fused kernel, except on a CPU for windows too short to keep it busy."""
    short = config.layout == "1d" and config.span(w.seq_len) + config.memory <= 32
    return "eager" if short and w.device == "cpu" and not w.causal else "sdpa"


def exempt(config: Config) -> Mapping[at.Exemption, str]:
    """A row, or an image of given width, grows only at its end."""
    if config.layout == "1d" or config.across:
        return {}
    return {at.Exemption.EXTRA_PADDING: "the width of the image depends on N"}


CARD = at.Card(
    forms={"eager": ImageTransformer, "sdpa": Sdpa, "flex": Flex},
    config=Config,
    reference=reference,
    parameters=at.projection_parameters,
    family=at.Family.FIXED,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper("Image Transformer", "Parmar et al.", 2018, "arXiv:1802.05751"),
    cost=at.Cost("O(N·(l_q + l_m)·d)", time=1, memory=1),
    symbols={
        "l_q": ("tokens of a query block", "block"),
        "l_m": ("tokens of memory", "memory"),
        "m": ("tokens of memory", "memory"),
    },
    examples=(
        Config(block=8, memory=8),
        Config(block=4, memory=11, bias=True),
        Config(layout="2d", rows=2, columns=3, above=3, beside=2),
    ),
    default=default,
    exempt=exempt,
    no_decode_reason="left out: in an image its memory is not a run of past tokens, and the image's"
    " width depends on N",
)
