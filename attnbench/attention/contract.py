"""What a mechanism is: modules with one signature, and a card that describes them.

    Attention.forward   x [B, N, D], mask [B, N] or None   to [B, N, D]
    QKVAttention.attend q, k, v [B, H, N, d], mask         to [B, H, N, d]
    Attention.step      x [B, 1, D] after a state          to [B, 1, D], state

True in a mask marks a real token; None means that all tokens are real and nothing is masked.
The sequences of a batch never mix, padding changes no real token, a query without a valid key gets
0 from the core and never NaN, and every N ≥ 1 works.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, get_args

import torch
from torch import Tensor, nn

from attnbench.errors import UnknownOption
from attnbench.records import Causality, Family, Level, Mode, Option, Workload

LARGEST = 1 << 31  # no option may exceed what a tensor dimension can hold

NO_SEPARATE_CORE = "folding merges the projections into the core, so there is no separate core"

Draws = dict[str, Tensor]  # what a forward pass drew at random or assigned, by name

State = tuple[Any, ...]  # what a mechanism keeps of past tokens: tensors, and counts of tokens


@dataclass(frozen=True, kw_only=True)
class BaseConfig:
    """Options of every mechanism. `bias`: whether the projections have biases."""

    bias: bool = False

    def require_at_least(self, least: int, *names: str) -> None:
        """Raises `ValueError` if one of these options is a number below `least`."""
        for name in names:
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; it must be at least {least}")

    def require_one_of(self, name: str, known: Collection[str]) -> None:
        """Raises `ValueError` unless the option has a known value."""
        value = getattr(self, name)
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")


@dataclass(frozen=True)
class Flops:
    """Forward FLOPs of a workload: matrix products only, a multiply-add counts as 2."""

    projections: int  # of all tokens
    core: int  # everything else


@dataclass(frozen=True)
class Paper:
    """The publication that states the equations."""

    title: str
    authors: str
    year: int | None
    source: str  # "arXiv:2006.04768"


@dataclass(frozen=True)
class Cost:
    """Complexity as the papers print it, and the core's exponents of N; None where unknown."""

    printed: str
    time: float | None
    memory: float | None


class Exemption(StrEnum):
    """A rule of the contract from which a mechanism may be exempt."""

    EXTRA_PADDING = "extra padding"  # padding appended to every sequence changes no real token
    FUTURE_SELECTION = "future selection"  # causal: a token's keys do not depend on later tokens
    NO_VALID_KEY = "no valid key"  # a query without a valid key gets 0 from the core


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Largest allowed error against the equations in float64, for each number type.

    Relative to the largest output; for gradients, to the largest gradient. `reason` explains a
    tolerance above the default.
    """

    float64: float = 1e-10
    float32: float = 3e-6
    float16: float = 4e-3
    bfloat16: float = 3e-2
    reason: str = ""


class Unusable(Exception):
    """What a form needs is installed but does not work on this machine."""


class Attention(nn.Module):
    """One form of a mechanism: [B, N, D] and an optional mask [B, N] to [B, N, D].

    `package` names the package that computes the form, for pip; empty: this one. `departs` says how
    the form's function differs from the equations, or nothing. `counted`: FLOPs and parameters are
    guesses, counted when it runs.
    """

    package = ""
    departs = ""
    counted = False

    compiles = False  # whether torch.compile makes code for each shape

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
        """The mechanism's auxiliary loss of the last forward pass, or None."""
        return None

    def draws(self, index: int) -> Draws:
        """Random draws and assignments of the last forward pass for sequence `index`."""
        return {}

    def split(self, x: Tensor) -> Tensor:
        """[B, N, D] to [B, H, N, d], a view."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def start(self, batch: int, capacity: int) -> State:
        """The state of sequences without tokens, which takes up to `capacity` tokens each.

        Raises `NotImplementedError` if the form cannot continue a sequence token by token.
        """
        raise NotImplementedError

    def prefill(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The causal outputs of the first tokens, [B, N, D] to [B, N, D], and the state after."""
        raise NotImplementedError

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The output of the next token, [B, 1, D] to [B, 1, D], and the state after it.

        May write into tensors of `state`, but the same step can be repeated from it.
        """
        return self.prefill(x, state)

    @staticmethod
    def state_elements(config: Any, workload: Workload) -> int:
        """Exact elements of the state of all B sequences after N tokens each."""
        raise NotImplementedError

    @staticmethod
    def needs(config: Any, workload: Workload) -> str | None:
        """Why this form cannot run the workload on this machine, or None. Runs no operation."""
        return None

    @staticmethod
    def flops(config: Any, workload: Workload) -> Flops:
        """Exact forward FLOPs of this form; each override names its products."""
        raise NotImplementedError

    @classmethod
    def step_flops(cls, config: Any, workload: Workload) -> Flops | None:
        """Exact FLOPs of the step to token N, or None: they are counted when it runs."""
        return None

    @staticmethod
    def elements(config: Any, workload: Workload) -> int:
        """Predicted peak of elements that the core materialises in addition to q, k, v and o."""
        raise NotImplementedError


class Projections(nn.Module):
    """The four D × D projections of one attention, as attributes."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.output = nn.Linear(width, width, bias=bias)


class CoreAttention(Attention):
    """An attention with a core that can be measured without its projections, at level `core`.

    At that level the module has no projections, and `attend` is called directly.
    """

    @staticmethod
    def core_inputs(config: Any, workload: Workload) -> tuple[tuple[int, ...], ...]:
        """Shapes of the tensors that `attend` takes: q, k and v, [B, H, N, d] each."""
        w = workload
        return ((w.batch, w.heads, w.seq_len, w.head_width),) * 3

    def attend(self, *args: Any, **kwargs: Any) -> Tensor:
        """The core: its inputs and a mask [B, N] or None to [B, H, N, d]."""
        raise NotImplementedError


class QKVAttention(CoreAttention):
    """Projections to q, k and v around a core; most mechanisms only write `attend`.

    The projections are D × D unless `core_inputs` says otherwise.
    """

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        shapes = self.core_inputs(config, workload)
        self.head_counts = tuple(heads for _, heads, _, _ in shapes)  # of q, k and v
        if workload.level is not Level.CORE:
            D = workload.width
            query, key, value = (heads * width for _, heads, _, width in shapes)
            self.query = nn.Linear(D, query, bias=config.bias)
            self.key = nn.Linear(D, key, bias=config.bias)
            self.value = nn.Linear(D, value, bias=config.bias)
            self.output = nn.Linear(shapes[0][1] * shapes[2][3], D, bias=config.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.output(merge(self.attend(*self.projected(x), mask)))

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of x [B, N, D] by head, views of the projections."""
        linears = zip((self.query, self.key, self.value), self.head_counts, strict=True)
        q, k, v = (m(x).unflatten(-1, (heads, -1)).transpose(1, 2) for m, heads in linears)
        return q, k, v

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """[B, H, N, d] three times and a mask [B, N] or None to [B, H, N, d]."""
        raise NotImplementedError


class CachedAttention(QKVAttention):
    """A core whose state is a `Cache` of keys and values (`attention.caches`)."""

    def prefill(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        q, k, v = self.projected(x)
        return self.output(merge(self.attend(q, k, v, None))), state.added(k, v)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        q, k, v = self.projected(x)
        state = state.added(k, v)
        return self.output(merge(self.attend_next(q, state))), state

    def attend_next(self, q: Tensor, state: Any) -> Tensor:
        """The core of the last of the past tokens, q [B, H, 1, d] to [B, H, 1, d]."""
        raise NotImplementedError


def merge(x: Tensor) -> Tensor:
    """[B, H, N, d] to [B, N, D]."""
    return x.transpose(1, 2).flatten(2)


def try_out(what: str, attend: Callable[..., Tensor], w: Workload) -> None:
    """Run a core on some zeros of the workload's type, with its gradient in training.

    Raises `Unusable`, which names `what`, where it does not run: whether a compiled kernel and its
    compiler work on this machine is not known before.
    """
    shape = (3, 1, w.heads, max(16, w.heads), w.head_width)
    training = w.mode is Mode.TRAINING
    try:
        qkv = torch.zeros(shape, dtype=getattr(torch, w.dtype), device=w.device)
        qkv.requires_grad_(training)
        with torch.set_grad_enabled(training):
            o = attend(*qkv, None)
            if training:
                o.sum().backward()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # drivers, compilers and packages raise anything
        first = (str(error).strip().splitlines() or [""])[0]
        reason = f"{what} does not work here: {type(error).__name__}: {first}"
        raise Unusable(reason) from error


def projection_parameters(config: Any, workload: Workload) -> int:
    """Parameters of the four D × D projections: 4 D² (+ 4 D with biases)."""
    return 4 * workload.width * (workload.width + config.bias)


def projection_flops(workload: Workload, count: int = 4) -> int:
    """FLOPs of `count` D × D projections of all tokens: 2 B N D² each."""
    return 2 * count * workload.tokens * workload.width**2


def fits(value: Option, declared: Any) -> bool:
    """Whether a value has the declared type of a field; fields of unusual types accept any."""
    kinds = get_args(declared) or (declared,)
    if not set(kinds) <= {bool, int, float, str, type(None)}:
        return True
    if isinstance(value, int | float) and not abs(value) < LARGEST:  # refuses NaN too
        return False
    return type(value) in kinds or (type(value) is int and float in kinds)


@dataclass(frozen=True, kw_only=True)
class Card:
    """All facts about a mechanism as plain data, known before any module is built.

    `reference(module, x [N, D], mask [N] or None, draws)` evaluates the equations for one sequence
    in float64 and shares only parameters and draws with the module; an adopted module has none.
    `examples` are small configurations that the contract's checks run at N ≈ 20 to 64.
    `symbols` explains those that papers print in its complexity besides N and the width: the
    meaning of each, and the options that set it. It is a literal, which `registry.symbols` reads.
    `exempt(config)` returns the rules that do not hold, each with a reason.
    `undecoded` is why no form continues a sequence token by token; a card without it says that some
    form does, which `registry.decodes` reads.
    `uncompiled` is why torch cannot compile the form `eager` (correctly) for the workload, or None.
    """

    forms: Mapping[str, type[Attention]]  # "eager" is always one of them
    config: type[BaseConfig]
    reference: Callable[..., Tensor] | None
    parameters: Callable[[Any, Workload], int]
    family: Family
    causality: Causality
    paper: Paper
    cost: Cost
    examples: tuple[BaseConfig, ...]
    symbols: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    default: Callable[[Any, Workload], str] = lambda config, workload: "eager"  # a form
    needs: Callable[[Any, Workload], str | None] = Attention.needs
    uncompiled: Callable[[Any, Workload], str | None] = Attention.needs
    exempt: Callable[[Any], Mapping[Exemption, str]] = lambda config: {}
    tolerance: Tolerance = Tolerance()
    share_layers: bool = False  # level `model`: all layers share one set of attention parameters
    reversible: bool = False  # level `model`: reversible residual layers
    declared: bool = True  # False: FLOPs and parameters are guesses, counted when it runs
    undecoded: str = ""

    @property
    def own_forms(self) -> tuple[str, ...]:
        """The forms that no other package computes."""
        return tuple(name for name, form in self.forms.items() if not form.package)

    def configure(self, options: Mapping[str, Option]) -> BaseConfig:
        """The config with these options. Raises `UnknownOption`, which lists the known ones."""
        kinds = {f.name: f.type for f in fields(self.config)}
        for name, value in options.items():
            if name not in kinds:
                raise UnknownOption(f"no option {name!r}; options: {', '.join(sorted(kinds))}")
            if not fits(value, kinds[name]):
                kind = getattr(kinds[name], "__name__", kinds[name])
                bound = f" below {LARGEST:,}" if type(value) in (int, float) else ""
                raise UnknownOption(f"{name} is {value!r}; it takes {kind}{bound}")
        make: Callable[..., BaseConfig] = self.config
        try:
            return make(**options)
        except (TypeError, ValueError) as error:
            raise UnknownOption(str(error)) from error

    def cannot_decode(self, form: str) -> str | None:
        """Why the form cannot continue a sequence token by token, or None."""
        module = self.forms[form]
        if module.start is Attention.start or module.package or module.compiles:
            return self.undecoded or "this form has no step of its own"
        return None

    def refusal(self, form: str, config: BaseConfig, workload: Workload) -> str | None:
        """Why the form cannot run the workload here, or None."""
        if workload.width % workload.heads:
            return f"width {workload.width} is not divisible by {workload.heads} heads"
        if workload.mode is Mode.DECODE and (reason := self.undecodable(form, workload)):
            return f"cannot decode: {reason}"
        if workload.causal and self.causality is Causality.NEVER:
            return "the mechanism has no causal form"
        if workload.level is Level.CORE and not issubclass(self.forms[form], CoreAttention):
            return "the mechanism has no core separate from its projections"
        return self.needs(config, workload) or self.forms[form].needs(config, workload)

    def undecodable(self, form: str, workload: Workload) -> str | None:
        """Why the form cannot be measured in mode `decode` on the workload, or None."""
        if reason := self.cannot_decode(form):
            return reason
        if workload.level is not Level.ATTENTION:
            return "a step is measured with its projections, at level attention"
        return "a prompt is measured without padding" if workload.padding else None
