"""`training`: an iteration is a forward pass with its loss, a backward pass and a step of Adam."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnbench.measure.subject import Subject
from attnbench.records import Level


class Training(Subject):
    """A forward pass to the loss at level `model`, else to outputs with fixed gradients."""

    def prepare(self) -> None:
        self.target = self._target()
        if not self.parameters:
            return
        self.optimiser = torch.optim.Adam(self.parameters, lr=1e-4, fused=True)
        # Adam keeps two copies of the parameters; they exist before the first iteration
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.optimiser.step()
        self.clear()

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.case.workload.level is Level.MODEL else super().shape

    def further(self) -> Iterator[tuple[str, Callable[[Tensor], None]]]:
        yield "backward", self.backward
        if self.optimiser:
            yield "step", self.step

    def forward(self) -> Tensor:
        """The output, at level `model` the loss."""
        if self.case.workload.level is Level.MODEL:
            return self.module.loss(*self.inputs, self.mask, self.target)
        return super().forward()

    def backward(self, output: Tensor) -> None:
        """Compute all gradients."""
        if self.case.workload.level is Level.MODEL:
            output.backward()
            return
        outputs: list[Tensor] = [output]
        gradients: list[Tensor | None] = [self.target]
        if (extra := self.module.auxiliary_loss()) is not None:
            outputs.append(extra)
            gradients.append(None)
        torch.autograd.backward(outputs, gradients)

    def step(self, output: Tensor) -> None:
        """One step of the optimiser."""
        if self.optimiser:
            self.optimiser.step()

    def _target(self) -> Tensor:
        """Labels [B] at level `model`, otherwise a fixed gradient of the output."""
        w = self.case.workload
        if w.level is not Level.MODEL:
            return self.normal(*self.shape).requires_grad_(False)
        assert w.shell is not None
        sizes, random = (w.batch,), self.generator
        return torch.randint(w.shell.classes, sizes, generator=random, device=self.device)
