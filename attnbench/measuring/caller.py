"""The mechanism of a subject, called alone: on other inputs, with the same draws or others."""

from typing import Any

import torch
from torch import Tensor

from attnbench.attention import Attention
from attnbench.measuring.draws import Draws, draws, redraw
from attnbench.measuring.inputs import Inputs, copy_elsewhere
from attnbench.measuring.subject import Subject
from attnbench.records import Level


class Caller:
    """Calls a mechanism; `suspect_signs` and `odd_signs` are what its calls have shown so far.

    Inputs and outputs are [B, N, D], at level `core` [B, H, N, d]; inputs lie within longer rows,
    as those of laps do.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.trains = subject.mode.trains
        modules = subject.module.modules()
        self.mechanism: Any = next(m for m in modules if isinstance(m, Attention))
        self.suspect_signs = dict[str, None]()
        self.odd_signs = dict[str, None]()

    @property
    def is_core(self) -> bool:
        """Whether it takes queries, keys and values."""
        return self.subject.case.workload.level is Level.CORE

    def draws(self) -> Draws:
        """The states of the random generators."""
        return draws(self.subject.device)

    def new_input(self) -> Inputs:
        """Other inputs for the mechanism."""
        subject = self.subject
        w = self.subject.case.workload
        if w.level is Level.MODEL:
            return (subject.normal_numbers(w.batch, w.seq_len, w.width),)
        return tuple(copy_elsewhere(subject.normal_numbers(*x.shape)) for x in subject.inputs)

    def output(self, x: Inputs, states: Draws | None = None) -> Tensor:
        """A copy of the mechanism's output, whose buffer it may keep; `states` of draws, if any."""
        if states is not None:
            self.restore(states)
        return self.call(x).detach().clone()

    def restore(self, states: Draws) -> None:
        """Let the random generators draw as they did."""
        redraw(states, self.subject.device)

    def call(self, x: Inputs) -> Tensor:
        """The mechanism's output, with its graph in training; notes what is odd about the call."""
        subject = self.subject
        before = [part.detach().clone() for part in x]
        with torch.set_grad_enabled(self.trains):
            if subject.case.workload.level is Level.MODEL:
                y = self.mechanism(*x, subject.mask)
            else:
                subject.inputs = x
                y = subject.forward()
            if torch.is_grad_enabled() != self.trains:
                self.odd_signs["left gradients switched " + ("off" if self.trains else "on")] = None
        if y.requires_grad and not self.trains:
            self.odd_signs["recorded gradients in inference"] = None
        if y.dtype != x[0].dtype:
            self.odd_signs[f"returned {y.dtype} for {x[0].dtype}"] = None
        if not all(map(torch.equal, before, x)):
            self.suspect_signs["changed its input in place"] = None
        result: Tensor = y
        return result
