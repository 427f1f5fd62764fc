"""What benchmarks race: a module, a copy of it, and two that take longer; mechanisms again."""

import time

import torch
from torch import nn

from attnbench.mechanisms.fastformer import CARD as FASTFORMER
from attnbench.mechanisms.linformer import CARD as LINFORMER

FASTFORMER_AGAIN = FASTFORMER_THIRD = FASTFORMER
LINFORMER_AGAIN = LINFORMER_THIRD = LINFORMER


class Base(nn.Module):
    """Linear attention with `extra` products of two D×D matrices."""

    causal, extra = False, 0

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.maps = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
        self.weight = nn.Parameter(torch.randn(width, width) / width)

    def forward(self, x):
        B, N, D = x.shape
        *maps, last = self.maps
        q, k, v = (m(x).view(B, N, self.heads, -1).transpose(1, 2) for m in maps)
        o = q.softmax(-1) @ (k.softmax(-2).transpose(-1, -2) @ v)
        self.products()
        return last(o.transpose(1, 2).reshape(B, N, D))

    def products(self):
        """What other modules do not compute."""
        for _ in range(self.extra):
            self.weight @ self.weight


class Copy(Base):
    """The same."""


class More(Base):
    """The same, and two products, which take some per cent of the time."""

    extra = 2


class Longer(Base):
    """The same, then 4 % of what that took once more, by the clock."""

    share = 0.04

    def forward(self, x):
        begun = time.process_time()
        y = super().forward(x)
        ended = time.process_time()
        until = ended + self.share * (ended - begun)
        while time.process_time() < until:
            pass
        return y
