"""Axial attention (Ho et al., 2019): the tokens as a grid, attention along rows and columns.

    x as h rows of w tokens, N ≤ h w                               [B, h, w, D]
    row(x), col(x): softmax attention within each row or column, each with four maps of its own
    r = row(x)      y = r + col(x + r)                          [B, N, D]

so that with the residual around the mechanism each axis is a residual block of its own, as in
the paper. `combine=sum` takes y = row(x) + col(x), as public code does.

Causal, in raster order: u = r + col(x + r) sees whole rows and, down each column, the rows up to
its own; moved down by one row it is what earlier rows say, and a third attention within the past
of the own row adds the rest,
    s = down(u)      y = s + inner(x + s)                       [B, N, D]
Causal `sum` masks both axes, needs no third attention, and is blind to earlier rows' right sides.
Masked tokens are no keys and hand nothing down to the rows below.
Rows and columns are views of one tensor; `sdpa` is the same with a fused kernel for each of them.

Reconstructed: the paper moves its inputs by a token as well, ours leaves that to the model.
Left out: the layer norms and feed-forward layers between the axes.
Notation: `columns` is w, None for the power of two nearest √N.
Source: arXiv:1912.12180, section 3.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbench.contract import (
    Attention,
    BaseConfig,
    Card,
    Cost,
    Exemption,
    Flops,
    Paper,
    causal_mask,
    four_maps,
    fused_attention,
    masked_softmax,
)
from attnbench.records import Causality, Family, Workload


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """`combine`: chained or sum; `columns`: w, tokens of a row, None for near √N."""

    combine: str = "chained"
    columns: int | None = None

    def __post_init__(self) -> None:
        if self.combine not in ("chained", "sum"):
            raise ValueError(f"no combination {self.combine!r}; there are: chained, sum")
        if self.columns is not None and self.columns < 1:
            raise ValueError(f"columns is {self.columns}; it takes at least 1, or None for near √N")

    def grid(self, seq_len: int) -> tuple[int, int]:
        """h and w for this length."""
        w = min(self.columns or 2 ** round(math.log2(seq_len) / 2), seq_len)
        return -(-seq_len // w), w


class Maps(nn.Module):
    """The four maps of one axis."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, each [B, h, w, H, d], by one product."""
        maps = (self.query, self.key, self.value)
        bias = None if maps[0].bias is None else torch.cat([linear.bias for linear in maps])
        qkv = F.linear(x, torch.cat([linear.weight for linear in maps]), bias)
        return qkv.unflatten(3, (3, heads, -1)).unbind(3)


class Axial(Attention):
    def __init__(self, config: Config, workload: Workload) -> None:
        super().__init__(config, workload)
        self.row = Maps(self.width, config.bias)
        self.column = Maps(self.width, config.bias)
        if self.causal and config.combine == "chained":
            self.inner = Maps(self.width, config.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        N = x.shape[1]
        h, w = self.config.grid(N)
        if mask is not None or h * w > N:
            mask = self.padded(x, mask, h * w - N).unflatten(1, (h, w))
        x = F.pad(x, (0, 0, 0, h * w - N)).unflatten(1, (h, w))  # [B, h, w, D]
        if self.config.combine == "sum":
            y = self.rows(self.row, x, mask, self.causal) + self.columns(x, mask)
        else:
            r = self.rows(self.row, x, mask, False)
            y = r + self.columns(x + r, mask)
            y = self.continued(x, y, mask) if self.causal else y
        return y.flatten(1, 2)[:, :N]

    def padded(self, x: Tensor, mask: Tensor | None, extra: int) -> Tensor:
        """[B, N + extra]: which tokens of the grid are real."""
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        return F.pad(mask, (0, extra))

    def continued(self, x: Tensor, u: Tensor, mask: Tensor | None) -> Tensor:
        """What earlier rows say, and attention within the past of the own row."""
        if mask is not None:
            u = u * mask[..., None]
        s = F.pad(u[:, :-1], (0, 0, 0, 0, 1, 0))  # [B, h, w, D]
        return s + self.rows(self.inner, x + s, mask, True)

    def rows(self, maps: Maps, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """Attention within rows: [B, h, w, D] to [B, h, w, D]."""
        q, k, v = (t.flatten(0, 1).transpose(1, 2) for t in maps(x, self.heads))  # [B h, H, w, d]
        keys = None if mask is None else mask.flatten(0, 1)[:, None, None]
        o = self.dense(q, k, v, keys, causal).transpose(1, 2)
        return maps.output(o.reshape(x.shape))

    def columns(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Attention within columns: [B, h, w, D] to [B, h, w, D]."""
        q, k, v = (
            t.flatten(2, 3).transpose(1, 2) for t in self.column(x, self.heads)
        )  # [B, w H, h, d]
        keys = None if mask is None else mask.mT.repeat_interleave(self.heads, 1)[:, :, None]
        o = self.dense(q, k, v, keys, self.causal).transpose(1, 2)
        return self.column.output(o.reshape(x.shape))

    def dense(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """[G, G', L, d] three times to the same."""
        if causal:
            past = causal_mask(q.shape[2], k.shape[2], q.device)
            mask = past if mask is None else past & mask
        return masked_softmax(q / q.shape[-1] ** 0.5 @ k.mT, mask) @ v

    @staticmethod
    def flops(config: Config, w: Workload) -> Flops:
        """Four maps for each axis on the padded grid; q kᵀ and A v of each."""
        h, width = config.grid(w.seq_len)
        tokens, sets = w.batch * h * width, axes(config, w)
        core = 4 * tokens * w.width * (h + (sets - 1) * width)
        return Flops(sets * 4 * 2 * tokens * w.width**2, core)

    @staticmethod
    def elements(config: Config, w: Workload) -> int:
        return 2 * w.tokens * w.heads * max(config.grid(w.seq_len)) + 3 * w.tokens * w.width


class Sdpa(Axial):
    def dense(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        return fused_attention(q, k, v, mask, causal)

    @staticmethod
    def elements(config: Config, w: Workload) -> int:
        return w.heads * w.tokens + 3 * w.tokens * w.width


def axes(config: Config, w: Workload) -> int:
    """How many attentions there are: rows, columns, and the inner rows of the causal chain."""
    return 3 if w.causal and config.combine == "chained" else 2


def reference(module: Axial, x: Tensor, mask: Tensor | None, draws: dict) -> Tensor:
    N, causal = len(x), module.causal
    real = [i for i in range(N) if mask is None or mask[i]]
    w = module.config.grid(N)[1]

    def along(maps: Maps, x: Tensor, same: str, past: bool) -> Tensor:
        key = {"row": lambda i: i // w, "column": lambda i: i % w}[same]
        keys = [[j for j in real if key(j) == key(i) and (j <= i or not past)] for i in range(N)]
        return attended(module, maps, x, keys)

    if module.config.combine == "sum":
        return along(module.row, x, "row", causal) + along(module.column, x, "column", causal)
    r = along(module.row, x, "row", False)
    u = r + along(module.column, x + r, "column", causal)
    if not causal:
        return u
    above = [u[i - w] if i - w in real else torch.zeros_like(x[0]) for i in range(N)]
    s = torch.stack(above)
    return s + along(module.inner, x + s, "row", True)


def attended(module: Axial, maps: Maps, x: Tensor, keys: list[list[int]]) -> Tensor:
    """Softmax attention of each token to its own list of keys."""
    d = module.width // module.heads
    q, k, v = maps.query(x), maps.key(x), maps.value(x)
    o = torch.zeros_like(x)
    for i, js in enumerate(keys):
        for part in (slice(c, c + d) for c in range(0, module.width, d)):
            if js:
                o[i, part] = (k[js, part] @ q[i, part] / d**0.5).softmax(0) @ v[js, part]
    return maps.output(o)


def parameters(config: Config, w: Workload) -> int:
    """Four maps for each axis."""
    return axes(config, w) * four_maps(config, w)


def default(config: Config, w: Workload) -> str:
    """The fused kernel, but not on a CPU for axes that are too short to fill it."""
    return "eager" if w.device == "cpu" and max(config.grid(w.seq_len)) <= 32 else "sdpa"


def exempt(config: Config) -> Mapping[Exemption, str]:
    """`columns` frees the grid of N."""
    return {} if config.columns else {Exemption.LENGTH: "the grid follows N"}


CARD = Card(
    forms={"eager": Axial, "sdpa": Sdpa},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=Family.FIXED,
    causality=Causality.OPTIONAL,
    paper=Paper(
        "Axial Attention in Multidimensional Transformers",
        "Ho et al.",
        2019,
        "arXiv:1912.12180",
    ),
    cost=Cost("O(N·√N·d)", time=1.5, memory=1.5),
    examples=(Config(), Config(combine="sum", columns=7, bias=True), Config(columns=9)),
    default=default,
    exempt=exempt,
)
