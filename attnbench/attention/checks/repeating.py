"""Whether a function gives the same for the same call, and reads its inputs at every call.

Also whether another number of sequences changes what it gives for each.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnbench.attention.checks.panel import Comparing, placed, rounded
from attnbench.attention.checks.trial import Trial, same_draws
from attnbench.devices import is_out_of_memory, raise_device_failure
from attnbench.errors import one_line
from attnbench.records import Attempt, KernelFinding, PanelRow

LEAST = 100  # calls
MOST = 2000
LONGEST_S = 1.5  # for those beyond the least
BLOCK = 512  # tokens that any kernel takes
FRESH = 20  # calls with tensors that may get the memory of earlier ones
WITHIN = 1e-3  # what parallel sums may differ by, relative to the largest output


def repeated(trial: Trial, attempt: Attempt, left_s: float = LONGEST_S) -> PanelRow:
    """The same call again and again, and then one with other numbers in the same memory.

    At a whole number of blocks where the function does not take the tokens of the attempt. Raises
    `NotApplicable` where a form refuses the size, and `DeviceFailed` where it broke the GPU.
    """
    begun = time.perf_counter()
    trial_before = trial
    trial = placed(trial, attempt)
    comparing = Comparing(trial, attempt)
    module: Any = comparing.started(trial.form, trial.card)
    taken = module.offered(comparing.ordinary())
    inputs = {name: rounded(name, tensor, comparing.dtype) for name, tensor in taken.items()}
    usual = comparing.started(comparing.default, comparing.mechanism)

    def ours(tensors: dict[str, Tensor]) -> Tensor:
        return comparing.evaluated(usual, tensors, module.of_core).output

    calls = Calls(module, inputs, ours)
    finding = KernelFinding.PASSED
    reason = ""
    try:
        finding, reason = calls.same(min(left_s, LONGEST_S))
        for further in (calls.other_numbers, calls.fresh_tensors, calls.another_batch):
            if finding is KernelFinding.PASSED:
                finding, reason = further()
    except Exception as error:  # a user's function raises anything
        raise_device_failure()
        if calls.count == 1 and attempt.tokens % BLOCK:  # few kernels take any length
            return repeated(trial_before, replace(attempt, tokens=BLOCK), left_s)
        finding = KernelFinding.UNTRIED if is_out_of_memory(error) else KernelFinding.FAILED
        reason = one_line(error)
    return PanelRow(
        attempt=attempt,
        finding=finding,
        head_width=int(next(iter(inputs.values())).shape[-1]),
        errors={},
        ours={},
        allowed={},
        reason=reason,
        calls=calls.count,
        took_s=time.perf_counter() - begun,
    )


class Calls:
    """Calls of a function, which are counted.

    `inputs` are its tensors by name. `ours` is what the mechanism's usual form gives for them.
    """

    def __init__(
        self,
        module: Any,
        inputs: dict[str, Tensor],
        ours: Callable[[dict[str, Tensor]], Tensor],
    ) -> None:
        self.module = module
        self.inputs = inputs
        self.ours = ours
        self.count = 0

    def output(self, inputs: dict[str, Tensor]) -> tuple[Tensor, torch.dtype]:
        """What it gives, without gradients, and the number type of that."""
        self.count += 1
        with torch.no_grad():
            y = same_draws(partial(self.module.called, inputs))
        return y.detach().double().clone(), self.module.gave

    def same(self, left_s: float) -> tuple[KernelFinding, str]:
        """Whether every call gives what the first gave, with its number type."""
        end = time.perf_counter() + left_s
        first, dtype = self.output(self.inputs)
        while self.count < LEAST or (self.count < MOST and time.perf_counter() < end):
            y, other = self.output(self.inputs)
            if other != dtype:
                return KernelFinding.VARIES, f"call {self.count} gives {other}, the first {dtype}"
            if apart(y, first):
                return (
                    KernelFinding.VARIES,
                    f"call {self.count} gives another output than the first",
                )
            if self.count > 2 and time.perf_counter() > end + 10 * LONGEST_S:
                break
        return KernelFinding.PASSED, ""

    def other_numbers(self) -> tuple[KernelFinding, str]:
        """Whether other numbers in the same memory give what they give elsewhere.

        The first and the last number of each tensor stay, by which a memory may know it.
        """
        kept = {name: tensor.clone() for name, tensor in self.inputs.items()}
        before, _ = self.output(kept)
        for tensor in kept.values():
            inner = tensor.view(-1)[1:-1]
            inner.copy_(inner.flip(0).clone())
        again, _ = self.output(kept)
        if not apart(again, before):
            return KernelFinding.REMEMBERS, "other numbers give the same output"
        elsewhere, _ = self.output({name: tensor.clone() for name, tensor in kept.items()})
        if apart(elsewhere, again):
            return KernelFinding.REMEMBERS, "the same numbers elsewhere give another output"
        return KernelFinding.PASSED, ""

    def fresh_tensors(self) -> tuple[KernelFinding, str]:
        """Whether new tensors give what their numbers give, where others were freed before."""
        turned = {name: flipped(tensor) for name, tensor in self.inputs.items()}
        both = [(numbers, self.output(numbers)[0]) for numbers in (self.inputs, turned)]
        for turn in range(FRESH):
            numbers, expected = both[turn % 2]
            y, _ = self.output({name: tensor.clone() for name, tensor in numbers.items()})
            if apart(y, expected):
                return KernelFinding.REMEMBERS, "new tensors give the output of earlier ones"
        return KernelFinding.PASSED, ""

    def another_batch(self) -> tuple[KernelFinding, str]:
        """Whether each sequence gives the same beside one more, which is the first again.

        Not asked of a mechanism that draws other random numbers for another batch.
        """
        B = max(len(tensor) for tensor in self.inputs.values() if tensor.dim() > 2)
        more = {
            name: torch.cat([tensor, tensor[:1]])
            if tensor.dim() > 2 and len(tensor) == B
            else tensor
            for name, tensor in self.inputs.items()
        }
        usual = self.ours(self.inputs)
        if apart(self.ours(more), torch.cat([usual, usual[:1]])):
            return KernelFinding.PASSED, ""
        alone, dtype = self.output(self.inputs)
        beside, _ = self.output(more)
        # sums in another order round to another last digit
        within = max(WITHIN, 4 * torch.finfo(dtype).eps)
        if apart(beside, torch.cat([alone, alone[:1]]), within):
            return KernelFinding.VARIES, f"{B + 1} sequences give another output than {B} of them"
        return KernelFinding.PASSED, ""


def flipped(tensor: Tensor) -> Tensor:
    """The same numbers in the other order, but for the first and the last."""
    turned = tensor.clone()
    inner = turned.view(-1)[1:-1]
    inner.copy_(inner.flip(0).clone())
    return turned


def apart(y: Tensor, other: Tensor, within: float = WITHIN) -> bool:
    """Whether two outputs differ by more than the order of sums explains."""
    if y.shape != other.shape:
        return True
    both_empty = y.isnan() == other.isnan()
    largest = other.nan_to_num().abs().max()
    difference = (y - other).nan_to_num().abs().max()
    return bool(not both_empty.all() or difference > within * largest)
