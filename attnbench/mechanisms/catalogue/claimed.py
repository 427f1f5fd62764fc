"""A user's functions as forms of a mechanism: `kimi_delta:kern.py` has one for each in `kern.py`.

A function takes the tensors of the mechanism's core by their names, or by usual ones for them
(`attention.arguments`), and gives the output of the core (`attention.core`); of a tuple the first
output counts. It may also take `causal` or `is_causal`, a mask, `scale`, `heads`, options of the
mechanism and parameters of its core.

Its tensors are [B, H, N, d], or with the option `axes=bnhd` [B, N, H, d]. At level `core` they are
stored in the order that it takes.
"""

from collections.abc import Callable, Mapping
from dataclasses import field, make_dataclass, replace
from operator import attrgetter
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from attnbench.attention import Card, CoreAttention
from attnbench.attention.arguments import CONVENTIONS, MASKS, OF_SCORES, accepted, bound, positional
from attnbench.attention.core import AXES, CAUSAL, tensor_names
from attnbench.errors import UnknownMechanism
from attnbench.records import Level, Workload

NO_STEPS = "a function of one's own continues no state"


def claimed(card: Card, module: ModuleType, name: str) -> Card:
    """The card with a form for each public function of a module, called `name`, and no other form.

    Raises `UnknownMechanism` if the mechanism has no core with named tensors, or the module no
    function.
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
    if not own:
        raise UnknownMechanism(f"{name!r}: the file has no public function")
    config = conventions(card, names, body["by_rule"])
    return replace(
        card,
        forms=own,
        mechanism=card,
        default=next(iter(own)),
        config=config,
        examples=tuple(config(**vars(example)) for example in card.examples),
        no_decode_reason=NO_STEPS,
    )


def conventions(card: Card, names: tuple[str, ...], by_rule: bool) -> Any:
    """The mechanism's config with options for what functions leave to convention.

    `axes`: bhnd or bnhd. `mask_as`: what its mask means (`arguments.CONVENTIONS`); none: what is
    usual for its name. Of a recurrence, `scales`: whether it scales q by d^−½ itself, and
    `lower_bound`: the least log of a decay that it is to take.
    """
    added: list[Any] = [("axes", str, field(default=AXES[0]))]
    if by_rule:
        added.append(("scales", bool, field(default=False)))
    else:
        added.append(("mask_as", str | None, field(default=None)))
    if by_rule and "g" in names:
        added.append(("lower_bound", float | None, field(default=None)))
    config = make_dataclass("Config", added, bases=(card.config,), frozen=True, kw_only=True)
    config.__doc__ = (
        f"{card.config.__doc__} `axes`: of a function's tensors, bhnd or bnhd; `scales`: whether it"
        " scales q by d^−½ itself; `lower_bound`: the least log of a decay; `mask_as`: what its"
        " mask means."
    )
    return config


class Claimed(CoreAttention):
    """A form whose core is a user's `function`; `names` are those of the core's tensors.

    `by_rule`: it is the rule of a recurrence, whose tensors are scaled and masked already.
    `watched`: where it is a list, gets each tensor that the function is given, with its name and a
    copy. `views`: whether its tensors are views of wider ones. `gave`: the number type of its last
    output.
    """

    function: Callable[..., Any]
    names: tuple[str, ...]
    by_rule: bool
    flops_estimated = True
    watched: list[tuple[str, Tensor, Tensor]] | None = None
    views = False
    gave: torch.dtype | None = None

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        self.dtype = getattr(torch, workload.dtype)
        self.swapped = config.axes == AXES[1]
        self.stored_swapped = self.swapped and workload.level is Level.CORE
        self.accepted, takes_any = accepted(self.function)
        self.binding = bound(self.accepted, takes_any, self.names)
        self.usual_scale = 1.0 if self.by_rule else self.head_width**-0.5
        learned = [*dict(self.named_parameters()), *dict(self.named_buffers())]
        # what a function may take besides tensors and a mask, and the attributes that have it
        self.known = {
            **{name: f"config.{name}" for name, value in vars(config).items() if value is not None},
            **{name.replace(".", "_"): name for name in learned},
            **dict.fromkeys(CAUSAL, "causal"),
            "heads": "heads",
            "scale": "usual_scale",
        }
        taken = {*self.known} & self.accepted.keys() - {*self.binding.parameters.values()}
        if not self.by_rule and not self.accepted.get("scale"):
            taken.discard("scale")  # a function's own default is that of the mechanism
        self.further = {name: attrgetter(self.known[name]) for name in taken}

    @property
    def learned(self) -> frozenset[str]:
        """The names of those parameters of the core that the function takes."""
        return frozenset(self.known[name] for name in self.further)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Parameters of the function, without a default, that nothing gives by name."""
        given = {*self.binding.parameters.values(), *self.further, self.binding.mask}
        return positional(self.function, given)

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
        if getattr(config, "mask_as", None) not in (None, *CONVENTIONS):
            return f"mask_as is {config.mask_as!r}, not {' or '.join(CONVENTIONS)}"
        if getattr(config, "lower_bound", None) is not None and config.lower_bound >= 0:
            return f"lower_bound is {config.lower_bound}; logs of decays are below 0"
        takes, _ = accepted(cls.function)
        if workload.padding and not cls.by_rule and takes.keys().isdisjoint(MASKS):
            return f"it takes no mask ({', '.join(MASKS)}), which a padded batch needs"
        return super().needs(config, workload)

    def attend(self, *inputs: Any) -> Tensor:
        *tensors, mask = inputs
        if self.stored_swapped:
            tensors = [tensor.transpose(1, 2) for tensor in tensors]
        if self.by_rule:
            output: Tensor = super().attend(*tensors, mask)
            return output
        return self.called(self.offered(dict(zip(self.names, tensors, strict=True))), mask)

    def offered(self, core: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the function takes in place of the core's tensors, all [B, H, N, …]."""
        return self.binding.dialect.of_core({**self.constants, **core})

    def of_core(self, taken: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The core's tensors of those that the function takes, in the core's order."""
        core = self.binding.dialect.to_core({**self.constants, **taken})
        return {name: core[name] for name in self.names}

    @property
    def constants(self) -> dict[str, Tensor]:
        """Parameters of the core, by `learned` names, from which a dialect may compute."""
        return {f"learned {name}": p.detach() for name, p in self.named_parameters()}

    def called(self, tensors: Mapping[str, Tensor], mask: Tensor | None = None) -> Tensor:
        """What the function gives for tensors [B, H, N, d] that it takes, [B, H, N, d].

        Raises `TypeError` if that is no tensor, and whatever the function raises.
        """
        if self.by_rule:
            tensors = self.of_each_head(tensors)
        given: dict[str, Any] = {name: read(self) for name, read in self.further.items()}
        for name, parameter in self.binding.parameters.items():
            tensor = tensors[name]
            if self.swapped and tensor.dim() > 2:
                tensor = tensor.transpose(1, 2)
            if self.by_rule and self.config.scales and name == "q":
                tensor = tensor * tensor.shape[-1] ** 0.5
            given[parameter] = view(tensor) if self.views else tensor.contiguous()
        if self.binding.mask:
            given[self.binding.mask] = self.masking(mask, tensors)
        for name, value in given.items():
            if isinstance(value, Tensor):
                self.watch(name, value)
        output = self.function(**given)
        output = output[0] if isinstance(output, tuple) and output else output
        if not isinstance(output, Tensor):
            raise TypeError(f"it gives a {type(output).__name__}, not a tensor")
        self.gave = output.dtype
        return output.transpose(1, 2) if self.swapped else output

    def watch(self, name: str, tensor: Tensor) -> None:
        """Keep a tensor that the function, or its backward pass, may read and not change."""
        if self.watched is not None:
            self.watched.append((name, tensor, tensor.detach().clone()))

    @property
    def overwritten(self) -> tuple[str, ...]:
        """The names of the watched tensors that are not as they were."""
        changed = (name for name, new, old in self.watched or () if not same(old, new.detach()))
        return tuple(dict.fromkeys(changed))

    def masking(self, mask: Tensor | None, tensors: Mapping[str, Tensor]) -> Tensor | None:
        """A mask [B, N], True for real tokens, as the function takes it."""
        if mask is None or self.by_rule:
            return None
        meaning = self.config.mask_as or MASKS[self.binding.mask][0]
        # a mask of scores is the whole mask, as torch has it
        whole = self.causal and meaning in OF_SCORES
        seen = mask[:, None].expand(-1, mask.shape[-1], -1).tril() if whole else mask
        return CONVENTIONS[meaning](seen, next(iter(tensors.values())).dtype)

    def of_each_head(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors with numbers for each sequence, head and token."""
        wide = [tensor.shape for tensor in tensors.values() if tensor.dim() > 2]
        B, H, N = (max(shape[axis] for shape in wide) for axis in range(3))
        expanded = dict(tensors)
        for name, tensor in tensors.items():
            if tensor.dim() > 2:
                heads = tensor[:, :, None].expand(B, -1, H // tensor.shape[1], N, *tensor.shape[3:])
                expanded[name] = heads.flatten(1, 2)
        return expanded


def rule(self: Claimed, S: Tensor, *inputs: Any) -> tuple[Tensor, Tensor]:
    """As the rules of `attention.kernels.recurrence`, but S stays as it was."""
    tensors = dict(zip(self.names, inputs[:-1], strict=True))  # without the length of a chunk
    if (least := getattr(self.config, "lower_bound", None)) is not None:
        tensors["g"] = tensors["g"].clamp(min=least)
    narrow = {n: t if n == "g" else t.to(self.dtype) for n, t in tensors.items()}
    return self.called(self.offered(narrow)).to(S.dtype), S


def view(tensor: Tensor) -> Tensor:
    """The same numbers as the first half of a tensor whose last dimension is twice as wide.

    So are the queries, keys and values that one map gives together.
    """
    if tensor.dim() < 3:
        return tensor
    return torch.cat([tensor, tensor.flip(-1)], -1)[..., : tensor.shape[-1]]


def same(old: Tensor, new: Tensor) -> bool:
    """Whether a tensor is as it was; numbers that are none are alike."""
    return old.shape == new.shape and bool(((old == new) | (old != old) & (new != new)).all())
