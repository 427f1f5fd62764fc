"""Attention modules as users write them, most of them wrong in one way."""

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


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
        return super().forward(x), None


class Listed(Mean):
    def forward(self, x):
        return [super().forward(x)]


class Cumulative(Mean):
    """Is causal, and takes no parameter that says so."""

    def forward(self, x):
        return self.value(x).cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]


class FirstHalf(Mean):
    """Adds the mean of the first half, so that only half of its tokens see later ones."""

    def forward(self, x):
        return x + self.value(x[:, : x.shape[1] // 2]).mean(1, keepdim=True)


class TakesCausal(nn.Module):
    """A layer that takes `causal`."""

    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.value = nn.Linear(width, width)
        self.causal = causal
        self.generator = torch.Generator().manual_seed(1)

    def cumulated(self, x):
        return self.value(x).cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]


class MeanOfAll(TakesCausal):
    """Ignores that it is to be causal."""

    def forward(self, x):
        return x + self.value(x).mean(1, keepdim=True)


class OneTooLate(TakesCausal):
    """A convolution whose window ends one token late."""

    def forward(self, x):
        return F.avg_pool1d(F.pad(self.value(x).mT, (2, 1)), 4, 1).mT


class NormOfAll(TakesCausal):
    """Divides by what all tokens have in common."""

    def forward(self, x):
        return self.cumulated(x) / x.square().mean((1, 2), keepdim=True).sqrt()


class NoisyMeanOfAll(MeanOfAll):
    """Draws from a generator of its own."""

    def forward(self, x):
        return super().forward(x) + 0.1 * torch.randn(x.shape, generator=self.generator)


class CausalNoise(TakesCausal):
    def forward(self, x):
        return self.cumulated(x) + 0.1 * torch.randn(x.shape, generator=self.generator)


class CausalDropout(TakesCausal):
    def forward(self, x):
        return F.dropout(self.cumulated(x), 0.3)


class CausalFourier(TakesCausal):
    """A long convolution by Fourier transforms, which rounds all tokens together."""

    def forward(self, x):
        N = x.shape[1]
        kernel = torch.exp(-torch.arange(N) / 8)[:, None]
        both = (torch.fft.rfft(each, n=2 * N, dim=-2) for each in (self.value(x), kernel))
        first, second = both
        return torch.fft.irfft(first * second, n=2 * N, dim=-2)[:, :N]


def reads_next(q, k, v, causal=False):
    """A core whose queries read one key too many."""
    N = q.shape[2]
    mask = torch.ones(N, N, dtype=torch.bool).tril(1)
    return F.scaled_dot_product_attention(q, k, v, mask)


class Blocks(Mean):
    """Works on blocks of 256 tokens, and on two sequences at least."""

    def forward(self, x):
        assert len(x) > 1
        blocks = self.value(x).view(len(x), x.shape[1] // 256, 256, -1)
        return (blocks + blocks.mean(2, keepdim=True)).reshape(x.shape)


def summed(q, k, v, chunk: int = 64):
    """A core: linear attention without a normaliser."""
    return q @ (k.mT @ v) / k.shape[-2]


def softmax(q, k, v, mask=None, is_causal=False):
    """A core that masks, and may be causal."""
    if mask is not None:
        mask = mask[:, None, None]
    if mask is not None and is_causal:  # which torch does not take together
        mask = mask & torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal and mask is None)


class Summed(nn.Module):
    """A core with a parameter."""

    def __init__(self, heads):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, q, k, v):
        return self.scale * summed(q, k, v)


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


class OnlyWhenCausal(Masked):
    """Uses its decay in its causal form alone."""

    def __init__(self, dim, num_heads, causal=False):
        super().__init__(dim, num_heads, causal)
        self.decay = nn.Parameter(torch.ones(dim))

    def forward(self, x, mask=None):
        y = super().forward(x, mask)
        return self.decay * y if self.causal else y


number = 3
