"""A short causal convolution, and mechanisms whose recurrence reads its output."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from attnbench.attention.contract import Recurrent
from attnbench.attention.kernels.autograd import Written
from attnbench.attention.kernels.primitives import logits_at_once

BLOCK = 256  # tokens that a CPU reads at a time


class RecurrentState(NamedTuple):
    """S, and the last inputs of the convolution [B, W − 1, channels]."""

    S: Tensor
    inputs: Tensor


class Convolved(Recurrent):
    """A recurrence over the output of a short convolution with `taps` [W, channels]."""

    taps: nn.Parameter

    def start(self, batch: int, capacity: int) -> RecurrentState:
        like = self.output.weight
        inputs = like.new_zeros(batch, *self.taps[1:].shape)
        return RecurrentState(self.zero_state(batch, like), inputs)

    def convolve(
        self, x: Tensor, before: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """SiLU of the `Convolution` of x [B, N, channels], and the last W − 1 inputs."""
        last = preceded(x, before, x.shape[1], x.shape[1])
        return silu(Convolution.apply(x, before, self.taps, bias)), last.clone()


class Convolution(Written):
    """A causal convolution of each channel of x [B, N, channels] that follows `before`.

    `before` [B, W − 1, channels]; `taps` [W, channels], the last for the token itself; a bias
    [channels] or None. A block of tokens at a time stays in a cache, and channels stay the last
    dimension; a general convolution would first make the tokens the last one.
    """

    lowered = twice = True

    @staticmethod
    def forward(ctx: Any, x: Tensor, before: Tensor, taps: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, before, taps)
        ctx.has_bias = bias is not None
        y = torch.empty_like(x)
        block = at_once(x)
        for start, rows in zip(range(0, x.shape[1], block), y.split(block, 1), strict=True):
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
        both = x.new_zeros(len(x), W - 1 + x.shape[1], x.shape[2])
        d_taps = torch.zeros_like(taps)
        block = at_once(x)
        for start, rows in zip(range(0, x.shape[1], block), gradient.split(block, 1), strict=True):
            n = rows.shape[1]
            past = preceded(x, before, start, start + n)
            for lag in range(W):
                both[:, start + lag : start + lag + n].addcmul_(rows, taps[lag])
                d_taps[lag] += (past[:, lag : lag + n] * rows).sum((0, 1))
        d_bias = gradient.sum((0, 1)) if ctx.has_bias else None
        return both[:, W - 1 :], both[:, : W - 1], d_taps, d_bias


def at_once(x: Tensor) -> int:
    """How many tokens of x [B, N, channels] to read at a time, to fit a cache or fill a GPU."""
    fill = logits_at_once(x.device.type) // (x.shape[0] * x.shape[2])
    return BLOCK if x.device.type == "cpu" else max(BLOCK, fill)


def preceded(x: Tensor, before: Tensor, start: int, end: int) -> Tensor:
    """Tokens `start` to `end` of x [B, N, channels], and as many before them as `before` has."""
    first = start - before.shape[1]
    return x[:, first:end] if first >= 0 else torch.cat([before[:, start:], x[:, :end]], 1)


def random_taps(count: int, channels: int) -> Tensor:
    """Taps [W, channels], uniform in ± 1 / √W, as torch draws those of such convolutions."""
    return torch.empty(count, channels).uniform_(-(count**-0.5), count**-0.5)
