"""A user's module as a mechanism: any `nn.Module` class or factory that takes width and heads.

The module maps [B, N, D] to [B, N, D]. It has no reference and no published complexity, and FLOPs
and parameters are counted when it runs.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass
from math import isfinite
from typing import Any

from torch import Tensor, nn

from attnbench.attention.card import Card, Cost, Exemption, Paper
from attnbench.attention.contract import Attention, BaseConfig, Flops, projection_flops
from attnbench.errors import UnknownMechanism
from attnbench.records import UNDECLARED, Causality, Family, Workload

# common names of the parameters for the two sizes
WIDTH = ("width", "dim", "d_model", "embed_dim", "hidden_size")
HEADS = ("heads", "num_heads", "n_heads", "nhead", "n_head")
OPTION_TYPES = (str, int, float, bool, type(None))


def adopt(offered: Any, name: str) -> Card:
    """The card of the object called `name` in a user's file or package.

    Raises `UnknownMechanism` if it is not a card, a module class or a factory.
    """
    if isinstance(offered, Card):
        return offered
    if isinstance(offered, nn.Module) or not callable(offered):
        raise UnknownMechanism(
            f"{name!r} is of type {type(offered).__name__}; it must be a Card, an nn.Module class,"
            " or a factory that takes width and heads"
        )
    accepted = parameters_of(offered, name)
    config_class = options_of(accepted)
    by_length = "seq_len" in accepted
    exempt = {Exemption.EXTRA_PADDING: "the module depends on seq_len"} if by_length else {}

    class Adopted(Attention):
        """The user's module, with checked output."""

        def __init__(self, config: Any, workload: Workload) -> None:
            super().__init__(config, workload)
            self.module = offered(**arguments(accepted, config, workload))
            if not isinstance(self.module, nn.Module):
                raise TypeError(f"{name} returned {type(self.module).__name__}, not an nn.Module")

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            y = self.module(x) if mask is None else self.module(x, mask=mask)
            check(x, y)
            return y

        @staticmethod
        def flops(config: Any, workload: Workload) -> Flops:
            """Unknown: linear in N, so that lengths have an order before any is measured."""
            return Flops(projection_flops(workload), 0)

        @staticmethod
        def elements(config: Any, workload: Workload) -> int:
            """Unknown, and assumed to be none."""
            return 0

    return Card(
        forms={"eager": Adopted},
        config=config_class,
        reference=None,
        parameters=lambda config, w: 4 * w.width**2,  # unknown, like FLOPs
        family=Family.UNKNOWN,
        causality=Causality.OPTIONAL if "causal" in accepted else Causality.NEVER,
        # not that of a base class, which may be torch's
        paper=Paper(inspect.cleandoc(offered.__doc__ or name), "", None, name),
        cost=Cost(UNDECLARED, None, None),
        examples=(config_class(),),
        needs=needs_of(offered, accepted),
        exempt=exempt,
        declared=False,
        no_decode_reason="a module without a card has no step",
    )


def parameters_of(offered: Callable[..., Any], name: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of the class or factory. Raises `UnknownMechanism` if a size is missing."""
    try:
        accepted = dict(inspect.signature(offered).parameters)
    except (TypeError, ValueError) as error:
        raise UnknownMechanism(f"the signature of {name!r} cannot be read: {error}") from error
    if not (accepted.keys() & set(WIDTH) and accepted.keys() & set(HEADS)):
        raise UnknownMechanism(
            f"{name!r} takes ({', '.join(accepted)}); it must take a width ({', '.join(WIDTH)})"
            f" and heads ({', '.join(HEADS)})"
        )
    return accepted


def options_of(accepted: Mapping[str, inspect.Parameter]) -> type[BaseConfig]:
    """A config class of the other parameters that have a plain default."""
    sizes = {*WIDTH, *HEADS, "seq_len", "causal"}
    plain = {
        name: parameter.default
        for name, parameter in accepted.items()
        if name not in sizes and is_option(parameter.default)
    }
    fields = [(name, Any, field(default=value)) for name, value in plain.items()]
    config = make_dataclass("Config", fields, bases=(BaseConfig,), frozen=True, kw_only=True)
    config.__doc__ = "; ".join(f"`{name}`: a parameter of the module" for name in plain)
    return config


def is_option(default: Any) -> bool:
    """Whether a default is text, a finite number, a flag or None, and so can be stored."""
    if isinstance(default, float):
        return isfinite(default)
    return isinstance(default, OPTION_TYPES)


def arguments(
    accepted: Mapping[str, inspect.Parameter], config: Any, workload: Workload
) -> dict[str, Any]:
    """The arguments for the class or factory."""
    values = dict.fromkeys(WIDTH, workload.width) | dict.fromkeys(HEADS, workload.heads)
    values |= {"seq_len": workload.seq_len, "causal": workload.causal, **vars(config)}
    return {name: values[name] for name in accepted if name in values}


def needs_of(
    offered: Callable[..., Any], accepted: Mapping[str, inspect.Parameter]
) -> Callable[[Any, Workload], str | None]:
    """The `needs` of a card: a mask for padded batches, and a parameter for biases."""
    forward = getattr(offered, "forward", None)
    masks = forward is None or "mask" in inspect.signature(forward).parameters

    def needs(config: Any, workload: Workload) -> str | None:
        if workload.padding and not masks:
            return "forward has no parameter named mask, which a padded batch needs"
        if config.bias and "bias" not in accepted:
            return "the module has no parameter named bias"
        return None

    return needs


def check(x: Tensor, y: Any) -> None:
    """Raises `ValueError` unless y is a tensor with the shape, dtype and device of x."""
    if not isinstance(y, Tensor):
        raise ValueError(f"forward returned a {type(y).__name__}, not one tensor")
    for name in ("shape", "dtype", "device"):
        expected, given = getattr(x, name), getattr(y, name)
        if expected != given:
            expected, given = (list(v) if name == "shape" else v for v in (expected, given))
            raise ValueError(f"the output has {name} {given}, not {expected}")
