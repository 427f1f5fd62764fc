"""Inputs that never repeat, so that a module which caches results gains nothing.

They are windows into slightly longer rows of random numbers. Before each iteration the windows move
on by a cache line, within the same memory: address and all numbers change, sizes and strides do
not, and nothing has to be drawn or copied. Rows whose end is reached are redrawn.
"""

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from attnbench.devices.protocol import Iterate, Lap
from attnbench.measure.subject import Subject

LINE = 64  # bytes of a cache line, to which torch aligns tensors
MOVES = 1 << 14  # of a window within one row, for which the row is 1 MiB longer
SAMPLED = 4096  # numbers of an output to compare: 16 KiB, and enough not to agree by chance

Inputs = tuple[Tensor, ...]
Draws = list[Tensor]  # states of random generators


class Iterations:
    """Iterations of a subject, each with other inputs; the output of the last one is kept.

    `fixed` inputs stay where they are, as CUDA graphs need them, and the windows are copied there.
    If they are to be `examined`, one of each lap, drawn at random, can be repeated: `looked_at` is
    its number, `draws` are the states of the random generators before it, and `numbers` are some of
    its output.
    """

    def __init__(
        self,
        subject: Subject,
        work: Iterate,
        seed: int,
        fixed: bool = False,
        examined: bool = False,
    ) -> None:
        self.subject, self.work, self.fixed, self.examined = subject, work, fixed, examined
        self.shapes = [tuple(x.shape) for x in subject.inputs]
        sizes = [(x.numel() + MOVES * LINE // x.itemsize, x) for x in subject.inputs]
        self.rows = [torch.empty(size, dtype=x.dtype, device=x.device) for size, x in sizes]
        subject.generator.manual_seed(seed)
        self.fill()  # not within a sample, whose page faults are counted
        self.moved = 0  # how often
        self.output: Tensor | None = None
        self.looked_at, self.draws = 0, Draws()
        self.numbers: Tensor | None = None

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
        if not self.fixed:  # graphs keep their gradients
            self.subject.clear()
        if self.moved and self.moved % MOVES == 0:
            self.fill()
        windows = self.windows(self.moved)
        self.moved += 1
        if not self.fixed:
            self.subject.inputs = windows
        else:
            with torch.no_grad():
                for x, window in zip(self.subject.inputs, windows, strict=True):
                    x.copy_(window)
        if self.moved == self.looked_at:
            self.draws = draws(self.subject.device)

    def windows(self, number: int) -> Inputs:
        """The inputs after so many moves."""
        trains, begin = self.subject.mode.trains, number % MOVES * LINE
        return tuple(
            window(row, begin // row.itemsize, shape).requires_grad_(
                trains and row.is_floating_point()
            )
            for row, shape in zip(self.rows, self.shapes, strict=True)
        )

    def again(self) -> Inputs | None:
        """The inputs of the iteration looked at; None if the rows have been redrawn since."""
        number = self.looked_at - 1
        same = number // MOVES == (self.moved - 1) // MOVES
        return self.windows(number) if self.looked_at and same else None

    def fill(self) -> None:
        """Draw numbers as the first inputs were drawn: normally distributed, or ids of tokens."""
        generator, shell = self.subject.generator, self.subject.case.workload.shell
        for row in self.rows:
            if row.is_floating_point():
                row.normal_(generator=generator)
            elif shell is not None:
                row.random_(shell.vocabulary, generator=generator)


def window(row: Tensor, begin: int, shape: Sequence[int]) -> Tensor:
    """A part of a row as a tensor of its own, not a view."""
    part = torch.empty(0, dtype=row.dtype, device=row.device)
    return part.set_(row.untyped_storage(), begin, tuple(shape), ())


def some_numbers(tensor: Tensor) -> Tensor:
    """Copies of some numbers, spread evenly over a tensor."""
    tensor = tensor.detach() if tensor.dim() else tensor.detach()[None]
    return tensor[places(tensor.shape, tensor.device)]


@cache
def places(shape: torch.Size, device: torch.device) -> tuple[Tensor, ...]:
    """The index of some numbers of a tensor; on a GPU it should not be made within a lap."""
    count = min(SAMPLED, shape.numel())
    index = torch.linspace(0, shape.numel() - 1, count, device=device, dtype=torch.float64)
    return torch.unravel_index(index.long(), shape)


def draws(device: str) -> Draws:
    """The states of the random generators that an iteration may use."""
    of_device: Any = getattr(torch.get_device_module(device), "get_rng_state", None)
    return [torch.get_rng_state(), *([of_device(device)] if of_device else [])]


def redraw(states: Draws, device: str) -> None:
    """Restore the random generators to those states."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.get_device_module(device).set_rng_state(state, device)
