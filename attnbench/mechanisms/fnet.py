"""FNet (Lee-Thorp et al., 2021): a Fourier transform over features and tokens mixes the sequence.

    y = Re(F_N x F_D)                                  [B, N, D]
    y_me = Σ_n Σ_d x_nd cos 2π (m n / N + e d / D)

F_N and F_D are the matrices of the discrete Fourier transform. Nothing is learned, there are no
heads, and every token depends on all, so there is no causal form. Padding is zeroed; it still
changes F_N. Inputs of fewer than 32 bits are transformed in float32.

`half` computes half of the spectrum: x is real, so y at (m, e) is y at (−m, −e). Fourier transforms
are not matrix products, so neither form counts any FLOPs.
Left out: products with F_N and F_D, the form of the paper for a TPU, which are quadratic in N.
Source: arXiv:2105.03824, equations (1) to (3).
"""

from dataclasses import dataclass
from math import cos, pi
from typing import Any

import torch
from torch import Tensor
from torch.fft import fft2, rfft2

from attnbench import attention as at


@dataclass(frozen=True, kw_only=True)
class Config(at.BaseConfig):
    """FNet has no parameters, and so no options."""

    def __post_init__(self) -> None:
        if self.bias:
            raise ValueError("fnet has no projections, so there is no bias")


class FNet(at.Attention):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            x = x * mask[..., None]
        return self.mixed(at.widen(x)).to(x.dtype)

    def mixed(self, x: Tensor) -> Tensor:
        """Re(F_N x F_D)."""
        return fft2(x).real

    @staticmethod
    def flops(config: Config, w: at.Workload) -> at.Flops:
        """There is no matrix product."""
        return at.Flops(0, 0)

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Two complex tensors."""
        return 4 * w.tokens * w.width


def reference(module: FNet, x: Tensor, mask: Tensor | None, draws: at.Draws) -> Tensor:
    N, D = x.shape
    x = x if mask is None else torch.where(mask[:, None], x, 0)
    rows = []
    for m in range(N):
        row = []
        for e in range(D):
            turns = [[m * n / N + e * d / D for d in range(D)] for n in range(N)]
            waves = [[cos(2 * pi * turn) for turn in row_of_turns] for row_of_turns in turns]
            row.append((x * torch.tensor(waves, dtype=x.dtype)).sum())
        rows.append(torch.stack(row))
    return torch.stack(rows)


class Halved(at.Written):
    """y from half of the spectrum. The map is symmetric, so a gradient takes the same way back."""

    twice = True

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        half = rfft2(x).real
        y = torch.empty_like(x)
        y[..., : (middle := half.shape[-1])] = half
        rest = half[..., 1 : (x.shape[-1] + 1) // 2]
        y[..., :1, middle:] = rest[..., :1, :].flip(-1)
        y[..., 1:, middle:] = rest[..., 1:, :].flip(-2, -1)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        found: Tensor = Halved.apply(gradient)
        return found


class Half(FNet):
    def mixed(self, x: Tensor) -> Tensor:
        found: Tensor = Halved.apply(x)
        return found

    @staticmethod
    def elements(config: Config, w: at.Workload) -> int:
        """Two complex tensors of half the width, and their real part."""
        return 3 * w.tokens * w.width


def parameters(config: Config, w: at.Workload) -> int:
    return 0


CARD = at.Card(
    forms={"eager": FNet, "half": Half},
    config=Config,
    reference=reference,
    parameters=parameters,
    family=at.Family.MIXING,
    causality=at.Causality.NEVER,
    paper=at.Paper(
        "FNet: Mixing Tokens with Fourier Transforms", "Lee-Thorp et al.", 2021, "arXiv:2105.03824"
    ),
    cost=at.Cost("O(N·D·log N)", time=1, memory=1),
    examples=(Config(),),
    default="half",
    exempt={at.Exemption.EXTRA_PADDING: "F_N depends on N"},
    no_decode_reason="every output is a sum over the whole sequence",
)
