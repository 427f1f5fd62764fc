"""What mechanisms say of themselves, asked of a process: no card's code runs here, nor torch.

Mechanisms of this package are read together. Every other one, of a file or of an installed
package, is read in a separate process, so that a bad one spoils no other and is named.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from attnbench import errors
from attnbench.errors import CannotRun
from attnbench.records import CardFacts, Planned, Request
from attnbench.registry import built_in
from attnbench.run.processes import Server
from attnbench.workloads.presets import expand

# importing a large library from a cold disk takes some seconds; torch is there already
TIMEOUT_S = 30.0
VERIFY_TIMEOUT_S = 300.0
READER = "attnbench.workloads.reader"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every case, with its predictions, and the facts of each mechanism among them."""

    cases: tuple[Planned, ...]
    cards: tuple[CardFacts, ...]


def plan(request: Request, server: Server) -> Plan:
    """Every case that was asked for, in the order of models, modes and lengths, each once.

    Raises `UsageError`, or `CannotRun` if a card's process ends or does not answer in time.
    """
    selections = [chosen for part in request.models for chosen in expand(part)]
    lines: dict[int, list[Mapping[str, Any]]] = {}
    cards: dict[str, CardFacts] = {}
    for names in apart(chosen.name for chosen in selections):
        places = [i for i, chosen in enumerate(selections) if chosen.name in names]
        asked = [asdict(selections[i]) for i in places]
        found = ask(server, names, do="plan", request=asdict(request), selections=asked)
        lines |= dict(zip(places, found["plan"], strict=True))
        cards |= {data["mechanism"]: msgspec.convert(data, CardFacts) for data in found["cards"]}
    each = (msgspec.convert(data, Planned) for place in sorted(lines) for data in lines[place])
    kept: dict[str, Planned] = {}
    for line in each:
        kept.setdefault(line.case.key, line)
    order = dict.fromkeys(chosen.name for chosen in selections)
    return Plan(cases=tuple(kept.values()), cards=tuple(cards[name] for name in order))


def describe(names: Iterable[str], device: str, server: Server) -> list[Mapping[str, Any]]:
    """Each mechanism in full, as data. Raises as `plan` does."""
    given = tuple(names)
    found: dict[str, Mapping[str, Any]] = {}
    for group in apart(given):
        rows = ask(server, group, do="describe", device=device)["described"]
        found |= dict(zip(group, rows, strict=True))
    return [found[name] for name in given]


def verify(name: str, server: Server) -> list[dict[str, str]]:
    """What the contract's checks say of a mechanism: check, trial, result and reason of each.

    Raises `CannotRun` if the process ends or takes too long, as a mechanism may make it.
    """
    with server.worker(module=READER) as worker:
        answer = worker.ask(VERIFY_TIMEOUT_S, do="verify", names=(name,))
    if answer["outcome"] != "ok":
        raise CannotRun(f"{name} could not be verified: {answer['reason']}")
    results: list[dict[str, str]] = answer["checks"][name]
    return results


def apart(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Those of this package, and each other one alone."""
    ours, given = built_in(), dict.fromkeys(names)
    together = tuple(name for name in given if name in ours)
    return [together] * bool(together) + [(name,) for name in given if name not in ours]


def ask(server: Server, names: tuple[str, ...], **asked: Any) -> Mapping[str, Any]:
    """The reader's answer about some mechanisms; what it refuses is raised here."""
    with server.worker(module=READER) as worker:
        answer = worker.ask(TIMEOUT_S, names=names, **asked)
    if answer["outcome"] == "ok":
        return answer
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["reason"])
    which = f"mechanism {names[0]!r}" if len(names) == 1 else "the registered mechanisms"
    if answer["outcome"] == "timeout":
        raise CannotRun(
            f"{which} could not be read within {TIMEOUT_S:g} s;"
            " importing it, or its card, must not wait or compute"
        )
    raise CannotRun(
        f"{which} could not be read: as it was imported, or its card was asked, {answer['reason']}"
    )
