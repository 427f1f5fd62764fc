"""Parameters of this package in the layout in which layers of transformers read them."""

from typing import Any

import torch
from torch import Tensor, nn

from attnbench.mechanisms.peers import Packed


class ByHead(Packed):
    """Linear maps whose outputs are parts of `widths` for each head, with each head's together."""

    def __init__(self, heads: int, widths: tuple[int, ...], *linears: nn.Linear) -> None:
        super().__init__(*linears)
        self.heads, self.parts = heads, [heads * width for width in widths]

    def arranged(self, rows: Tensor) -> Tensor:
        parts = [part.unflatten(0, (self.heads, -1)) for part in rows.split(self.parts)]
        return torch.cat(parts, 1).flatten(0, 1)


class Third(nn.Module):
    """One of three equal parts of the outputs of a linear map."""

    def __init__(self, linear: nn.Linear, index: int) -> None:
        super().__init__()
        self.linear = linear
        self.index = index

    def forward(self, x: Tensor) -> Tensor:
        weight = self.linear.weight
        bias = self.linear.bias
        own = None if bias is None else bias.chunk(3)[self.index]
        return nn.functional.linear(x, weight.chunk(3)[self.index], own)


class Forget(nn.Module):
    """Logs of decays [B, N, H, d], whose A has one dimension only, unlike their layer's."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.maps = ours.forget
        self.A = ours.A
        self.b = ours.b

    def forward(self, x: Tensor) -> Tensor:
        speed = nn.functional.softplus(self.maps(x) + self.b)
        return -self.A.exp()[:, None] * speed.unflatten(-1, (len(self.A), -1))


class Taps(nn.Module):
    """Filters [W, channels] in the place of a convolution, which has them as [channels, 1, W]."""

    def __init__(self, taps: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.taps = taps
        self.bias = bias

    @property
    def weight(self) -> Tensor:
        return self.taps.mT[:, None]
