"""`decode`: an iteration is a step to token N, from the state that the tokens before it left.

A state can be filled with random numbers in place of a pass over a prompt, which takes longer than
any number of steps in long contexts. A step from it does the same work; its output means nothing.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from attnbench.devices.protocol import ValuesAndNotes
from attnbench.measure.cards import Unmeasured
from attnbench.measure.drawing import draw
from attnbench.measure.subject import Subject
from attnbench.verify.flops import counted_flops

FEW = 16  # tokens of a prompt whose state gives the distribution of a filled one's numbers
STEPS = 16  # at most, for a numerical error: in float64 each reads twice the bytes


class Decode(Subject):
    """A step, ready after `prefill`: every iteration is the same one, from the prompt's state."""

    calls, declares = "step", "step_flops"

    def prepare(self) -> None:
        w = self.case.workload
        tokens = min(w.seq_len - 1, FEW) if self.filled else w.seq_len - 1
        self.prompt = self.normal(w.batch, tokens, w.width)

    def prefill(self) -> Tensor | None:
        w = self.case.workload
        self.state = None  # two states may not fit into memory
        with torch.no_grad():
            self.state = self.module.start(w.batch, w.seq_len)
            if w.seq_len == 1:
                return None
            if self.filled:
                self.fill()
                return None
            output, self.state = self.module.prefill(self.prompt, self.state)
        last: Tensor = output[:, -1:].clone()
        return last

    def fill(self) -> None:
        """Fill the new state as N − 1 tokens would, with numbers like those after a few tokens.

        Raises `Unmeasured` if the state of the few has other parts.
        """
        few = self.prompt[:, :FEW]
        start = self.module.start(len(few), few.shape[1])
        samples, structure = tree_flatten(self.module.prefill(few, start)[1])
        parts, whole = tree_flatten(self.state)
        if whole != structure:
            raise Unmeasured("unsupported", "its state cannot be filled; --no-fill runs prompts")
        filled = [self.like(*pair, few.shape[1]) for pair in zip(parts, samples, strict=True)]
        self.state = tree_unflatten(filled, whole)

    def like(self, part: Any, sample: Any, few: int) -> Any:
        """A part of the state, filled like that of `few` tokens; counts become those of N − 1."""
        if not isinstance(part, Tensor):
            return self.case.workload.seq_len - 1 if (part, sample) == (0, few) else part
        if part.shape == sample.shape:
            return part.copy_(sample)
        known = sample[sample.isfinite()].float()  # some slots may be empty
        spread, mean = torch.std_mean(known, correction=0) if len(known) else (1.0, 0.0)
        draw(part, lambda p: p.normal_(float(mean), float(spread), generator=self.generator))
        return part

    def forward(self) -> Tensor:
        """The output of the next token."""
        output: Tensor = self.module.step(*self.inputs, self.state)[0]
        return output

    def tensors(self) -> list[Tensor]:
        """What the state consists of."""
        return [leaf for leaf in tree_leaves(self.state) if isinstance(leaf, Tensor)]

    def state_bytes(self) -> float:
        """Bytes of the state's storages, each once."""
        storages = [tensor.untyped_storage() for tensor in self.tensors()]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def with_state(self, values: dict[str, float]) -> ValuesAndNotes:
        """`state_bytes` in place of bytes saved for a backward pass.

        Also the FLOPs of a step if the form does not declare them, and whether the declared number
        of elements is wrong.
        """
        module, w = self.module, self.case.workload
        values = {name: value for name, value in values.items() if name != "saved_bytes"}
        values["state_bytes"] = self.state_bytes()
        if module.step_flops(module.config, w) is None:
            step = partial(module.step, state=self.state)
            values["flops"] = counted_flops(module, *self.inputs, call=step)
        counted = sum(tensor.numel() for tensor in self.tensors())
        declared = module.state_elements(module.config, w)
        wrong = f"has a state of {counted:,} elements and declares {declared:,}"
        return values, {"odd": wrong} if counted != declared else {}

    @staticmethod
    def sequence(module: Any, x: Tensor) -> Tensor:
        """The causal output for x [1, N, D], the end of it token by token."""
        prompt = max(x.shape[1] // 2, x.shape[1] - STEPS)
        state, outputs = module.start(len(x), x.shape[1]), []
        if prompt:
            output, state = module.prefill(x[:, :prompt], state)
            outputs.append(output)
        for token in x[:, prompt:].split(1, 1):
            output, state = module.step(token, state)
            outputs.append(output)
        return torch.cat(outputs, 1)
