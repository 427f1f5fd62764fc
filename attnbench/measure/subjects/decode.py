"""`decode`: an iteration is a step to token N, from the state that the tokens before it left."""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from attnbench.devices.protocol import Weighed
from attnbench.measure.subject import Subject
from attnbench.verify.flops import counted_flops


class Decode(Subject):
    """A step, ready after `prefill`: every iteration is the same one, from the prompt's state."""

    calls, declares = "step", "step_flops"

    def prepare(self, capturable: bool) -> None:
        w = self.case.workload
        self.prompt = self.normal(w.batch, w.seq_len - 1, w.width)

    def prefill(self) -> Tensor | None:
        w = self.case.workload
        self.state = None  # two states may not fit into memory
        with torch.no_grad():
            self.state = self.module.start(w.batch, w.seq_len)
            if w.seq_len == 1:
                return None
            output, self.state = self.module.prefill(self.prompt, self.state)
        last: Tensor = output[:, -1:].clone()
        return last

    def forward(self) -> Tensor:
        """The output of the next token."""
        output: Tensor = self.module.step(*self.inputs, self.state)[0]
        return output

    def weighed(self, values: dict[str, float]) -> Weighed:
        """Bytes of the state's storages, each once, in place of those saved for a backward pass.

        Also the FLOPs of a step if the form does not declare them, and whether the declared number
        of elements is wrong.
        """
        tensors = [leaf for leaf in tree_leaves(self.state) if isinstance(leaf, Tensor)]
        stored = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        module, w = self.module, self.case.workload
        values = {name: value for name, value in values.items() if name != "saved_bytes"}
        values["state_bytes"] = sum(stored.values())
        if module.step_flops(module.config, w) is None:
            step = partial(module.step, state=self.state)
            values["flops"] = counted_flops(module, *self.inputs, call=step)
        counted = sum(tensor.numel() for tensor in tensors)
        declared = module.state_elements(module.config, w)
        wrong = f"has a state of {counted:,} elements and declares {declared:,}"
        return values, {"odd": wrong} if counted != declared else {}

    @staticmethod
    def sequence(module: Any, x: Tensor) -> Tensor:
        """The causal output for x [1, N, D], the second half of it token by token."""
        prompt = x.shape[1] // 2
        state, outputs = module.start(len(x), x.shape[1]), []
        if prompt:
            output, state = module.prefill(x[:, :prompt], state)
            outputs.append(output)
        for token in x[:, prompt:].split(1, 1):
            output, state = module.step(token, state)
            outputs.append(output)
        return torch.cat(outputs, 1)
