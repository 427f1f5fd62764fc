"""The form `compiled` of every mechanism: its form `eager`, compiled by torch for each shape.

Parameters, options, FLOPs and reference are those of `eager`. At level `core` its `attend` is
compiled, at other levels its `forward`: one graph without breaks, whose backward pass AOTAutograd
compiles with it. Classifier, loss and optimiser around it are those of all forms, so that forms
differ by the mechanism alone. Random numbers come from torch's generator, as in `eager`.

Source: Ansel et al., "PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode
Transformation and Graph Compilation", 2024, doi:10.1145/3620665.3640366.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from attnbench.attention import Attention, Card, CoreAttention
from attnbench.devices import find
from attnbench.records import Workload

FORM = "compiled"

Refusal = str | Callable[[Any, Workload], str | None]


def with_compiled(card: Card) -> Card:
    """The card with a form `compiled`; a card that has one, or of functions of a user, stays."""
    if FORM in card.forms or card.mechanism:
        return card
    eager: Any = card.eager
    return replace(card, forms={**card.forms, FORM: compiled(eager, card.uncompiled)})


@cache
def compiled(eager: Any, uncompiled: Refusal) -> type[Attention]:
    """The class of the form."""

    def forward(self: Attention, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return kernel(eager.forward)(self, x, mask)

    def attend(self: Attention, *inputs: Tensor | None) -> Tensor:
        """Compiled at level `core`; within `forward`, a part of what is compiled there."""
        call = eager.attend if torch.compiler.is_compiling() else kernel(eager.attend)
        return call(self, *inputs)

    def needs(config: Any, workload: Workload) -> str | None:
        if refused := eager.needs(config, workload):
            return str(refused)
        refused = uncompiled(config, workload) if callable(uncompiled) else uncompiled
        return refused or find(workload.device).cannot_compile() or None

    body: dict[str, Any] = {"compiles": True, "forward": forward, "needs": staticmethod(needs)}
    if issubclass(eager, CoreAttention):
        body["attend"] = attend
    return type("Compiled", (eager,), {**body, "__module__": eager.__module__})


@cache
def kernel(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function, compiled anew for each shape."""
    options: dict[str, Any] = {"fallback_random": True}
    return torch.compile(function, dynamic=False, fullgraph=True, options=options)
