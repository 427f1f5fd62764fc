"""Inputs that never repeat, so that a module which caches results gains nothing.

They are windows into slightly longer rows of random numbers. Before each iteration the windows move
on by a cache line, within the same memory: address and all numbers change, sizes and strides do
not, and nothing has to be drawn or copied. Rows whose end is reached are redrawn.
"""

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from attnbench.devices.protocol import Iterate, Lap
from attnbench.measuring.draws import Draws, draws
from attnbench.measuring.subject import Subject

LINE = 64  # bytes of a cache line, to which torch aligns tensors
MOVES = 1 << 14  # of a window within one row, for which the row is 1 MiB longer
SAMPLED = 4096  # numbers of an output to compare: 16 KiB, and enough not to agree by chance

Inputs = tuple[Tensor, ...]


class Iterations:
    """Iterations of a subject, each with other inputs; the output of the last one is kept.

    `fixed` inputs stay where they are, as CUDA graphs need them, and the windows are copied there.
    If they are to be `examined`, one of each lap, drawn at random, can be repeated: `looked_at` is
    its number, `draws` are the states of the random generators before it, and `numbers` are some of
    its output.

    subject:  whose inputs are replaced
    work:     one iteration; gives its output
    seed:     of the random numbers
    fixed:    whether inputs stay where they are
    examined: whether one iteration of each lap can be repeated
    """

    def __init__(
        self,
        subject: Subject,
        work: Iterate,
        seed: int,
        fixed: bool = False,
        examined: bool = False,
    ) -> None:
        self.subject = subject
        self.work = work
        self.fixed = fixed
        self.examined = examined
        self.shapes = [tuple(x.shape) for x in subject.inputs]
        sizes = [(x.numel() + MOVES * LINE // x.itemsize, x) for x in subject.inputs]
        self.rows = [torch.empty(size, dtype=x.dtype, device=x.device) for size, x in sizes]
        subject.generator.manual_seed(seed)
        self.moved = 0
        self.looked_at = 0
        self.draws: Draws | None = None
        self.output: Tensor | None = None
        self.numbers: Tensor | None = None
        self.fill()  # not within a sample, whose page faults are counted

    def __call__(self, lap: Lap) -> None:
        self.output = self.work(lap)
        if self.moved == self.looked_at:
            self.numbers = some_numbers(self.output)

    def prepare(self, count: int) -> None:
        """Choose which of a lap's iterations can be repeated."""
        if self.examined:
            self.looked_at = self.moved + 1 + random.randrange(count)

    def clear(self) -> None:
        """Drop what the last iteration left, and move on."""
        self.output = None
        if self.moved and self.moved % MOVES == 0:
            self.fill()
        windows = self.windows(self.moved)
        self.moved += 1
        if self.fixed:  # graphs keep their gradients
            with torch.no_grad():
                for x, window in zip(self.subject.inputs, windows, strict=True):
                    x.copy_(window)
        else:
            self.subject.clear()
            self.subject.inputs = windows
        if self.moved == self.looked_at:
            self.draws = draws(self.subject.device)

    def windows(self, number: int) -> Inputs:
        """The inputs after this number of moves."""
        begin = number % MOVES * LINE
        parts = zip(self.rows, self.shapes, strict=True)
        inputs = tuple(window(row, begin // row.itemsize, shape) for row, shape in parts)
        for x in inputs:
            x.requires_grad_(self.subject.mode.trains and x.is_floating_point())
        return inputs

    def fill(self) -> None:
        """Draw numbers as the first inputs were drawn: normally distributed, or ids of tokens."""
        generator = self.subject.generator
        shell = self.subject.case.workload.shell
        self.numbers = None  # what was looked at cannot be repeated
        for row in self.rows:
            if row.is_floating_point():
                row.normal_(generator=generator)
            elif shell is not None:
                row.random_(shell.vocabulary, generator=generator)


def window(row: Tensor, begin: int, shape: Sequence[int]) -> Tensor:
    """A part of a row as a tensor of its own, not a view."""
    part = torch.empty(0, dtype=row.dtype, device=row.device)
    return part.set_(row.untyped_storage(), begin, tuple(shape), ())


def copy_elsewhere(x: Tensor) -> Tensor:
    """x at another place, as a part of a longer row, as the inputs of laps are."""
    row = torch.empty(x.numel() + LINE, dtype=x.dtype, device=x.device)
    with torch.no_grad():
        part = window(row, LINE, x.shape).copy_(x)
    return part.requires_grad_(x.requires_grad)


def has_places(x: Tensor, first: Tensor, dim: int) -> bool:
    """Whether a dimension, counted from the last, means in x what it means in the first input.

    A decay of a core, [B, H, N], has heads where q, [B, H, N, d], has tokens.
    """
    return x.ndim == first.ndim and x.shape[dim] == first.shape[dim]


def some_numbers(tensor: Tensor) -> Tensor:
    """Copies of some numbers, spread evenly over a tensor, its first one among them."""
    numbers = tensor.detach().reshape(-1)
    return numbers[:: len(numbers) // SAMPLED | 1].clone()  # of all channels, whose number is even
