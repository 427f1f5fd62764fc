"""A user's module as a mechanism: any `nn.Module` class or factory that takes width and heads.

It maps [B, N, D] to [B, N, D]. What such a module does not declare is not made up: it has no
reference, no printed complexity, and its FLOPs and parameters are counted where it runs.
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
    four_maps,
    map_flops,
)
from attnbench.errors import UnknownMechanism
from attnbench.records import Causality, Family, Workload

# names that modules give to the sizes they take
WIDTH = ("width", "dim", "d_model", "embed_dim", "hidden_size")
HEADS = ("heads", "num_heads", "n_heads", "nhead", "n_head")
OPTION_TYPES = (str, int, float, bool, type(None))


def adopt(offered: Any, name: str) -> Card:
    """The card of what a user's file or package offers under `name`.

    Raises `UnknownMechanism` if it is neither a card, nor a module class, nor a factory.
    """
    if isinstance(offered, Card):
        return offered
    if isinstance(offered, nn.Module) or not callable(offered):
        raise UnknownMechanism(
            f"{name!r} is of type {type(offered).__name__}; it takes a Card, an nn.Module class,"
            " or a factory of width and heads"
        )
    taken = parameters_of(offered, name)
    tied = {Exemption.LENGTH: "it takes seq_len"} if "seq_len" in taken else {}

    class Adopted(Attention):
        """The user's module, with its answer checked."""

        def __init__(self, config: Any, workload: Workload) -> None:
            super().__init__(config, workload)
            self.module = offered(**arguments(taken, config, workload))
            if not isinstance(self.module, nn.Module):
                raise TypeError(f"{name} gave {type(self.module).__name__}, not an nn.Module")

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            y = self.module(x) if mask is None else self.module(x, mask=mask)
            check(x, y)
            return y

        @staticmethod
        def flops(config: Any, workload: Workload) -> Flops:
            """A guess for predictions, of the costliest kind: four maps and N² scores."""
            w = workload
            return Flops(map_flops(w), 4 * w.batch * w.seq_len**2 * w.width)

        @staticmethod
        def elements(config: Any, workload: Workload) -> int:
            """A guess, of the costliest kind: N² scores of each head."""
            return workload.batch * workload.heads * workload.seq_len**2

    return Card(
        forms={"eager": Adopted},
        config=options_of(taken),
        reference=None,
        parameters=four_maps,
        family=Family.UNKNOWN,
        causality=Causality.OPTIONAL if "causal" in taken else Causality.NEVER,
        paper=Paper(inspect.getdoc(offered) or name, "", None, name),
        cost=Cost("not declared", None, None),
        examples=(options_of(taken)(),),
        needs=refusal(offered),
        exempt=lambda config: tied,
        declared=False,
    )


def parameters_of(offered: Callable[..., Any], name: str) -> Mapping[str, inspect.Parameter]:
    """What the class or factory takes by name. Raises `UnknownMechanism` without sizes."""
    try:
        found = dict(inspect.signature(offered).parameters)
    except (TypeError, ValueError) as error:
        raise UnknownMechanism(f"{name!r} does not say what it takes: {error}") from error
    known = {each for each in found if each in (*WIDTH, *HEADS)}
    if not (known & set(WIDTH) and known & set(HEADS)):
        raise UnknownMechanism(
            f"{name!r} takes ({', '.join(found)}); it must take a width ({', '.join(WIDTH)})"
            f" and heads ({', '.join(HEADS)})"
        )
    return found


def options_of(taken: Mapping[str, inspect.Parameter]) -> type[BaseConfig]:
    """A config of the further parameters that have a plain default."""
    sizes = {*WIDTH, *HEADS, "seq_len", "causal", "bias"}
    plain = {
        name: each.default
        for name, each in taken.items()
        if name not in sizes and isinstance(each.default, OPTION_TYPES)
    }
    fields = [(name, Any, field(default=value)) for name, value in plain.items()]
    config = make_dataclass("Config", fields, bases=(BaseConfig,), frozen=True, kw_only=True)
    config.__doc__ = "; ".join(f"`{name}`: of the module itself" for name in plain)
    return config


def arguments(
    taken: Mapping[str, inspect.Parameter], config: Any, workload: Workload
) -> dict[str, Any]:
    """What to call the class or factory with."""
    sizes = dict.fromkeys(WIDTH, workload.width) | dict.fromkeys(HEADS, workload.heads)
    sizes |= {"seq_len": workload.seq_len, "causal": workload.causal, **vars(config)}
    return {name: sizes[name] for name in taken if name in sizes}


def refusal(offered: Callable[..., Any]) -> Callable[[Any, Workload], str | None]:
    """Why the module cannot run a workload: a padded batch needs a mask."""
    forward = getattr(offered, "forward", None)
    masks = forward is None or "mask" in inspect.signature(forward).parameters

    def needs(config: Any, workload: Workload) -> str | None:
        if workload.padding and not masks:
            return "its forward takes no argument named mask, which a padded batch needs"
        return None

    return needs


def check(x: Tensor, y: Any) -> None:
    """Raise `ValueError` unless y is like x in shape, type of number and device."""
    if not isinstance(y, Tensor):
        raise ValueError(f"its forward gave a {type(y).__name__}, not one tensor")
    for what in ("shape", "dtype", "device"):
        ours, theirs = getattr(x, what), getattr(y, what)
        if ours != theirs:
            ours, theirs = (list(v) if what == "shape" else v for v in (ours, theirs))
            raise ValueError(f"its output has {what} {theirs}, not {ours}")
