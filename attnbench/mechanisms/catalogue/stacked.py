"""A stack: layers of several mechanisms one after the other, as one mechanism.

    x ← x + layer(x)                              each layer in order, [B, N, D] to [B, N, D]

`stack(3*gated_delta_net+grouped_query[kv_heads=2])` names its layers. At level `model` they are
those of the classifier, which repeats them in this order; its LayerNorms and feed-forwards stand
between them. Parameters, FLOPs and states are sums over the layers, and each layer has parameters
of its own. A stack has no options and no reference besides those of its layers.

A form that all layers have, such as `eager` or `compiled`, is a form of the stack. In `mixed`, the
default, each layer has the form that it names, or its usual one for the workload.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from attnbench.attention import Attention, BaseConfig, Card, Cost, Flops, Paper, State
from attnbench.attention.card import MIXED, StackLayer
from attnbench.errors import UnknownMechanism, UnknownOption, UsageError
from attnbench.records import Causality, Family, Selection, Workload
from attnbench.records.selection import layers, mechanisms


@dataclass(frozen=True, kw_only=True)
class Config(BaseConfig):
    """No options: its layers have theirs."""

    bias: ClassVar[bool] = False  # type: ignore[misc]


class Stack(Attention):
    """Layers of these `kinds`, in one form, with residual connections; a state is theirs."""

    kinds: ClassVar[tuple[StackLayer, ...]]
    form: ClassVar[str]
    one_token_reason = ""  # of its own

    def __init__(self, config: Any, workload: Workload) -> None:
        super().__init__(config, workload)
        modules = (form(own, own.sized(workload)) for form, own in self.chosen(workload))
        self.layers = nn.ModuleList(modules)

    @classmethod
    def chosen(cls, workload: Workload) -> list[tuple[type[Attention], Any]]:
        """The form and the config of each layer."""
        return [
            (kind.card.forms[kind.form_in(cls.form, workload)], kind.config) for kind in cls.kinds
        ]

    @property
    def stacked(self) -> tuple[Any, ...]:
        return tuple(self.layers)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, mask)
        return x

    def auxiliary_loss(self) -> Tensor | None:
        losses = [loss for layer in self.stacked if (loss := layer.auxiliary_loss()) is not None]
        return sum(losses[1:], losses[0]) if losses else None

    @classmethod
    def state_elements(cls, config: Any, workload: Workload) -> int:
        return sum(form.state_elements(c, c.sized(workload)) for form, c in cls.chosen(workload))

    @classmethod
    def needs(cls, config: Any, workload: Workload) -> str | None:
        """Why one of the layers cannot run, or the classifier cannot repeat them."""
        period = len(cls.kinds)
        if workload.shell and workload.shell.layers % period:
            return f"{workload.shell.layers} layers are not a multiple of the {period} of the stack"
        for kind in cls.kinds:
            form = kind.form_in(cls.form, workload)
            if reason := kind.card.refusal(form, kind.config, workload):
                return f"{kind.mechanism}: {reason}"
        return None

    @classmethod
    def flops(cls, config: Any, workload: Workload) -> Flops:
        """The sum over the layers; residual connections have no products."""
        return total(form.flops(own, own.sized(workload)) for form, own in cls.chosen(workload))

    @classmethod
    def step_flops(cls, config: Any, workload: Workload) -> Flops | None:
        own = [form.step_flops(c, c.sized(workload)) for form, c in cls.chosen(workload)]
        declared = [flops for flops in own if flops is not None]
        return total(declared) if len(declared) == len(own) else None

    @classmethod
    def elements(cls, config: Any, workload: Workload) -> int:
        """The maximum over the layers: a layer frees them before the next one begins."""
        return max(form.elements(own, own.sized(workload)) for form, own in cls.chosen(workload))

    def start(self, batch: int, capacity: int) -> State:
        return tuple(layer.start(batch, capacity) for layer in self.stacked)

    def prefill(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.through("prefill", x, state)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.through("step", x, state)

    def through(self, call: str, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Call a method of each layer in order; the last output, and the states after."""
        after = []
        for layer, before in zip(self.stacked, state, strict=True):
            y, own = getattr(layer, call)(x, before)
            x = x + y
            after.append(own)
        return x, tuple(after)


def stacked(name: str, card: Callable[[str], Card]) -> Card:
    """The card of the stack of this name; `card` finds those of its layers.

    Raises `UnknownMechanism`, `UnknownOption` or `UsageError`.
    """
    cards = {mechanism: card(mechanism) for mechanism in mechanisms(name)}
    kinds = tuple(kind_of(layer, cards[layer.name]) for layer in layers(name))
    first = cards[kinds[0].mechanism]
    shared = [form for form in first.forms if all(form in one.forms for one in cards.values())]
    costs = [one.cost for one in cards.values()]
    return Card(
        forms={form: form_of(kinds, form) for form in (*shared, MIXED)},
        config=Config,
        reference=None,
        parameters=lambda config, w: sum(
            kind.card.parameters(kind.config, kind.config.sized(w)) for kind in kinds
        ),
        family=first.family if len({c.family for c in cards.values()}) == 1 else Family.UNKNOWN,
        causality=causality(name, cards),
        paper=Paper("A stack of layers", "", None, name),
        cost=Cost(
            " + ".join(dict.fromkeys(cost.printed for cost in costs)),
            largest([cost.time for cost in costs]),
            largest([cost.memory for cost in costs]),
        ),
        examples=(Config(),),
        symbols={symbol: text for one in cards.values() for symbol, text in one.symbols.items()},
        default=MIXED,
        declared=all(one.declared for one in cards.values()),
        no_decode_reason=next(
            (f"{n}: {c.no_decode_reason}" for n, c in cards.items() if c.no_decode_reason), ""
        ),
        layers=kinds,
    )


def kind_of(layer: Selection, card: Card) -> StackLayer:
    """A layer with its card. Raises `UnknownMechanism` or `UnknownOption`."""
    if layer.form and layer.form not in card.forms:
        forms = ", ".join(card.forms)
        raise UnknownMechanism(f"{layer.name} has no form {layer.form!r}; forms: {forms}")
    try:
        return StackLayer(layer.name, layer.form, card, card.configure(dict(layer.options)))
    except UnknownOption as error:
        raise UnknownOption(f"{layer.name}: {error}") from error


def form_of(kinds: tuple[StackLayer, ...], form: str) -> type[Stack]:
    """The class of a form of the stack."""
    known = [kind.form if form == MIXED else form for kind in kinds]
    named = [p.card.forms[name] for p, name in zip(kinds, known, strict=True) if name]
    body = {
        "kinds": kinds,
        "form": form,
        "package": next((each.package for each in named if each.package), ""),
        "deviation": "; ".join(dict.fromkeys(each.deviation for each in named if each.deviation)),
        "flops_estimated": any(each.flops_estimated for each in named),
        "compiles": any(each.compiles for each in named),
        "tunes": any(each.tunes for each in named),
        "__module__": __name__,
    }
    if any(
        kind.card.cannot_decode(name) if name else kind.card.no_decode_reason
        for kind, name in zip(kinds, known, strict=True)
    ):
        body["start"] = Attention.start  # a form without steps
    return type("Stack", (Stack,), body)


def causality(name: str, cards: dict[str, Card]) -> Causality:
    """Whether the stack can run causally. Raises `UsageError` if no way suits all layers."""
    by_kind = {card.causality: mechanism for mechanism, card in cards.items()}
    always = by_kind.get(Causality.ALWAYS)
    never = by_kind.get(Causality.NEVER)
    if always and never:
        raise UsageError(f"{name}: {always} is always causal and {never} never; leave one out")
    order = (Causality.ALWAYS, Causality.NEVER, Causality.TESTED)
    return next((each for each in order if each in by_kind), Causality.OPTIONAL)


def largest(exponents: Sequence[float | None]) -> float | None:
    """The largest exponent; None if one is unknown."""
    known = [exponent for exponent in exponents if exponent is not None]
    return max(known) if len(known) == len(exponents) else None


def total(flops: Any) -> Flops:
    """The sum of the FLOPs of some layers."""
    own = list(flops)
    return Flops(sum(each.projections for each in own), sum(each.core for each in own))
