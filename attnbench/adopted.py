"""A user's module as a mechanism: any `nn.Module` class or factory that takes width and heads.

The module takes [B, N, D] to [B, N, D]. Nothing is invented for it: it has no reference and no
published complexity, and its FLOPs and parameters are counted when it runs.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass
from typing import Any

from torch import Tensor, nn

from attnbench.contract import (
    Attention,
    BaseConfig,
    Card,
    Cost,
    Exemption,
    Flops,
    Paper,
    projection_flops,
    projection_parameters,
)
from attnbench.errors import UnknownMechanism
from attnbench.records import Causality, Family, Workload

# common names of the parameters for the two sizes
WIDTH = ("width", "dim", "d_model", "embed_dim", "hidden_size")
HEADS = ("heads", "num_heads", "n_heads", "nhead", "n_head")
OPTION_TYPES = (str, int, float, bool, type(None))


def adopt(offered: Any, name: str) -> Card:
    """The card of the object that a user's file or package offers as `name`.

    Raises `UnknownMechanism` if it is neither a card, nor a module class, nor a factory.
    """
    if isinstance(offered, Card):
        return offered
    if isinstance(offered, nn.Module) or not callable(offered):
        raise UnknownMechanism(
            f"{name!r} is of type {type(offered).__name__}; it must be a Card, an nn.Module class,"
            " or a factory that takes width and heads"
        )
    taken = parameters_of(offered, name)
    tied = {Exemption.EXTRA_PADDING: "the module depends on seq_len"} if "seq_len" in taken else {}

    class Adopted(Attention):
        """The user's module, with checked output."""

        def __init__(self, config: Any, workload: Workload) -> None:
            super().__init__(config, workload)
            self.module = offered(**arguments(taken, config, workload))
            if not isinstance(self.module, nn.Module):
                raise TypeError(f"{name} returned {type(self.module).__name__}, not an nn.Module")

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            y = self.module(x) if mask is None else self.module(x, mask=mask)
            check(x, y)
            return y

        @staticmethod
        def flops(config: Any, workload: Workload) -> Flops:
            """An upper guess for predictions: four projections and N² scores."""
            w = workload
            return Flops(projection_flops(w), 4 * w.batch * w.seq_len**2 * w.width)

        @staticmethod
        def elements(config: Any, workload: Workload) -> int:
            """An upper guess: N² scores per head."""
            return workload.batch * workload.heads * workload.seq_len**2

    return Card(
        forms={"eager": Adopted},
        config=options_of(taken),
        reference=None,
        parameters=projection_parameters,
        family=Family.UNKNOWN,
        causality=Causality.OPTIONAL if "causal" in taken else Causality.NEVER,
        paper=Paper(inspect.getdoc(offered) or name, "", None, name),
        cost=Cost("not declared", None, None),
        examples=(options_of(taken)(),),
        needs=needs_mask(offered),
        exempt=lambda config: tied,
        declared=False,
    )


def parameters_of(offered: Callable[..., Any], name: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of the class or factory. Raises `UnknownMechanism` if a size is missing."""
    try:
        taken = dict(inspect.signature(offered).parameters)
    except (TypeError, ValueError) as error:
        raise UnknownMechanism(f"the signature of {name!r} cannot be read: {error}") from error
    if not (taken.keys() & set(WIDTH) and taken.keys() & set(HEADS)):
        raise UnknownMechanism(
            f"{name!r} takes ({', '.join(taken)}); it must take a width ({', '.join(WIDTH)})"
            f" and heads ({', '.join(HEADS)})"
        )
    return taken


def options_of(taken: Mapping[str, inspect.Parameter]) -> type[BaseConfig]:
    """A config class of the other parameters that have a plain default."""
    sizes = {*WIDTH, *HEADS, "seq_len", "causal", "bias"}
    plain = {
        name: parameter.default
        for name, parameter in taken.items()
        if name not in sizes and isinstance(parameter.default, OPTION_TYPES)
    }
    fields = [(name, Any, field(default=value)) for name, value in plain.items()]
    config = make_dataclass("Config", fields, bases=(BaseConfig,), frozen=True, kw_only=True)
    config.__doc__ = "; ".join(f"`{name}`: a parameter of the module" for name in plain)
    return config


def arguments(
    taken: Mapping[str, inspect.Parameter], config: Any, workload: Workload
) -> dict[str, Any]:
    """The arguments for the class or factory."""
    sizes = dict.fromkeys(WIDTH, workload.width) | dict.fromkeys(HEADS, workload.heads)
    sizes |= {"seq_len": workload.seq_len, "causal": workload.causal, **vars(config)}
    return {name: sizes[name] for name in taken if name in sizes}


def needs_mask(offered: Callable[..., Any]) -> Callable[[Any, Workload], str | None]:
    """A function that tells why the module cannot run a workload: a padded batch needs a mask."""
    forward = getattr(offered, "forward", None)
    masks = forward is None or "mask" in inspect.signature(forward).parameters

    def needs(config: Any, workload: Workload) -> str | None:
        if workload.padding and not masks:
            return "its forward has no parameter named mask, which a padded batch needs"
        return None

    return needs


def check(x: Tensor, y: Any) -> None:
    """Raises `ValueError` unless y has the shape, the dtype and the device of x."""
    if not isinstance(y, Tensor):
        raise ValueError(f"forward returned a {type(y).__name__}, not one tensor")
    for name in ("shape", "dtype", "device"):
        expected, given = getattr(x, name), getattr(y, name)
        if expected != given:
            expected, given = (list(v) if name == "shape" else v for v in (expected, given))
            raise ValueError(f"the output has {name} {given}, not {expected}")
