"""Read cards in separate processes, so that neither their code nor torch runs in this one.

Mechanisms of this package are read together. Every other one, from a file or an installed package,
is read in a separate process, so that a faulty one affects no other and errors name it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from attnbench import errors
from attnbench.catalogue.registry import is_built_in
from attnbench.errors import CannotRun
from attnbench.records import CardFacts, Planned, Request, Selection
from attnbench.run.pool import Pool
from attnbench.workloads.presets import expand, preset

# of a user's file or package: importing a large library from a cold disk takes some seconds
TIMEOUT_S = 30.0
OWN_TIMEOUT_S = 600.0  # of this package, whose cards only wait if the machine is busy
READER = "attnbench.workloads.reader"

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every case with its counts, and the facts of each mechanism among them."""

    cases: tuple[Planned, ...]
    cards: tuple[CardFacts, ...]


def plan(request: Request, server: Pool) -> Plan:
    """Every requested case once, in the order of models, modes and lengths.

    Raises `UsageError`, or `CannotRun` if a card's process ends or does not answer in time.
    """
    column = preset(request.preset)
    selections = [chosen for part in request.models for chosen in expand(part, column)]
    plans: dict[int, list[Mapping[str, Any]]] = {}  # by index of the selection
    cards: dict[str, CardFacts] = {}
    for names in process_groups(chosen.name for chosen in selections):
        indices = [i for i, chosen in enumerate(selections) if chosen.name in names]
        asked = [asdict(selections[i]) for i in indices]
        answer = ask(server, names, do="plan", request=asdict(request), selections=asked)
        plans |= dict(zip(indices, answer["plan"], strict=True))
        cards |= {data["mechanism"]: msgspec.convert(data, CardFacts) for data in answer["cards"]}
    cases: dict[str, Planned] = {}
    for index in sorted(plans):
        for planned in _planned(selections[index], plans[index]):
            cases.setdefault(planned.case.key, planned)
    order = dict.fromkeys(chosen.name for chosen in selections)
    return Plan(cases=tuple(cases.values()), cards=tuple(cards[name] for name in order))


def _planned(chosen: Selection, cases: Sequence[Mapping[str, Any]]) -> list[Planned]:
    """The cases of a selection. Raises `CannotRun` if their numbers are beyond any machine."""
    try:
        return msgspec.convert(cases, list[Planned])
    except ValueError as error:
        raise CannotRun(f"{chosen} cannot be planned: {error}; ask for smaller sizes") from error


def describe(names: Sequence[str], device: str, server: Pool) -> list[Row]:
    """What `attnbench models` prints of each mechanism. Raises what `plan` raises."""
    rows: dict[str, Row] = {}
    for group in process_groups(names):
        answer = ask(server, group, do="describe", device=device)
        rows |= zip(group, answer["described"], strict=True)
    return [rows[name] for name in names]


def verify(name: str, server: Pool, stress: bool = False) -> list[dict[str, str]]:
    """Check, trial, result and reason of each of the contract's checks on a mechanism.

    With `stress` also of its errors on inputs that break kernels.

    Raises what `plan` raises.
    """
    answer = ask(server, (name,), OWN_TIMEOUT_S, do="verify", stress=stress)
    results: list[dict[str, str]] = answer["checks"]
    return results


def process_groups(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Mechanisms to read in one process each: all of this package, and each other one alone."""
    unique = dict.fromkeys(names)
    together = tuple(name for name in unique if is_built_in(name))
    apart: list[tuple[str, ...]] = [(name,) for name in unique if name not in together]
    return [together, *apart] if together else apart


def ask(
    server: Pool, names: tuple[str, ...], limit_s: float | None = None, **asked: Any
) -> Mapping[str, Any]:
    """The reader's answer about some mechanisms. Raises its errors, or `CannotRun`."""
    built_in_only = all(map(is_built_in, names))
    limit_s = OWN_TIMEOUT_S if built_in_only else limit_s or TIMEOUT_S
    answer = server.ask(limit_s, READER, names=names, **asked)
    if answer["outcome"] == "ok":
        return answer
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["reason"])
    which = f"mechanism {names[0]!r}" if len(names) == 1 else "the registered mechanisms"
    if answer["outcome"] == "timeout":
        busy = "the machine may be too busy; try again"
        way_out = busy if built_in_only else "neither its import nor its card may wait or compute"
        raise CannotRun(f"{which} could not be read within {limit_s:g} s; {way_out}")
    raise CannotRun(
        f"{which} could not be read: while it was imported or its card read, {answer['reason']}"
    )
