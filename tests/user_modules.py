"""Attention modules as users write them, most of them wrong in one way."""

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn


class Mean(nn.Module):
    """Adds the mean of all tokens, a fixed one if `share` is 0."""

    def __init__(self, width, heads, share: float = 1.0):
        super().__init__()
        self.value = nn.Linear(width, width)
        self.share = share

    def forward(self, x):
        return x + self.share * self.value(x).mean(1, keepdim=True)


class Masked(nn.Module):
    def __init__(self, dim, num_heads, causal=False):
        super().__init__()
        self.value = nn.Linear(dim, dim)
        self.causal = causal

    def forward(self, x, mask=None):
        weights = torch.ones_like(x[..., :1]) if mask is None else mask[..., None].to(x.dtype)
        v = self.value(x) * weights
        if self.causal:
            return v.cumsum(1) / weights.cumsum(1).clamp(min=1)
        return (v.sum(1) / weights.sum(1).clamp(min=1))[:, None].expand_as(x)


class Shorter(Mean):
    def forward(self, x):
        return super().forward(x)[:, 1:]


class Raises(Mean):
    def forward(self, x):
        raise KeyError("no such thing")


class NotFinite(Mean):
    def forward(self, x):
        return super().forward(x) * float("nan")


class Double(Mean):
    def forward(self, x):
        return super().forward(x).double()


class Elsewhere(Mean):
    def forward(self, x):
        return super().forward(x).to("meta")


class Pair(Mean):
    def forward(self, x):
        return x, None


class Mixes(Mean):
    def forward(self, x):
        return x + self.value(x).mean((0, 1), keepdim=True)


class Prints(Mean):
    def forward(self, x):
        print("loud " * 1000)
        return super().forward(x)


class Meddles(Mean):
    def forward(self, x):
        torch.set_num_threads(3)
        return super().forward(x)


class Leaks(Mean):
    kept = []  # noqa: RUF012, that it is shared is the point

    def forward(self, x):
        self.kept.append(torch.ones(2**18))
        return super().forward(x)


class Forks(Mean):
    def __init__(self, width, heads, pid_file: str = ""):
        super().__init__(width, heads)
        self.pid_file = pid_file

    def forward(self, x):
        if os.fork() == 0:
            Path(self.pid_file).write_text(str(os.getpid()))
            time.sleep(600)
        while not Path(self.pid_file).exists():
            time.sleep(0.001)
        return super().forward(x)


class Dies(Mean):
    def forward(self, x):
        os._exit(3)


class Exits(Mean):
    def forward(self, x):
        sys.exit(3)


def factory(width, heads):
    return Mean(width, heads)


def not_a_module(width, heads):
    return width


def without_sizes(x):
    return x


number = 3
