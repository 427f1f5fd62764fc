"""The card of a mechanism: all that is known of it before any module is built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, get_args

from torch import Tensor

from attnbench.attention.contract import Attention, BaseConfig, CoreAttention
from attnbench.attention.heads import HeadsWorkload
from attnbench.errors import UnknownOption
from attnbench.records import Causality, Family, Level, Option, Selection, Workload

MIXED = "mixed"  # the form of a stack in which each layer has a form of its own
LARGEST = 1 << 31  # no option may exceed what a tensor dimension can hold


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


Exempt = Mapping[Exemption, str]  # from which rules, and why


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
    meaning of each, and the options that set it.
    `default` names a form, `exempt` the rules that do not hold, each with a reason; `uncompiled`
    says why torch cannot compile the form `eager` (correctly). Each may be a function of the
    config, `default` and `uncompiled` of the config and the workload.
    A stack has `layers`, in order, which level `model` repeats.
    `launches` is why an iteration of the default form launches more kernels on a GPU, the longer
    the sequences, than its queue holds: beyond about 1,000 their time is that of the host.
    `waits` is why an iteration of the default form reads numbers of a GPU: the host waits for them.
    `no_decode_reason` is why no form continues a sequence token by token; a card without it says
    that some form does, which `registry.decodes` reads.
    """

    forms: Mapping[str, type[Attention]]  # "eager" is one of them, but for functions of a user
    config: type[BaseConfig]
    reference: Callable[..., Tensor] | None
    parameters: Callable[[Any, Workload], int]
    family: Family
    causality: Causality
    paper: Paper
    cost: Cost
    examples: tuple[BaseConfig, ...]
    symbols: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    default: str | Callable[[Any, Workload], str] = "eager"
    needs: Callable[[Any, Workload], str | None] = Attention.needs
    uncompiled: str | Callable[[Any, Workload], str | None] = ""
    exempt: Exempt | Callable[[Any], Exempt] = field(default_factory=dict)
    tolerance: Tolerance = Tolerance()
    share_layers: bool = False  # level `model`: all layers share one set of attention parameters
    declared: bool = True  # False: FLOPs and parameters are estimates, and counted when it runs
    launches: str = ""
    waits: str = ""
    no_decode_reason: str = ""
    layers: "tuple[StackLayer, ...]" = ()
    mechanism: "Card | None" = None  # which the forms, functions of a user, are to compute

    @property
    def eager(self) -> type[Attention]:
        """The form that is the equations as written; for functions of a user, the mechanism's."""
        return (self.mechanism or self).forms["eager"]

    @property
    def own_forms(self) -> tuple[str, ...]:
        """The forms that no other package computes."""
        return tuple(name for name, form in self.forms.items() if not form.package)

    def configure(self, options: Mapping[str, Option]) -> BaseConfig:
        """The config with these options. Raises `UnknownOption`, which lists the known ones."""
        kinds = {f.name: f.type for f in fields(self.config)}
        no_words = {n: "none" for n, v in options.items() if v is None and kinds.get(n) is str}
        options = {**options, **no_words}
        for name, value in options.items():
            if name == "causal":
                raise UnknownOption("causal is set by --causal")
            if name not in kinds:
                known = f"options: {', '.join(sorted(kinds))}" if kinds else "it has none"
                raise UnknownOption(f"no option {name!r}; {known}")
            if not fits(value, kinds[name]):
                kind = getattr(kinds[name], "__name__", kinds[name])
                bound = f" below {LARGEST:,}" if type(value) in (int, float) else ""
                raise UnknownOption(f"{name} is {value!r}; it takes {kind}{bound}")
        make: Callable[..., BaseConfig] = self.config
        try:
            return make(**options)
        except (TypeError, ValueError) as error:
            raise UnknownOption(str(error)) from error

    def default_form(self, config: BaseConfig, workload: Workload) -> str:
        """The form of the workload if none is asked for."""
        own = config.sized(workload)
        return self.default(config, own) if callable(self.default) else self.default

    def usual_form(self, config: BaseConfig, workload: Workload) -> str:
        """The same, or `eager` where that form cannot run."""
        form = self.default_form(config, workload)
        refused = form in self.forms and self.refusal(form, config, workload)
        return "eager" if refused else form

    def options(self, config: BaseConfig) -> tuple[tuple[str, Option], ...]:
        """The options that are not the defaults, sorted by name."""
        usual = self.config()
        names = sorted(f.name for f in fields(config))
        pairs = ((name, getattr(config, name), getattr(usual, name)) for name in names)
        return tuple((name, value) for name, value, default in pairs if value != default)

    def exemptions(self, config: BaseConfig) -> Exempt:
        """The rules of the contract that do not hold, each with a reason."""
        return self.exempt(config) if callable(self.exempt) else self.exempt

    def cannot_decode(self, form: str) -> str | None:
        """Why the form cannot continue a sequence token by token, or None."""
        module = self.forms[form]
        without = module.start is Attention.start or module.package or module.compiles
        if without or self.no_decode_reason:
            return self.no_decode_reason or "this form has no step of its own"
        return None

    def refusal(self, form: str, config: BaseConfig, workload: Workload) -> str | None:
        """Why the form cannot run the workload here, or None."""
        own = config.sized(workload)
        if not isinstance(own, HeadsWorkload) and workload.width % workload.heads:
            return f"width {workload.width} is not divisible by {workload.heads} heads"
        if workload.steps and (reason := self.undecodable(form, workload)):
            return f"cannot decode: {reason}"
        if workload.causal and self.causality is Causality.NEVER:
            return "the mechanism has no causal form"
        if workload.level is Level.CORE and not issubclass(self.forms[form], CoreAttention):
            return "the mechanism has no core separate from its projections"
        return self.needs(config, own) or self.forms[form].needs(config, own)

    def undecodable(self, form: str, workload: Workload) -> str | None:
        """Why the form cannot be measured in mode `decode` on the workload, or None."""
        if reason := self.cannot_decode(form):
            return reason
        if workload.level is not Level.ATTENTION:
            return "a step is measured with its projections, at level attention"
        if workload.step > workload.seq_len:
            return f"a step of {workload.step} tokens is longer than the context"
        if workload.step > 1 and (reason := self.forms[form].one_token_reason):
            return f"a step takes one token: {reason}"
        return "a prompt is measured without padding" if workload.padding else None


@dataclass(frozen=True)
class StackLayer:
    """A layer of a stack: a mechanism with options, and the form that it names, if any."""

    mechanism: str
    form: str | None
    card: Card
    config: BaseConfig

    def form_in(self, shared: str, workload: Workload) -> str:
        """The form of the layer in a form of the stack: in `MIXED` its own, or its usual one."""
        if shared != MIXED:
            return shared
        return self.form or self.card.usual_form(self.config, workload)

    def series(self, shared: str, workload: Workload) -> str:
        """The layer as a series by itself."""
        form = self.form_in(shared, workload)
        options = self.card.options(self.config)
        return str(Selection(name=self.mechanism, form=form, options=options))
