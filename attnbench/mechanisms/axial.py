"""Axial attention (Ho et al., 2019): tokens form a grid and attend along its rows and columns.

    x as h rows of w tokens, N ≤ h w                               [B, h, w, D]
    row(x), col(x): softmax attention within each row or column, each with four projections
    r = row(x)      y = r + col(x + r)                          [B, N, D]

so that, with the residual around the mechanism, each axis is a separate residual block, as in the
paper. `combine=sum` computes y = row(x) + col(x), as public code does.

Causal, in raster order: u = r + col(x + r) covers complete rows and, in each column, the rows up
to the current one. Shifted down by one row it summarises the earlier rows, and a third attention,
within the past of the same row, adds the rest,
    s = down(u)      y = s + inner(x + s)                       [B, N, D]
Causal `sum` masks both axes and needs no third attention, but never sees the tokens of earlier
rows that lie in other columns. Masked tokens are never keys and pass nothing to the rows below.
Rows and columns are views of one tensor; `sdpa` uses a fused kernel for each of the two.

Reconstructed: the paper also shifts its inputs by one token; here that is left to the model.
Left out: the layer norms and feed-forward layers between the axes.
Notation: `columns` is w; None means the power of two nearest √N.
Source: arXiv:1912.12180, section 3.
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
    """`combine`: chained or sum; `columns`: w, tokens in a row; None: near √N."""

    combine: str = "chained"
    columns: int | None = None

    def __post_init__(self) -> None:
        self.require_one_of("combine", ("chained", "sum"))
        self.require_at_least(1, "columns")

    def grid(self, seq_len: int) -> tuple[int, int]:
        """h and w for this length."""
        w = min(self.columns or 2 ** round(math.log2(seq_len) / 2), seq_len)
        return -(-seq_len // w), w


class Axis(at.Projections):
    """The four projections of one axis."""

    def forward(self, x: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, each [B, h, w, H, d], by one product."""
        linears = (self.query, self.key, self.value)
        bias = None if self.query.bias is None else torch.cat([linear.bias for linear in linears])
        qkv = F.linear(x, torch.cat([linear.weight for linear in linears]), bias)
        return qkv.unflatten(3, (3, heads, -1)).unbind(3)


class Axial(at.Attention):
    kernel: at.Kernel = staticmethod(at.softmax_attention)

    def __init__(self, config: Config, workload: at.Workload) -> None:
        super().__init__(config, workload)
        self.row = Axis(self.width, config.bias)
        self.column = Axis(self.width, config.bias)
        if self.causal and config.combine == "chained":
            self.inner = Axis(self.width, config.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        N = x.shape[1]
        h, w = self.config.grid(N)
        mask = at.padded_mask(mask, N, h * w - N, x.device)
        if mask is not None:
            mask = mask.expand(len(x), -1).unflatten(1, (h, w))
        x = F.pad(x, (0, 0, 0, h * w - N)).unflatten(1, (h, w))  # [B, h, w, D]
        if self.config.combine == "sum":
            y = self.rows(self.row, x, mask, self.causal) + self.columns(x, mask)
        else:
            r = self.rows(self.row, x, mask, False)
            y = r + self.columns(x + r, mask)
            y = self.continued(x, y, mask) if self.causal else y
        return y.flatten(1, 2)[:, :N]

    def continued(self, x: Tensor, u: Tensor, mask: Tensor | None) -> Tensor:
        """The shifted summary of earlier rows, and attention within the past of the same row."""
        if mask is not None:
            u = u * mask[..., None]
        s = F.pad(u[:, :-1], (0, 0, 0, 0, 1, 0))  # [B, h, w, D]
        return s + self.rows(self.inner, x + s, mask, True)

    def rows(self, axis: Axis, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """Attention within rows: [B, h, w, D] to [B, h, w, D]."""
        q, k, v = (t.flatten(0, 1).transpose(1, 2) for t in axis(x, self.heads))  # [B h, H, w, d]
        keys = None if mask is None else mask.flatten(0, 1)[:, None, None]
        o = self.kernel(q, k, v, keys, causal).transpose(1, 2)
        return axis.output(o.reshape(x.shape))

    def columns(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Attention within columns: [B, h, w, D] to [B, h, w, D]."""
        q, k, v = (
            t.flatten(2, 3).transpose(1, 2) for t in self.column(x, self.heads)
        )  # [B, w H, h, d]
        keys = None if mask is None else mask.mT.repeat_interleave(self.heads, 1)[:, :, None]
        o = self.kernel(q, k, v, keys, self.causal).transpose(1, 2)
        return self.column.output(o.reshape(x.shape))

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """Four projections for each axis on the padded grid; q kᵀ and A v of each."""
        h, width = config.grid(w.seq_len)
        tokens = w.batch * h * width
        count = axes(config, w)
        core = 4 * tokens * w.width * (h + (count - 1) * width)
        return at.Flops(count * 4 * 2 * tokens * w.width**2, core)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Scores and weights of one axis, scores once more if masked, and what all axes pass on."""
        scores = w.tokens * w.heads * max(config.grid(w.seq_len))
        return (2 + w.causal) * scores + passed_on(config, w)


def reference(module: Axial, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N = len(x)
    causal = module.causal
    real = [i for i in range(N) if mask is None or mask[i]]
    w = module.config.grid(N)[1]

    def along(axis: Axis, x: Tensor, name: str, past: bool) -> Tensor:
        line = [i // w if name == "row" else i % w for i in range(N)]
        keys = [[j for j in real if line[j] == line[i] and (j <= i or not past)] for i in range(N)]
        return attended(module, axis, x, keys)

    if module.config.combine == "sum":
        return along(module.row, x, "row", causal) + along(module.column, x, "column", causal)
    r = along(module.row, x, "row", False)
    u = r + along(module.column, x + r, "column", causal)
    if not causal:
        return u
    above = [u[i - w] if i - w in real else torch.zeros_like(x[0]) for i in range(N)]
    s = torch.stack(above)
    return s + along(module.inner, x + s, "row", True)


def attended(module: Axial, axis: Axis, x: Tensor, keys: list[list[int]]) -> Tensor:
    """Softmax attention of token i to the keys `keys[i]`."""
    d = module.width // module.heads
    q = axis.query(x)
    k = axis.key(x)
    v = axis.value(x)
    o = torch.zeros_like(x)
    for i, js in enumerate(keys):
        for part in (slice(c, c + d) for c in range(0, module.width, d)):
            if js:
                o[i, part] = (k[js, part] @ q[i, part] / d**0.5).softmax(0) @ v[js, part]
    return axis.output(o)


class Sdpa(Axial):
    kernel = staticmethod(at.fused_attention)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        return w.heads * w.tokens + passed_on(config, w)


def axes(config: Config, w: at.Workload) -> int:
    """Number of attentions: rows, columns and, in the causal chain, the inner rows."""
    return 3 if w.causal and config.combine == "chained" else 2


def passed_on(config: Config, w: at.Workload) -> int:
    """Elements of the sums between axes, and of q, k and v of one in other orders."""
    return (2 * axes(config, w) - 1) * w.tokens * w.width


def parameters(config: Config, w: at.Workload) -> int:
    """Four projections for each axis."""
    return axes(config, w) * at.projection_parameters(config, w)


def default(config: Config, w: at.Workload) -> str:
    """The fused kernel, except on a CPU for axes too short to keep it busy."""
    return "eager" if w.device == "cpu" and max(config.grid(w.seq_len)) <= 32 else "sdpa"


def exempt(config: Config) -> Mapping[at.Exemption, str]:
    """A given `columns` makes the grid independent of N."""
    return {} if config.columns else {at.Exemption.EXTRA_PADDING: "the grid depends on N"}


CARD = at.Card(
    forms={"eager": Axial, "sdpa": Sdpa},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.FIXED,
    causality=at.Causality.OPTIONAL,
    paper=at.Paper(
        "Axial Attention in Multidimensional Transformers", "Ho et al.", 2019, "arXiv:1912.12180"
    ),
    cost=at.Cost("O(N·√N·d)", time=1.5, memory=1.5),
    examples=(Config(), Config(combine="sum", columns=7, bias=True), Config(columns=9)),
    default=default,
    exempt=exempt,
    no_decode_reason="left out: the rows of its grid are √N long, so a longer sequence changes what"
    " past tokens read",
)
