"""Read cards in separate processes, so that neither their code nor torch runs in this one.

Mechanisms of this package are read together. Every other one, from a file or an installed package,
is read in a separate process, so that a faulty one affects no other and errors name it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from attnbench.errors import (
    AttnbenchError,
    CannotRun,
    OverBudget,
    UnknownMechanism,
    UnknownOption,
    UsageError,
)
from attnbench.mechanisms import catalogue
from attnbench.records import CardFacts, Planned, Request, messages
from attnbench.running.pool import Pool

# of a user's file or package: importing a large library from a cold disk takes some seconds
TIMEOUT_S = 30.0
OWN_TIMEOUT_S = 600.0  # of this package, whose cards only wait if the machine is busy
READER = "attnbench.measuring.reader"
# by the name that a reader gives; its process runs code of users, which may give any other
ERRORS: Mapping[str, type[AttnbenchError]] = MappingProxyType({
    kind.__name__: kind
    for kind in (UsageError, UnknownMechanism, UnknownOption, CannotRun, OverBudget)
})  # fmt: skip

Description = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every case with its counts, and the facts of each mechanism among them."""

    cases: tuple[Planned, ...]
    cards: tuple[CardFacts, ...]


def plan(request: Request, server: Pool) -> Plan:
    """Every requested case once, in the order of models, modes and lengths.

    Raises `UsageError`, or `CannotRun` if a card's process ends or does not answer in time.
    """
    column = catalogue.preset(request.preset)
    selections = [
        selection for part in request.models for selection in catalogue.expand(part, column)
    ]
    plans: dict[int, tuple[Planned, ...]] = {}  # by index of the selection
    cards: dict[str, CardFacts] = {}
    for names in process_groups(selection.name for selection in selections):
        indices = [i for i, selection in enumerate(selections) if selection.name in names]
        group = tuple(selections[i] for i in indices)
        question = messages.ReadPlan(names=names, request=request, selections=group)
        answer = ask(server, question)
        plans |= dict(zip(indices, answer.plan, strict=True))
        cards |= {card.mechanism: card for card in answer.cards}
    cases: dict[str, Planned] = {}
    for index in sorted(plans):
        for planned in plans[index]:
            cases.setdefault(planned.case.key, planned)
    order = dict.fromkeys(selection.name for selection in selections)
    return Plan(cases=tuple(cases.values()), cards=tuple(cards[name] for name in order))


def describe(names: Sequence[str], device: str, server: Pool) -> list[Description]:
    """What `attnbench models` prints of each mechanism. Raises what `plan` raises."""
    rows: dict[str, Description] = {}
    for group in process_groups(names):
        answer = ask(server, messages.Describe(names=group, device=device))
        rows |= zip(group, answer.described, strict=True)
    return [rows[name] for name in names]


def verify(name: str, server: Pool, stress: bool = False) -> list[dict[str, str]]:
    """Check, trial, result and reason of each of the contract's checks on a mechanism.

    With `stress` also of its errors on inputs that break kernels.

    Raises what `plan` raises.
    """
    question = messages.Verify(names=(name,), stress=stress)
    return list(ask(server, question, OWN_TIMEOUT_S).checks)


def process_groups(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Mechanisms to read in one process each: all of this package, and each other one alone."""
    unique = dict.fromkeys(names)
    together = tuple(name for name in unique if catalogue.is_built_in(name))
    apart: list[tuple[str, ...]] = [(name,) for name in unique if name not in together]
    return [together, *apart] if together else apart


def ask(
    server: Pool, question: messages.AboutCards[messages.A], limit_s: float | None = None
) -> messages.A:
    """The reader's answer about some mechanisms. Raises its errors, or `CannotRun`.

    `limit_s` is of mechanisms that are not of this package, `TIMEOUT_S` unless given.
    """
    names = question.names
    built_in_only = all(map(catalogue.is_built_in, names))
    limit_s = OWN_TIMEOUT_S if built_in_only else (limit_s or TIMEOUT_S)
    answer = server.ask(question, limit_s, READER)
    if not isinstance(answer, messages.Failure):
        return answer
    if kind := ERRORS.get(answer.error):
        raise kind(answer.reason)
    subject = f"mechanism {names[0]!r}" if len(names) == 1 else "the registered mechanisms"
    if answer.is_timeout:
        busy = "the machine may be too busy; try again"
        way_out = busy if built_in_only else "neither its import nor its card may wait or compute"
        raise CannotRun(f"{subject} could not be read within {limit_s:g} s; {way_out}")
    raise CannotRun(
        f"{subject} could not be read: while it was imported or its card read, {answer.reason}"
    )
