"""Odd behaviour of a mechanism that ran: signs that it did not compute what was to be timed.

Timed iterations are not instrumented. Once they are done, the first one and one that was timed are
repeated, openly watched, and must give the same outputs. So what is seen of them holds for the
timed ones, and a mechanism that behaves well only at first, or only while watched, is caught. Only
a few numbers of each output are kept, so that timed iterations find memory unchanged.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from attnbench.attention.contract import Attention
from attnbench.measure.inputs import Draws, Inputs, Iterations, draws, redraw
from attnbench.measure.subject import Subject, plain
from attnbench.records import Level

SAMPLED = 4096  # numbers of an output to compare: 16 KiB, and enough not to agree by chance

# Outputs differ if more than this share of the numbers of a sequence do: where rounding chooses
# among almost equal tokens, a few of them differ.
SHARE = 0.1
# Numbers differ if by more than this share of their usual size, or by so many steps of the type.
TOLERANCE, STEPS = 1e-4, 4

CHANGED = "changed its input in place"


class Snapshot:
    """The state before an iteration, besides its inputs, and some numbers of its output."""

    def __init__(self, subject: Subject) -> None:
        self.draws: Draws = draws(subject.device)
        # what training changes, with its values
        moving = [*subject.parameters, *subject.module.buffers()] if subject.mode.trains else []
        self.state = [(tensor, tensor.detach().clone()) for tensor in moving]
        self.moves = 0  # of the windows that its inputs come from
        self.numbers: Tensor | None = None


@dataclass
class WatchedPass:
    """A forward pass that was watched."""

    odd: dict[str, None] = field(default_factory=dict)
    numbers: list[Tensor] = field(default_factory=list)  # some of each mechanism's output
    outputs: list[Tensor] = field(default_factory=list)  # of the first mechanism, and of all
    draws: bool = False  # whether it used random numbers


class Witness:
    """Observes the iterations of a subject from outside, and repeats two of them at the end."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject, self.seed = subject, seed
        self.first = self.timed = Snapshot(subject)
        self.returned: Tensor | None = None  # some numbers of the last output of a lap

    def see(self, iterations: Iterations, once: Callable[[], object]) -> None:
        """Keep some numbers of a lap's output.

        A step changes the parameters: in training, only an iteration that `once` runs after the
        first lap can be repeated.
        """
        trains, is_first = self.subject.mode.trains, self.returned is None
        snapshot = Snapshot(self.subject) if is_first or not trains else self.timed
        if trains and is_first:
            once()
        self.returned = some_numbers(iterations.output)
        if snapshot is not self.timed:
            snapshot.draws, snapshot.moves = iterations.draws, iterations.moved - 1
            snapshot.numbers, self.timed = self.returned, snapshot

    def odd(self, iterations: Iterations) -> str:
        """Everything odd, separated by `;`."""
        signs = dict.fromkeys(self.settings())
        given = None
        if self.returned is not None:
            given = iterations.again(self.timed.moves)
            if differs(some_numbers(iterations.output), self.returned):
                signs["changed its output after it had returned it"] = None
        try:
            for sign in self.repeated(given, fixed=iterations.fixed):
                signs[sign] = None
        except Exception as error:
            signs[f"failed while it was watched with {type(error).__name__}"] = None
        return "; ".join(signs)

    def settings(self) -> Iterator[str]:
        """Settings of its modules and parameters that it has switched."""
        if frozen := sum(not parameter.requires_grad for parameter in self.subject.parameters):
            yield f"switched off the gradients of {frozen} of its parameters"
        trains = self.subject.mode.trains
        if any(module.training != trains for module in self.subject.module.modules()):
            yield "switched between training and evaluation"

    def repeated(self, given: Inputs | None, fixed: bool) -> Iterator[str]:
        """What is odd about the first iteration and the timed one, whose inputs are `given`.

        If those are no longer known, others are used, whose expected output is unknown.
        """
        self.subject.draw(self.seed)
        inputs = {"at first": self.subject.inputs}
        self.subject.draw(self.seed + 1)
        inputs["while it was timed"] = given or self.subject.inputs
        snapshots = (self.first, self.timed)
        first, timed = map(self.repeat, snapshots, inputs.values())
        yield from first.odd | timed.odd
        for when, snapshot, passed in zip(inputs, snapshots, (first, timed), strict=True):
            # a graph draws other random numbers
            unknown = passed is timed and (given is None or (fixed and passed.draws))
            if unknown or CHANGED in passed.odd or snapshot.numbers is None:
                continue
            if differs(some_numbers(passed.outputs[-1]), snapshot.numbers):
                once_more = self.repeat(snapshot, inputs[when])
                if not differs(once_more.outputs[-1], passed.outputs[-1]):
                    yield f"gave another output {when} than for the same input while watched"
        if any(map(torch.equal, first.numbers, timed.numbers)):
            yield "gave the same output for other input"
        elif CHANGED not in timed.odd:
            yield from self.partial(timed, *reversed(inputs.values()))

    def partial(self, timed: WatchedPass, given: Inputs, other: Inputs) -> Iterator[str]:
        """Signs that it used only a part of its input."""
        subject, w, output = self.subject, self.subject.case.workload, timed.outputs[0]
        if w.batch > 1 and torch.equal(output[0], output[-1]):
            yield "gave the same output for other sequences"
        elif w.batch > 1 and not subject.mode.steps and not timed.draws:
            rolled = self.repeat(self.timed, tuple(x.roll(1, 0) for x in given))
            if differs(rolled.outputs[0], output.roll(1, 0)):
                yield "gave no permuted output for a permuted batch"
        half = w.seq_len // 2
        if half and w.level is not Level.CORE and not subject.mode.steps and subject.mask is None:
            halves = zip(given, other, strict=True)
            mixed = tuple(torch.cat([a[:, :half], b[:, half:]], 1) for a, b in halves)
            if torch.equal(self.repeat(self.timed, mixed).outputs[0], output):
                yield "ignored the second half of its input"

    def repeat(self, snapshot: Snapshot, inputs: Inputs) -> WatchedPass:
        """Repeat the pass from that moment, watched."""
        subject, saved = self.subject, list[None]()

        def record(tensor: Tensor) -> Tensor:
            saved.append(None)
            return tensor

        with torch.no_grad():
            for tensor, value in snapshot.state:
                tensor.copy_(value)
        trains = subject.mode.trains
        subject.inputs = tuple(
            x.detach().clone().requires_grad_(trains and x.is_floating_point()) for x in inputs
        )
        redraw(snapshot.draws, subject.device)
        with (
            watched(subject) as passed,
            torch.set_grad_enabled(trains),
            saved_tensors_hooks(record, lambda tensor: tensor),
        ):
            passed.outputs.append(plain(subject.forward()))
        if saved and not trains:
            passed.odd["recorded gradients in inference"] = None
        passed.draws = not all(map(torch.equal, snapshot.draws, draws(subject.device)))
        return passed


@contextmanager
def watched(subject: Subject) -> Iterator[WatchedPass]:
    """Watch the calls of the subject's mechanisms."""
    passed = WatchedPass()
    core = subject.case.workload.level is Level.CORE
    modules = [module for module in subject.module.modules() if isinstance(module, Attention)]
    name = "attend" if core else subject.calls
    rows = name == "forward" and subject.mask is None
    for module in modules if name == "forward" else modules[:1]:
        # in the instance, where it hides the class's method until it is deleted
        setattr(module, name, recorded(getattr(module, name), passed, rows))
    try:
        yield passed
    finally:
        for module in modules:
            vars(module).pop(name, None)


def recorded(call: Callable[..., Any], passed: WatchedPass, rows: bool) -> Callable[..., Any]:
    """The call, recording its output and what was odd; `rows`: every token's row must change."""

    def recording(*args: Any, **kwargs: Any) -> Any:
        inputs = [arg for arg in args if isinstance(arg, Tensor) and arg.is_floating_point()]
        before = [tensor.detach().clone() for tensor in inputs]
        grad = torch.is_grad_enabled()
        returned = call(*args, **kwargs)
        output = returned[0] if isinstance(returned, tuple) else returned  # a step and its state
        if torch.is_grad_enabled() != grad:
            passed.odd["left gradients switched " + ("off" if grad else "on")] = None
        if isinstance(output, Tensor):  # anything else is refused elsewhere
            if output.requires_grad and not grad:
                passed.odd["recorded gradients in inference"] = None
            passed.numbers.append(some_numbers(output))
            if not passed.outputs:
                passed.outputs.append(output.detach().clone())
            for sign in compared(output.detach(), before, rows):
                passed.odd[sign] = None
        if not all(map(torch.equal, before, inputs)):
            passed.odd[CHANGED] = None
        return returned

    return recording


def compared(output: Tensor, inputs: list[Tensor], rows: bool) -> Iterator[str]:
    """What is odd about a mechanism's output compared with its inputs."""
    if inputs and output.dtype != inputs[0].dtype:
        yield f"returned {output.dtype} for {inputs[0].dtype}"
    # the core of one token gives its value, as softmax over one key does
    if any(torch.equal(output, x) for x in inputs if x.dim() < 4 or x.shape[-2] > 1):
        yield "returned its input"
    elif rows and inputs and output.shape != inputs[0].shape:
        yield f"returned shape {list(output.shape)} for {list(inputs[0].shape)}"
    elif rows and inputs and (share := (output == inputs[0]).all(-1).double().mean()):
        yield f"returned {share:.0%} of its input"


def some_numbers(tensor: Tensor | None) -> Tensor:
    """Copies of some numbers, spread evenly over a tensor."""
    if tensor is None:
        return torch.empty(0)
    tensor = tensor.detach() if tensor.dim() else tensor.detach()[None]
    count = min(SAMPLED, tensor.numel())
    index = torch.linspace(0, tensor.numel() - 1, count, device=tensor.device, dtype=torch.float64)
    return tensor[torch.unravel_index(index.long(), tensor.shape)]


def differs(output: Tensor, expected: Tensor) -> bool:
    """Whether more differs than rounding explains, in all numbers or in one sequence [B, …]."""
    if output.shape != expected.shape:
        return True
    usual = expected.float().square().mean().sqrt()
    limit = max(TOLERANCE, STEPS * torch.finfo(expected.dtype).eps) * usual
    wrong = ~((output.float() - expected.float()).abs() <= limit)
    shares = wrong.double().reshape(len(wrong) if wrong.dim() > 1 else 1, -1).mean(1)
    return bool((shares > SHARE).any())
