"""Inputs that never repeat, so that a module which caches results gains nothing.

They are windows into slightly longer rows of random numbers. Before each iteration the windows move
on by a cache line, within the same memory: address and all numbers change, sizes and strides do
not, and nothing has to be drawn or copied. Rows whose end is reached are redrawn.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnbench.devices.protocol import Iterate, Lap
from attnbench.measure.subject import Subject

LINE = 64  # bytes of a cache line, to which torch aligns tensors
MOVES = 1 << 14  # of a window within one row, for which the row is 1 MiB longer

Inputs = tuple[Tensor, ...]
Draws = list[Tensor]  # states of random generators


class Iterations:
    """Iterations of a subject, each with other inputs; the output of the last one is kept.

    `fixed` inputs stay where they are, as CUDA graphs need them, and the windows are copied there.
    If `repeatable`, the generators' states before the last iteration are kept too.
    """

    def __init__(
        self,
        subject: Subject,
        work: Iterate,
        clear: Callable[[], None],
        seed: int,
        fixed: bool = False,
        repeatable: bool = False,
    ) -> None:
        self.subject, self.work, self.before = subject, work, clear
        self.fixed, self.repeatable = fixed, repeatable
        self.shapes = [tuple(x.shape) for x in subject.inputs]
        sizes = [(x.numel() + MOVES * LINE // x.itemsize, x) for x in subject.inputs]
        self.rows = [torch.empty(size, dtype=x.dtype, device=x.device) for size, x in sizes]
        subject.generator.manual_seed(seed)
        self.fill()  # not within a sample, whose page faults are counted
        self.moved = 0  # how often
        self.coming: deque[Inputs] = deque()
        self.output: Tensor | None = None
        self.draws: Draws = []

    def __call__(self, lap: Lap) -> None:
        self.output = self.work(lap)

    def prepare(self, count: int) -> None:
        """Make the inputs of so many iterations, so that little happens between them."""
        self.coming.extend(self.windows(self.moved + ahead) for ahead in range(count))

    def clear(self) -> None:
        """Drop what the last iteration left, and move on."""
        self.output = None
        self.before()
        if self.moved and self.moved % MOVES == 0:
            self.fill()
        if not self.coming:
            self.prepare(1)
        windows = self.coming.popleft()
        self.moved += 1
        if not self.fixed:
            self.subject.inputs = windows
        else:
            with torch.no_grad():
                for x, window in zip(self.subject.inputs, windows, strict=True):
                    x.copy_(window)
        if self.repeatable and not self.coming:
            self.draws = draws(self.subject.device)

    def windows(self, number: int) -> Inputs:
        """The inputs after so many moves, as tensors of their own, not views."""
        trains, begin = self.subject.mode.trains, number % MOVES * LINE
        return tuple(
            torch.empty(0, dtype=row.dtype, device=row.device)
            .set_(row.untyped_storage(), begin // row.itemsize, shape, ())
            .requires_grad_(trains and row.is_floating_point())
            for row, shape in zip(self.rows, self.shapes, strict=True)
        )

    def again(self, number: int) -> Inputs | None:
        """The inputs after so many moves; None if the rows have been redrawn since."""
        same = number // MOVES == (self.moved - 1) // MOVES
        return self.windows(number) if same else None

    def fill(self) -> None:
        """Draw numbers as the first inputs were drawn: normally distributed, or ids of tokens."""
        generator, shell = self.subject.generator, self.subject.case.workload.shell
        for row in self.rows:
            if row.is_floating_point():
                row.normal_(generator=generator)
            elif shell is not None:
                row.random_(shell.vocabulary, generator=generator)


def draws(device: str) -> Draws:
    """The states of the random generators that an iteration may use."""
    of_device: Any = getattr(torch.get_device_module(device), "get_rng_state", None)
    return [torch.get_rng_state(), *([of_device(device)] if of_device else [])]


def redraw(states: Draws, device: str) -> None:
    """Restore the random generators to those states."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.get_device_module(device).set_rng_state(state, device)
