"""Whether a function gives the same for the same call, and reads its inputs at every call."""

import time
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnbench.devices.out_of_memory import is_out_of_memory
from attnbench.errors import one_line
from attnbench.records import Attempt, Finding, Row
from attnbench.verify.panel import Comparing, placed, rounded
from attnbench.verify.trial import Trial, same_draws

LEAST, MOST, LONGEST_S = 100, 2000, 1.5  # calls; time for those beyond the least
WITHIN = 1e-3  # what parallel sums may differ by, relative to the largest output


def repeated(trial: Trial, attempt: Attempt, left_s: float = LONGEST_S) -> Row:
    """The same call again and again, and then one with other numbers in the same memory.

    Raises `NotApplicable` where a form refuses the size.
    """
    begun = time.perf_counter()
    trial = placed(trial, attempt)
    comparing = Comparing(trial, attempt)
    module: Any = comparing.started(trial.form, trial.card)
    taken = module.offered(comparing.ordinary())
    given = {name: rounded(name, tensor, comparing.dtype) for name, tensor in taken.items()}
    calls = Calls(module, given)
    finding, reason = Finding.PASSED, ""
    try:
        finding, reason = calls.same(min(left_s, LONGEST_S))
        if finding is Finding.PASSED:
            finding, reason = calls.other_numbers()
    except Exception as error:  # a user's function raises anything
        finding = Finding.UNTRIED if is_out_of_memory(error) else Finding.FAILED
        reason = one_line(error)
    return Row(
        attempt=attempt,
        finding=finding,
        head_width=int(next(iter(given.values())).shape[-1]),
        errors={},
        ours={},
        allowed={},
        reason=reason,
        calls=calls.count,
        took_s=time.perf_counter() - begun,
    )


class Calls:
    """Calls of a function, which are counted; `given` are its tensors by name."""

    def __init__(self, module: Any, given: dict[str, Tensor]) -> None:
        self.module, self.given = module, given
        self.count = 0

    def output(self, given: dict[str, Tensor]) -> tuple[Tensor, torch.dtype]:
        """What it gives, without gradients, and the number type of that."""
        self.count += 1
        with torch.no_grad():
            y = same_draws(partial(self.module.called, given))
        return y.detach().double().clone(), self.module.gave

    def same(self, left_s: float) -> tuple[Finding, str]:
        """Whether every call gives what the first gave, with its number type."""
        end = time.perf_counter() + left_s
        first, dtype = self.output(self.given)
        while self.count < LEAST or (self.count < MOST and time.perf_counter() < end):
            y, other = self.output(self.given)
            if other != dtype:
                return Finding.VARIES, f"call {self.count} gives {other}, the first {dtype}"
            if apart(y, first):
                return Finding.VARIES, f"call {self.count} gives another output than the first"
            if self.count > 2 and time.perf_counter() > end + 10 * LONGEST_S:
                break
        return Finding.PASSED, ""

    def other_numbers(self) -> tuple[Finding, str]:
        """Whether other numbers in the same memory give what they give elsewhere.

        The first and the last number of each tensor stay, by which a memory may know it.
        """
        kept = {name: tensor.clone() for name, tensor in self.given.items()}
        before, _ = self.output(kept)
        for tensor in kept.values():
            inner = tensor.view(-1)[1:-1]
            inner.copy_(inner.flip(0).clone())
        again, _ = self.output(kept)
        if not apart(again, before):
            return Finding.REMEMBERS, "other numbers give the same output"
        elsewhere, _ = self.output({name: tensor.clone() for name, tensor in kept.items()})
        if apart(elsewhere, again):
            return Finding.REMEMBERS, "the same numbers elsewhere give another output"
        return Finding.PASSED, ""


def apart(y: Tensor, other: Tensor) -> bool:
    """Whether two outputs differ by more than the order of sums explains."""
    if y.shape != other.shape:
        return True
    both_empty = y.isnan() == other.isnan()
    largest = other.nan_to_num().abs().max()
    difference = (y - other).nan_to_num().abs().max()
    return bool(not both_empty.all() or difference > WITHIN * largest)
