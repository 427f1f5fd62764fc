"""Mechanisms whose state of past tokens has a fixed size, and takes any number of tokens at a time.

A form that computes the recurrence in chunks overrides `chunk`; the others go token by token.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from attnbench.attention.contract import CoreAttention, Flops, State
from attnbench.records import Workload


class Recurrent(CoreAttention):
    """An attention that only writes `extend`, and how its state starts."""

    def extend(self, x: Tensor, mask: Tensor | None, state: State) -> tuple[Tensor, State]:
        """The outputs of tokens after a state, [B, N, D] to [B, N, D], and the state after them."""
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.extend(x, mask, self.start(len(x), 0))[0]

    def prefill(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.extend(x, None, state)

    @staticmethod
    def chunk(config: Any, d: int) -> int | None:
        """Tokens of a chunk at keys of width d; None: token by token."""
        return None

    @classmethod
    def step_flops(cls, config: Any, w: Workload) -> Flops:
        """Those of one token."""
        return cls.flops(config, replace(w, seq_len=1))
