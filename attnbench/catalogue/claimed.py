"""A user's functions as forms of a mechanism: `kimi_delta:kern.py` has one for each in `kern.py`.

A function takes the tensors of the mechanism's core by their names, and gives the output of the
core (`attention.core`); of a tuple the first output counts. It may also take `causal` or
`is_causal`, `mask`, `scale`, `heads`, options of the mechanism and parameters of its core.

Its tensors are [B, H, N, d], or with the option `axes=bnhd` [B, N, H, d]. At level `core` they are
stored in the order that it takes.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from attnbench.attention.card import Card
from attnbench.attention.contract import CoreAttention, Unusable
from attnbench.attention.core import AXES, by_head, tensor_names
from attnbench.errors import UnknownMechanism
from attnbench.records import Level, Workload

CAUSAL = ("causal", "is_causal")
NO_STEPS = "a function of one's own continues no state"


def claimed(card: Card, module: ModuleType, name: str) -> Card:
    """The card with a form for each public function of a module, called `name`.

    Raises `UnknownMechanism` if the mechanism has no core with named tensors.
    """
    names = tensor_names(card.forms["eager"])
    if not names:
        raise UnknownMechanism(f"{name!r}: the mechanism has no core whose tensors have names")
    offered = {key: value for key, value in vars(module).items() if is_function(key, value)}
    if taken := [key for key in offered if key in card.forms]:
        raise UnknownMechanism(f"{name!r}: {taken[0]!r} is a form of the mechanism; rename yours")
    axes: Any = [("axes", str, field(default=AXES[0]))]
    config: Any = make_dataclass("Config", axes, bases=(card.config,), frozen=True, kw_only=True)
    config.__doc__ = f"{card.config.__doc__} `axes`: of a function's tensors, bhnd or bnhd."
    own = {key: form_of(card, names, value) for key, value in offered.items()}
    return replace(
        card,
        forms={**card.forms, **own},
        config=config,
        examples=tuple(config(**vars(example)) for example in card.examples),
        no_decode_reason=NO_STEPS,
    )


def is_function(name: str, value: Any) -> bool:
    """Whether a public name of a module is one of a function, or of what is called like one."""
    return not name.startswith("_") and callable(value) and not isinstance(value, type)


def form_of(
    card: Card, names: tuple[str, ...], function: Callable[..., Any]
) -> type[CoreAttention]:
    """The class of a function's form."""
    eager: Any = card.forms["eager"]
    body = {"function": staticmethod(function), "names": names, "__module__": eager.__module__}
    if hasattr(eager, "rule"):
        body["rule"] = rule
    return type("Claimed", (Claimed, eager), body)


class Claimed(CoreAttention):
    """A form whose core is a user's `function`; `names` are those of the core's tensors."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    flops_estimated = True

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.dtype = getattr(torch, workload.dtype)
        self.by_rule = hasattr(self, "rule")
        self.swapped = config.axes == AXES[1]
        self.stored_swapped = self.swapped and workload.level is Level.CORE
        self.accepted = accepted(self.function)
        known = {*self.names, "mask", *self.further()}
        needed = [
            name
            for name, p in self.accepted.items()
            if p.default is p.empty and p.kind is not p.VAR_KEYWORD
        ]
        if unknown := [name for name in needed if name not in known]:
            listed = ", ".join(sorted(known.difference(self.names)))
            raise Unusable(
                f"it takes {unknown[0]!r} without a default; the core has {', '.join(self.names)};"
                f" known are also {listed}"
            )

    @staticmethod
    def elements(config: Any, workload: Workload) -> int:
        """Unknown, and assumed to be none."""
        return 0

    @classmethod
    def core_inputs(cls, config: Any, workload: Workload) -> tuple[tuple[int, ...], ...]:
        """Those of the mechanism, at level `core` in the order in which they are stored."""
        shapes = super().core_inputs(config, workload)
        if workload.level is not Level.CORE or config.axes == AXES[0]:
            return shapes
        return tuple((B, N, H, *more) for B, H, N, *more in shapes)

    @classmethod
    def needs(cls, config: Any, workload: Workload) -> str | None:
        if config.axes not in AXES:
            return f"axes is {config.axes!r}, not {' or '.join(AXES)}"
        masks = hasattr(cls, "rule") or "mask" in accepted(cls.function)
        if workload.padding and not masks:
            return "it takes no parameter named mask, which a padded batch needs"
        return super().needs(config, workload)

    def attend(self, *inputs: Any) -> Tensor:
        *tensors, mask = inputs
        if self.stored_swapped:
            tensors = [tensor.transpose(1, 2) for tensor in tensors]
        if self.by_rule:
            output: Tensor = super().attend(*tensors, mask)
            return output
        return self.claimed_core(dict(zip(self.names, tensors, strict=True)), mask)

    def further(self) -> dict[str, Any]:
        """What a function may take besides tensors and a mask, by name."""
        options = {name: value for name, value in vars(self.config).items() if value is not None}
        own = dict(self.named_parameters()) | dict(self.named_buffers())
        scale = 1.0 if self.by_rule else (self.width // self.heads) ** -0.5
        return {
            **options,
            **{name.replace(".", "_"): tensor for name, tensor in own.items()},
            **dict.fromkeys(CAUSAL, self.causal),
            "heads": self.heads,
            "scale": scale,
        }

    def claimed_core(self, tensors: Mapping[str, Tensor], mask: Tensor | None = None) -> Tensor:
        """What the function gives for tensors [B, H, N, d], [B, H, N, d].

        Raises `TypeError` if that is no tensor, and whatever the function raises.
        """
        given: dict[str, Any] = dict(tensors)
        if self.by_rule:
            full = by_head(tensors)
            given = {key: t if key == "g" else t.to(self.dtype) for key, t in full.items()}
        if self.swapped:
            given = {key: tensor.transpose(1, 2) for key, tensor in given.items()}
        given = {key: tensor.contiguous() for key, tensor in given.items()}
        if mask is not None:
            given["mask"] = mask
        takes_all = any(p.kind is p.VAR_KEYWORD for p in self.accepted.values())
        given = {key: value for key, value in given.items() if takes_all or key in self.accepted}
        for key, value in self.further().items():
            if key in self.accepted and key not in given and self.sets(key):
                given[key] = value
        output = self.function(**given)
        output = output[0] if isinstance(output, tuple) and output else output
        if not isinstance(output, Tensor):
            raise TypeError(f"it gives a {type(output).__name__}, not a tensor")
        return output.transpose(1, 2) if self.swapped else output

    def untaken(self, causality: bool) -> list[str]:
        """The tensors of the core that it does not take, or `causal` where there is a choice."""
        if any(p.kind is p.VAR_KEYWORD for p in self.accepted.values()):
            return []
        names = [name for name in self.names if name not in self.accepted]
        told = not causality or self.accepted.keys() & set(CAUSAL)
        return names if told else [*names, CAUSAL[0]]

    def sets(self, name: str) -> bool:
        """Whether a parameter is set: a scale with a default only where q is scaled already."""
        parameter = self.accepted[name]
        return name != "scale" or self.by_rule or parameter.default is parameter.empty


def rule(self: Claimed, S: Tensor, g: Tensor, *inputs: Any) -> tuple[Tensor, Tensor]:
    """As the rules of `attention.recurrence`, but S stays as it was."""
    *tensors, _ = inputs  # without the length of a chunk
    output = self.claimed_core(dict(zip(self.names, (g, *tensors), strict=True)))
    return output.to(S.dtype), S


def accepted(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters that a function takes by name; any, where its signature cannot be read."""
    found: Mapping[str, inspect.Parameter]
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        found = {"names": inspect.Parameter("names", inspect.Parameter.VAR_KEYWORD)}
    return {name: p for name, p in found.items() if p.kind is not p.VAR_POSITIONAL}
