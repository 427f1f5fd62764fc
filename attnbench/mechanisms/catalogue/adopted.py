"""A user's module as a mechanism.

A layer is an `nn.Module` class or a factory that takes width and heads, and maps [B, N, D] to
[B, N, D]. A core is a function of q, k and v, or a class whose `forward` takes them, and maps
[B, H, N, d] to [B, H, N, d]; at level `attention` it stands between projections. Neither has a
reference or a published complexity: FLOPs and parameters are counted when it runs.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass
from functools import cache, partial
from math import isfinite
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attnbench.attention import (
    Attention,
    BaseConfig,
    Card,
    Cost,
    Exemption,
    Flops,
    Paper,
    QKVAttention,
    projection_flops,
)
from attnbench.errors import UnknownMechanism
from attnbench.mechanisms.catalogue.declared import CORE, HEADS, WIDTH
from attnbench.records import UNDECLARED, Causality, Family, Workload

CAUSAL = ("causal", "is_causal")  # common names of that parameter
OPTION_TYPES = (str, int, float, bool, type(None))


class Adopted(Attention):
    """A user's module, whose output is checked; `make` gives it, or the function that it is."""

    # an empty batch reaches it as it is
    __call__ = nn.Module.__call__

    @staticmethod
    def make(config: Any, workload: Workload) -> Callable[..., Any]:
        raise NotImplementedError

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.module = self.make(config, workload)

    def call(self, *inputs: Tensor, mask: Tensor | None) -> Tensor:
        """Its output, the first one of a tuple. Raises `ValueError`."""
        y = self.module(*inputs) if mask is None else self.module(*inputs, mask=mask)
        y = y[0] if isinstance(y, tuple) and y else y
        check(inputs[-1], y)
        checked: Tensor = y
        return checked

    @staticmethod
    def flops(config: Any, workload: Workload) -> Flops:
        """Unknown: linear in N, so that lengths have an order before any is measured."""
        return Flops(projection_flops(workload), 0)

    @staticmethod
    def elements(config: Any, workload: Workload) -> int:
        """Unknown, and assumed to be none."""
        return 0


class Layer(Adopted):
    """A module [B, N, D] to [B, N, D]."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.call(x, mask=mask)


class Core(Adopted, QKVAttention):
    """A core [B, H, N, d] to [B, H, N, d]."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return self.call(q, k, v, mask=mask)


def adopt(offered: Any, name: str) -> Card:
    """The card of the object called `name` in a user's file or package.

    Raises `UnknownMechanism` if it is neither a card nor a layer or core.
    """
    if isinstance(offered, Card):
        return offered
    if isinstance(offered, nn.Module) or not callable(offered):
        raise UnknownMechanism(
            f"{name!r} is of type {type(offered).__name__}; it must be a Card, an nn.Module class,"
            " a factory that takes width and heads, or a function of q, k and v"
        )
    accepted = parameters_of(offered, name)
    is_class = isinstance(offered, type)
    forward = getattr(offered, "forward", offered)
    called = (*parameters_of(forward, name),)[1:] if is_class else (*accepted,)
    is_core = called[:3] == CORE
    is_function = is_core and not is_class
    if not is_core and not (accepted.keys() & set(WIDTH) and accepted.keys() & set(HEADS)):
        raise UnknownMechanism(
            f"{name!r} takes ({', '.join(accepted)}); it must take a width ({', '.join(WIDTH)})"
            f" and heads ({', '.join(HEADS)}), or q, k and v first"
        )

    if required := () if is_core else required_names(accepted):
        raise UnknownMechanism(
            f"{name!r} takes {' and '.join(required)} without a default; give it one, or write a"
            " factory: def make(width, heads, …), which returns the module"
        )

    def make(config: Any, workload: Workload) -> Callable[..., Any]:
        values = dict.fromkeys(WIDTH, workload.width) | dict.fromkeys(HEADS, workload.heads)
        values |= dict.fromkeys(CAUSAL, workload.causal)
        values |= {"seq_len": workload.seq_len, **vars(config)}
        values = {name: values[name] for name in accepted if name in values}
        made = partial(offered, **values) if is_function else offered(**values)
        if not is_function and not isinstance(made, nn.Module):
            raise TypeError(f"{name} returned {type(made).__name__}, not an nn.Module")
        return made

    @cache
    def masked(config: Any, workload: Workload) -> bool:
        """Whether the module takes a mask; that of a factory is made, without data, to know."""
        if is_core or is_class:
            return "mask" in called
        try:
            with torch.device("meta"):
                made: Any = make(config, workload)
        except Exception:  # it may need data: what it takes is seen when it runs
            return True
        takes = inspect.signature(made.forward).parameters.values()
        return any(each.name == "mask" or each.kind is each.VAR_KEYWORD for each in takes)

    def needs(config: Any, workload: Workload) -> str | None:
        if workload.padding and not masked(config, workload):
            return "it takes no parameter named mask, which a padded batch needs"
        return None

    kind = Core if is_core else Layer
    config = options_of(accepted, biased=is_core)
    by_length = "seq_len" in accepted
    return Card(
        forms={"eager": type("Adopted", (kind,), {"make": staticmethod(make)})},
        config=config,
        reference=None,
        parameters=lambda config, w: 4 * w.width**2,  # unknown, like FLOPs
        family=Family.UNKNOWN,
        causality=Causality.OPTIONAL if accepted.keys() & set(CAUSAL) else Causality.TESTED,
        # not a base class's, which may be torch's
        paper=Paper(inspect.cleandoc(offered.__doc__ or name), "", None, name),
        cost=Cost(UNDECLARED, None, None),
        examples=(config(),),
        needs=needs,
        exempt={Exemption.EXTRA_PADDING: "the module depends on seq_len"} if by_length else {},
        declared=False,
        no_decode_reason="decoding token by token needs a description of its steps, a card (see"
        " 'Add a mechanism' in CONTRIBUTING)",
    )


def parameters_of(offered: Callable[..., Any], name: str) -> Mapping[str, inspect.Parameter]:
    """What a class, factory or function takes. Raises `UnknownMechanism` if nothing says it."""
    try:
        return dict(inspect.signature(offered).parameters)
    except (TypeError, ValueError) as error:
        raise UnknownMechanism(f"the signature of {name!r} cannot be read: {error}") from error


def required_names(accepted: Mapping[str, inspect.Parameter]) -> list[str]:
    """The parameters without a default that are no size."""
    sizes = {*WIDTH, *HEADS, *CAUSAL, "seq_len"}
    return [
        name
        for name, each in accepted.items()
        if name not in sizes
        and each.default is each.empty
        and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]


def options_of(accepted: Mapping[str, inspect.Parameter], biased: bool) -> type[BaseConfig]:
    """A config class of the other parameters with a plain default; `biased`: of projections too."""
    sizes = {*WIDTH, *HEADS, *CAUSAL, *CORE, "seq_len", "mask"}
    options = {
        name: parameter.default
        for name, parameter in accepted.items()
        if name not in sizes and isinstance(parameter.default, OPTION_TYPES)
    }
    # a number that is not finite cannot be stored
    plain = {n: x for n, x in options.items() if not isinstance(x, float) or isfinite(x)}
    fields: list[Any] = [(name, Any, field(default=value)) for name, value in plain.items()]
    if not biased and "bias" not in plain:
        fields.append(("bias", ClassVar[bool], False))
    config = make_dataclass("Config", fields, bases=(BaseConfig,), frozen=True, kw_only=True)
    config.__doc__ = ""
    return config


def check(x: Tensor, y: Any) -> None:
    """Raises `ValueError` unless y is a tensor with the shape, dtype and device of x.

    Under autocast, which chooses types, with its shape and device.
    """
    if not isinstance(y, Tensor):
        raise ValueError(f"forward returned a {type(y).__name__}, not one tensor")
    free = torch.is_autocast_enabled(x.device.type)
    for name in ("shape", "device") if free else ("shape", "dtype", "device"):
        expected = getattr(x, name)
        given = getattr(y, name)
        if expected != given:
            expected, given = (list(v) if name == "shape" else v for v in (expected, given))
            raise ValueError(f"the output has {name} {given}, not {expected}")
