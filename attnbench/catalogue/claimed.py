"""A user's functions as forms of a mechanism: `kimi_delta:kern.py` has one for each in `kern.py`.

A function takes the tensors of the mechanism's core by their names, and gives the output of the
core (`attention.core`); of a tuple the first output counts. It may also take `causal` or
`is_causal`, `mask`, `scale`, `heads`, options of the mechanism and parameters of its core.

Its tensors are [B, H, N, d], or with the option `axes=bnhd` [B, N, H, d]. At level `core` they are
stored in the order that it takes.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, make_dataclass, replace
from operator import attrgetter
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from attnbench.attention.card import Card
from attnbench.attention.contract import CoreAttention
from attnbench.attention.core import AXES, CAUSAL, tensor_names
from attnbench.errors import UnknownMechanism
from attnbench.records import Level, Workload

NO_STEPS = "a function of one's own continues no state"


def claimed(card: Card, module: ModuleType, name: str) -> Card:
    """The card with a form for each public function of a module, called `name`.

    Raises `UnknownMechanism` if the mechanism has no core with named tensors.
    """
    eager: Any = card.forms["eager"]
    names = tensor_names(eager)
    if not names:
        raise UnknownMechanism(f"{name!r}: the mechanism has no core whose tensors have names")
    body: dict[str, Any] = {"names": names, "by_rule": hasattr(eager, "rule")}
    if body["by_rule"]:
        body["rule"] = rule
    own = {
        key: type("Own", (Claimed, eager), {**body, "function": staticmethod(value)})
        for key, value in vars(module).items()
        if callable(value) and not (key.startswith("_") or isinstance(value, type))
    }
    if taken := own.keys() & card.forms.keys():
        raise UnknownMechanism(f"{name!r}: {min(taken)!r} is a form of the mechanism; rename yours")
    axes: Any = [("axes", str, field(default=AXES[0]))]
    config: Any = make_dataclass("Config", axes, bases=(card.config,), frozen=True, kw_only=True)
    config.__doc__ = f"{card.config.__doc__} `axes`: of a function's tensors, bhnd or bnhd."
    return replace(
        card,
        forms={**card.forms, **own},
        config=config,
        examples=tuple(config(**vars(example)) for example in card.examples),
        no_decode_reason=NO_STEPS,
    )


class Claimed(CoreAttention):
    """A form whose core is a user's `function`; `names` are those of the core's tensors.

    `by_rule`: it is the rule of a recurrence, whose tensors are scaled and masked already.
    """

    function: Callable[..., Any]
    names: tuple[str, ...]
    by_rule: bool
    flops_estimated = True

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.dtype = getattr(torch, workload.dtype)
        self.swapped = config.axes == AXES[1]
        self.stored_swapped = self.swapped and workload.level is Level.CORE
        self.accepted = accepted(self.function, self.names)
        self.usual_scale = 1.0 if self.by_rule else (self.width // self.heads) ** -0.5
        learned = [*dict(self.named_parameters()), *dict(self.named_buffers())]
        # what a function may take besides tensors and a mask, and the attributes that have it
        self.known = {
            **{name: f"config.{name}" for name, value in vars(config).items() if value is not None},
            **{name.replace(".", "_"): name for name in learned},
            **dict.fromkeys(CAUSAL, "causal"),
            "heads": "heads",
            "scale": "usual_scale",
        }
        taken = {*self.known} & self.accepted.keys()
        if not self.by_rule and not self.accepted.get("scale"):
            taken.discard("scale")  # a function's own default is that of the mechanism
        self.further = {name: attrgetter(self.known[name]) for name in taken}

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
        if workload.padding and not cls.by_rule and "mask" not in accepted(cls.function):
            return "it takes no parameter named mask, which a padded batch needs"
        return super().needs(config, workload)

    def attend(self, *inputs: Any) -> Tensor:
        *tensors, mask = inputs
        if self.stored_swapped:
            tensors = [tensor.transpose(1, 2) for tensor in tensors]
        if self.by_rule:
            output: Tensor = super().attend(*tensors, mask)
            return output
        return self.called(dict(zip(self.names, tensors, strict=True)), mask)

    def called(self, tensors: Mapping[str, Tensor], mask: Tensor | None = None) -> Tensor:
        """What the function gives for tensors [B, H, N, d], [B, H, N, d].

        Raises `TypeError` if that is no tensor, and whatever the function raises.
        """
        given: dict[str, Any] = {name: read(self) for name, read in self.further.items()}
        for name in self.accepted.keys() & tensors.keys():
            tensor = tensors[name].transpose(1, 2) if self.swapped else tensors[name]
            given[name] = tensor.contiguous()
        if "mask" in self.accepted:
            given["mask"] = mask
        output = self.function(**given)
        output = output[0] if isinstance(output, tuple) and output else output
        if not isinstance(output, Tensor):
            raise TypeError(f"it gives a {type(output).__name__}, not a tensor")
        return output.transpose(1, 2) if self.swapped else output


def rule(self: Claimed, S: Tensor, *inputs: Any) -> tuple[Tensor, Tensor]:
    """As the rules of `attention.recurrence`, but S stays as it was.

    The function takes tensors in which each head and each token has numbers of its own.
    """
    tensors = dict(zip(self.names, inputs[:-1], strict=True))  # without the length of a chunk
    B, H, N = tensors["v"].shape[:3]
    for name, tensor in tensors.items():
        own = tensor[:, :, None].expand(B, -1, H // tensor.shape[1], N, *tensor.shape[3:])
        tensors[name] = own.flatten(1, 2).to(tensor.dtype if name == "g" else self.dtype)
    return self.called(tensors).to(S.dtype), S


def accepted(function: Callable[..., Any], names: Collection[str] = ()) -> dict[str, bool]:
    """The parameters that a function takes by name, and whether they have no default.

    With these `names` too where it takes any, or where its signature cannot be read.
    """
    try:
        found = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return dict.fromkeys(names, False)
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    taken = {p.name: p.default is p.empty for p in found if p.kind in by_name}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in found)
    return {**dict.fromkeys(names if takes_any else (), False), **taken}
