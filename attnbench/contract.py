"""What a mechanism is: modules with one signature, and a card that says everything else.

    Attention.forward   x [B, N, D], mask [B, N] or None   to [B, N, D]
    QKVAttention.attend q, k, v [B, H, N, d], mask         to [B, H, N, d]

True in a mask is a real token; None means that all are real and no masking work is done.
Sequences of a batch never mix, what is masked changes no real token, a query with no valid key
gets 0 from the core and never NaN, and every N ≥ 1 works.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnbench.errors import UnknownOption
from attnbench.records import Causality, Family, Level, Option, Workload

LARGEST = 1 << 31  # no option counts more than a tensor can have


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """Options of every mechanism. `bias`: whether the linear maps have one."""

    bias: bool = False


@dataclass(frozen=True)
class Flops:
    """Forward FLOPs of a whole workload, matrix products only, a multiply-add counted as 2."""

    projections: int  # linear maps of all tokens
    core: int  # everything else


@dataclass(frozen=True)
class Paper:
    """Where the equations come from."""

    title: str
    authors: str
    year: int | None
    source: str  # "arXiv:2006.04768"


@dataclass(frozen=True)
class Cost:
    """Complexity as the papers print it, and the core's exponents of N, None if not known."""

    printed: str
    time: float | None
    memory: float | None


class Exemption(StrEnum):
    """A rule of the contract that a mechanism may be exempt from."""

    LENGTH = "length"  # padding at the end of all sequences changes no real token
    SELECTION = "selection"  # causal: which keys a token has does not depend on later tokens
    EMPTY = "empty"  # a query with no valid key gets 0 from the core


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Largest error that is allowed against the equations in float64, for each number type.

    Relative to the largest output, and for gradients to the largest gradient. `reason` says why
    it is wider than the default.
    """

    float64: float = 1e-10
    float32: float = 3e-6
    bfloat16: float = 3e-2
    reason: str = ""


class Attention(nn.Module):
    """One form of a mechanism: [B, N, D] and an optional mask [B, N] to [B, N, D]."""

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__()
        self.config = config
        self.width = workload.width
        self.heads = workload.heads
        self.seq_len = workload.seq_len
        self.causal = workload.causal

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def auxiliary_loss(self) -> Tensor | None:
        """A loss of the mechanism's own after a forward pass, or None."""
        return None

    def draws(self, index: int) -> dict[str, Tensor]:
        """What the last forward pass drew at random or assigned for sequence `index`."""
        return {}

    @staticmethod
    def needs(config: Any, workload: Workload) -> str | None:
        """Why this form cannot run the workload on this machine, or None. Runs no operation."""
        return None

    @staticmethod
    def flops(config: Any, workload: Workload) -> Flops:
        """Exact forward FLOPs of this form; the docstring of each names the products."""
        raise NotImplementedError

    @staticmethod
    def elements(config: Any, workload: Workload) -> int:
        """Elements that the core materialises at its peak beside q, k, v and o; a prediction."""
        raise NotImplementedError


class QKVAttention(Attention):
    """The four D × D maps around a core; most mechanisms only write `attend`.

    At level `core` there are no maps, and `attend` is what is called.
    """

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        if workload.level is not Level.CORE:
            D = workload.width
            self.query = nn.Linear(D, D, bias=config.bias)
            self.key = nn.Linear(D, D, bias=config.bias)
            self.value = nn.Linear(D, D, bias=config.bias)
            self.output = nn.Linear(D, D, bias=config.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (self.split(linear(x)) for linear in (self.query, self.key, self.value))
        return self.output(merge(self.attend(q, k, v, mask)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """[B, H, N, d] three times and a mask [B, N] or None to [B, H, N, d]."""
        raise NotImplementedError

    def split(self, x: Tensor) -> Tensor:
        """[B, N, D] to [B, H, N, d], a view."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    """[B, H, N, d] to [B, N, D]."""
    return x.transpose(1, 2).flatten(2)


def key_mask(mask: Tensor | None) -> Tensor | None:
    """[B, N] to [B, 1, 1, N], or None: which keys a score [B, H, N, N] may use."""
    return None if mask is None else mask[:, None, None, :]


def causal_mask(queries: int, keys: int, device: torch.device) -> Tensor:
    """[queries, keys]: True where key j is not after query i; both end at the same token."""
    i = torch.arange(keys - queries, keys, device=device)[:, None]
    return torch.arange(keys, device=device) <= i


def masked_softmax(logits: Tensor, mask: Tensor | None, dim: int = -1) -> Tensor:
    """Softmax over `dim` where `mask` (broadcastable) is True; 0 elsewhere and in empty rows."""
    if mask is None:
        return logits.softmax(dim)
    lowest = torch.finfo(logits.dtype).min
    weights = logits.masked_fill(~mask, lowest).softmax(dim)
    return weights * mask.any(dim, keepdim=True)


def fused_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool = False
) -> Tensor:
    """softmax(q kᵀ / √d) v by torch's fused kernel, [B, H, N, d]; `mask` as in `masked_softmax`."""
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    if causal:
        mask = mask & causal_mask(q.shape[-2], k.shape[-2], q.device)
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=additive(mask, q.dtype))
    return o * mask.any(-1, keepdim=True)


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where True; elsewhere not −∞ but the lowest number, or a row without a key were NaN."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


def four_maps(config: Any, workload: Workload) -> int:
    """Parameters of the four D × D maps: 4 D² (+ 4 D with biases)."""
    return 4 * workload.width * (workload.width + config.bias)


def map_flops(workload: Workload, maps: float = 4) -> int:
    """FLOPs of so many D × D maps on all tokens: 2 B N D² each."""
    return int(2 * maps * workload.tokens * workload.width**2)


def fits(value: Option, declared: Any) -> bool:
    """Whether an option's value is of the type that its field declares; of other types any is."""
    kinds = get_args(declared) or (declared,)
    if not set(kinds) <= {bool, int, float, str, type(None)}:
        return True
    if type(value) in (int, float) and not abs(value) < LARGEST:  # NaN is not below either
        return False
    return type(value) in kinds or (type(value) is int and float in kinds)


def no_exemption(config: Any) -> Mapping[Exemption, str]:
    """What a mechanism that keeps every rule is exempt from: nothing."""
    return {}


def eager(config: Any, workload: Workload) -> str:
    """The default form of a mechanism whose only form is `eager`."""
    return "eager"


@dataclass(frozen=True, kw_only=True)
class Card:
    """The identity card of a mechanism: plain data, known before anything is built.

    `reference(module, x [N, D], mask [N] or None, draws)` gives the equations for one sequence in
    float64, sharing nothing with the module but parameters and draws; a module that was adopted
    without a card has none. `examples` are small configurations that the contract test runs at
    N ≈ 20 to 64. `exempt(config)` gives the rules that do not hold, each with its reason.
    """

    forms: Mapping[str, type[Attention]]  # "eager" is always there
    config: type[BaseConfig]
    reference: Callable[..., Tensor] | None
    parameters: Callable[[Any, Workload], int]
    family: Family
    causality: Causality
    paper: Paper
    cost: Cost
    examples: tuple[BaseConfig, ...]
    default: Callable[[Any, Workload], str] = eager
    needs: Callable[[Any, Workload], str | None] = Attention.needs
    exempt: Callable[[Any], Mapping[Exemption, str]] = no_exemption
    tolerance: Tolerance = Tolerance()
    share_layers: bool = False  # level `model`: one set of attention parameters for all layers
    reversible: bool = False  # level `model`: reversible residual layers
    declared: bool = True  # False: FLOPs and parameters are guesses, and are counted where it runs

    @property
    def has_core(self) -> bool:
        """Whether there is a level `core`: q, k, v to o without the linear maps."""
        return issubclass(self.forms["eager"], QKVAttention)

    def configure(self, options: Mapping[str, Option]) -> BaseConfig:
        """The config with these options. Raises `UnknownOption` listing what there is."""
        kinds = {f.name: f.type for f in fields(self.config)}
        for name, value in options.items():
            if name not in kinds:
                raise UnknownOption(f"no option {name!r}; options: {', '.join(sorted(kinds))}")
            if not fits(value, kinds[name]):
                kind = getattr(kinds[name], "__name__", kinds[name])
                bound = f" below {LARGEST:,}" if type(value) in (int, float) else ""
                raise UnknownOption(f"{name} is {value!r}; it takes {kind}{bound}")
        try:
            return self.config(**options)
        except (TypeError, ValueError) as error:
            raise UnknownOption(str(error)) from error

    def refusal(self, form: str, config: BaseConfig, workload: Workload) -> str | None:
        """Why the form cannot run the workload here, or None."""
        if workload.width % workload.heads:
            return f"width {workload.width} is not divisible by {workload.heads} heads"
        if workload.causal and self.causality is Causality.NEVER:
            return "the mechanism has no causal form"
        if workload.level is Level.CORE and not issubclass(self.forms[form], QKVAttention):
            return "it has no core apart from its linear maps"
        return self.needs(config, workload) or self.forms[form].needs(config, workload)
