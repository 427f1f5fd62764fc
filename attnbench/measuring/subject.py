"""A case as it is measured: a module with its inputs, and the steps of one iteration.

There is a class for each mode; `Subject` itself is for inference.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from attnbench.attention import Card
from attnbench.attention.checks.flops import counted_flops
from attnbench.attention.classifier import Classifier, random_tokens
from attnbench.attention.contract import Unusable
from attnbench.devices import find
from attnbench.records import Case, Level, modes

DRAWN = 1 << 20  # numbers of a filled tensor that are drawn, as all would take long; others repeat
LAZY = (UninitializedParameter, UninitializedBuffer)  # sized by the first forward pass
FEW = 16  # tokens of a prompt whose state gives the distribution of a filled one's numbers


class Subject:
    """A case built on its device, ready to iterate; the same seed gives the same one.

    In a mode that steps its state is `filled` with random numbers, or left by a prompt.
    This is an iteration of a forward pass alone, without gradients where the mode does not train.

    card:   of the mechanism
    case:   what is built
    seed:   of parameters and inputs
    filled: whether the state of a step is random, and follows no prompt
    """

    declares = "flops"  # the method that declares its FLOPs
    state: Any = None  # that a prompt left
    optimiser: torch.optim.Optimizer | None = None

    def __init__(self, card: Card, case: Case, seed: int, filled: bool = False) -> None:
        self.case, self.filled, w = case, filled, case.workload
        self.causality = card.causality
        self.mode = modes.find(w.mode)
        config = card.configure(dict(case.options))
        form = card.forms[case.form]
        torch.manual_seed(seed)
        self.dtype = getattr(torch, w.dtype)
        self.device = find(w.device).torch_name
        # a `Classifier`, or at other levels one form of the mechanism
        build = partial(Classifier, card, case.form) if w.level is Level.MODEL else form
        self.module: Any = build(config, config.sized(w))
        self.compiles = any(getattr(part, "compiles", False) for part in self.module.modules())
        self.module.to(self.device, self.dtype).train(self.mode.trains)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        real = max(1, round(w.seq_len * (1 - w.padding)))
        mask = (torch.arange(w.seq_len, device=self.device) < real).expand(w.batch, -1)
        self.mask = mask if w.padding else None
        self.inputs = self.new_inputs()
        self.materialise()
        self.shape = self.shape_of_output(card, config)
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.prepare()

    def materialise(self) -> None:
        """Give parameters their sizes where a forward pass tells them, as of `nn.LazyLinear`."""
        tensors = chain(self.module.parameters(), self.module.buffers())
        if not any(isinstance(each, LAZY) for each in tensors):
            return
        mask = None if self.mask is None else self.mask[:1]
        inputs = (x[:1].detach() for x in self.inputs)
        call = self.module.attend if self.case.workload.level is Level.CORE else self.module
        with torch.no_grad():
            self.module.eval()
            call(*inputs, mask)
        self.module.train(self.mode.trains)

    def prepare(self) -> None:
        """Make what iterations need besides module and inputs."""

    def shape_of_output(self, card: Card, config: Any) -> tuple[int, ...]:
        """The shape that an output must have.

        Heads and head width of a core's output are found by running one token; usually H and d. A
        user's core gives what it was given, and may not run a single token.
        """
        w = self.case.workload
        if w.level is Level.ATTENTION:
            return w.batch, w.outputs // w.batch, w.width
        if w.shell is not None:
            return w.batch, w.shell.classes
        if not card.declared:
            return w.batch, w.heads, w.seq_len, w.head_width
        one_token = config.sized(replace(w, batch=1, seq_len=1))
        core: Any = card.eager(config, one_token).to(self.device, self.dtype)
        inputs = (self.normal_numbers(*shape) for shape in core.core_inputs(config, one_token))
        with torch.no_grad():
            _, heads, _, width = core.attend(*inputs, None).shape
        return w.batch, heads, w.seq_len, width

    def prefill(self) -> Tensor | None:
        """Pass over the prompt and keep its state; the last output, None without a prompt."""
        return None

    def iteration(self) -> Callable[..., Tensor]:
        """A function that runs one iteration and calls `lap(name)` as each phase ends."""
        further = tuple(self.further_phases())

        def iterate(lap: Callable[[str], None]) -> Tensor:
            with torch.set_grad_enabled(self.mode.trains):
                output = self.forward()
            lap("forward")
            for name, work in further:
                work(output)
                lap(name)
            return without_graph(output)

        return iterate

    def further_phases(self) -> Iterator[tuple[str, Callable[[Tensor], None]]]:
        """The names of the phases after the forward pass, with what each does to the output."""
        yield from ()

    def forward(self) -> Tensor:
        """The output."""
        call = self.module.attend if self.case.workload.level is Level.CORE else self.module
        return call(*self.inputs, self.mask)

    def clear(self) -> None:
        """Drop the gradients."""
        for tensor in (*self.parameters, *self.inputs):
            tensor.grad = None

    def check(self, output: Tensor) -> str:
        """What is wrong with an output, or nothing."""
        if tuple(output.shape) != self.shape:
            return f"output has shape {list(output.shape)}, not {list(self.shape)}"
        if output.dtype != self.dtype:
            return f"output is {output.dtype}, not {self.dtype}"
        if not output.isfinite().all():
            return "output is not finite"
        return ""

    def with_state(self, values: dict[str, float]) -> dict[str, float]:
        """The memory measurements as they are to be stored."""
        return values

    def new_inputs(self, seed: int | None = None) -> tuple[Tensor, ...]:
        """New inputs, from this seed if there is one."""
        if seed is not None:
            self.generator.manual_seed(seed)
        w = self.case.workload
        if w.level is Level.MODEL:
            return (random_tokens(w, self.generator),)
        if w.level is Level.ATTENTION:
            return (self.normal_numbers(w.batch, w.outputs // w.batch, w.width),)
        config = self.module.config
        shapes = self.module.core_inputs(config, config.sized(w))
        return tuple(self.normal_numbers(*shape) for shape in shapes)

    def normal_numbers(self, *shape: int) -> Tensor:
        """Normally distributed numbers, with a gradient where the mode trains."""
        tensor = torch.empty(shape, device=self.device, dtype=self.dtype)
        return tensor.normal_(generator=self.generator).requires_grad_(self.mode.trains)


class Training(Subject):
    """A forward pass, a backward pass and a step of Adam.

    The forward pass ends with the loss at level `model`, else with outputs of fixed gradients.
    """

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

    def further_phases(self) -> Iterator[tuple[str, Callable[[Tensor], None]]]:
        yield "backward", self.backward
        if (optimiser := self.optimiser) is not None:
            yield "step", lambda output: optimiser.step()

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

    def _target(self) -> Tensor:
        """Labels [B] at level `model`, otherwise a fixed gradient of the output."""
        w = self.case.workload
        if w.shell is None:
            return self.normal_numbers(*self.shape).requires_grad_(False)
        self.shape = ()  # of the loss
        labels = torch.empty(w.batch, dtype=torch.int64, device=self.device)
        return labels.random_(w.shell.classes, generator=self.generator)


class Decode(Subject):
    """The step whose last token is N, ready after `prefill`: always the same one, from its state.

    A state can be filled with random numbers in place of a pass over a prompt, which takes longer
    than any number of steps in long contexts. A step from it does the same work; its output means
    nothing.
    """

    declares = "step_flops"

    def prepare(self) -> None:
        w = self.case.workload
        self.past = w.seq_len - w.step
        tokens = min(self.past, FEW) if self.filled else self.past
        self.prompt = self.normal_numbers(w.batch, tokens, w.width)

    def prefill(self) -> Tensor | None:
        w = self.case.workload
        self.state = None  # two states may not fit into memory
        with torch.no_grad():
            self.state = self.module.start(w.batch, w.seq_len)
            if not self.past:
                return None
            if self.filled:
                self.fill()
                return None
            output, self.state = self.module.prefill(self.prompt, self.state)
        last: Tensor = output[:, -1:].expand(-1, w.step, -1).clone()  # of a step's shape
        return last

    def fill(self) -> None:
        """Fill the new state as the past tokens would, with numbers like those after a few tokens.

        Raises `Unusable` if the state of the few has other parts.
        """
        few = self.prompt[:, :FEW]
        start = self.module.start(len(few), few.shape[1])
        samples, structure = tree_flatten(self.module.prefill(few, start)[1])
        parts, state_structure = tree_flatten(self.state)
        if state_structure != structure:
            raise Unusable("its state cannot be filled; --no-fill runs prompts")
        filled = [
            self.filled_part(*pair, few.shape[1]) for pair in zip(parts, samples, strict=True)
        ]
        self.state = tree_unflatten(filled, state_structure)

    def filled_part(self, part: Any, sample: Any, few: int) -> Any:
        """A part of the state, filled as `few` tokens fill it; counts become those of all past."""
        if not isinstance(part, Tensor):
            return self.past if (part, sample) == (0, few) else part
        if part.shape == sample.shape:
            return part.copy_(sample)
        finite = sample[sample.isfinite()].float()  # some slots may be empty
        spread, mean = torch.std_mean(finite, correction=0) if len(finite) else (1.0, 0.0)
        drawn_part, *other_parts = part.flatten().split(DRAWN) if part.is_contiguous() else (part,)
        drawn_part.normal_(float(mean), float(spread), generator=self.generator)
        for other_part in other_parts:
            other_part.copy_(drawn_part[: len(other_part)])
        return part

    def forward(self) -> Tensor:
        """The outputs of the next tokens."""
        output: Tensor = self.module.step(*self.inputs, self.state)[0]
        return output

    def with_state(self, values: dict[str, float]) -> dict[str, float]:
        """Bytes of the state's storages, each once, in place of those saved for a backward pass.

        Also the FLOPs of a step if the form does not declare them.
        """
        module = self.module
        leaves = tree_leaves(self.state)
        sized = module.config.sized(self.case.workload)
        storages = [leaf.untyped_storage() for leaf in leaves if isinstance(leaf, Tensor)]
        values = {name: value for name, value in values.items() if name != "saved_bytes"}
        values["state_bytes"] = sum({s.data_ptr(): s.nbytes() for s in storages}.values())
        if module.step_flops(module.config, sized) is None:
            step = partial(module.step, state=self.state)
            values["flops"] = counted_flops(module, *self.inputs, call=step)
        return values


def without_graph(output: Any) -> Tensor:
    """An output without its graph.

    Raises `TypeError` if it is not exactly a tensor: a subclass may compute only when it is read.
    """
    if type(output) is not Tensor:
        raise TypeError(f"the output is a {type(output).__name__}, and not exactly a Tensor")
    return output.detach()


def subject_of(card: Card, case: Case, seed: int, filled: bool = False) -> Subject:
    """The subject of a case, by its mode.

    card:   of the mechanism
    case:   with the mode that decides the class
    seed:   of parameters and inputs
    filled: whether the state of a step is random, and follows no prompt
    """
    return SUBJECTS[case.workload.mode](card, case, seed, filled)


SUBJECTS: Mapping[str, type[Subject]] = MappingProxyType({
    "inference": Subject,
    "training": Training,
    "decode": Decode,
})  # fmt: skip
