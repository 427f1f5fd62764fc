"""What mechanisms say of themselves, asked of a process: no card's code runs here, nor torch.

Mechanisms of this package are read together. Every other one, of a file or of an installed
package, is read in a process of its own, so that a bad one spoils no other and is named.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from attnbench import errors
from attnbench.errors import CannotRun
from attnbench.records import CardFacts, Planned, Request
from attnbench.registry import own
from attnbench.run.launch import Reply
from attnbench.workloads.presets import expand

# importing a large library from a cold disk takes some seconds; torch is there already
TIMEOUT_S = 30.0

Launch = Callable[[Mapping[str, Any], float | None], Reply]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every case, with its predictions, and the facts of each mechanism among them."""

    lines: tuple[Planned, ...]
    cards: tuple[CardFacts, ...]


def plan(request: Request, launch: Launch) -> Plan:
    """Every case that was asked for, in the order of models, modes and lengths, each once.

    Raises `UsageError`, or `CannotRun` if a card's process ends or does not answer in time.
    """
    selections = [chosen for part in request.models for chosen in expand(part)]
    lines: dict[int, list[Mapping[str, Any]]] = {}
    cards: dict[str, CardFacts] = {}
    for names in apart(chosen.name for chosen in selections):
        places = [i for i, chosen in enumerate(selections) if chosen.name in names]
        asked = [(s.name, s.form, s.options) for s in (selections[i] for i in places)]
        found = ask(launch, names, request=asdict(request), selections=asked)
        lines |= dict(zip(places, found["plan"], strict=True))
        cards |= {data["mechanism"]: CardFacts.from_json(data) for data in found["cards"]}
    each = (Planned.from_json(data) for place in sorted(lines) for data in lines[place])
    kept: dict[str, Planned] = {}
    for line in each:
        kept.setdefault(line.case.key, line)
    order = dict.fromkeys(chosen.name for chosen in selections)
    return Plan(lines=tuple(kept.values()), cards=tuple(cards[name] for name in order))


def describe(names: Iterable[str], device: str, launch: Launch) -> list[Mapping[str, Any]]:
    """Each mechanism in full, as data. Raises as `plan` does."""
    given = tuple(names)
    found: dict[str, Mapping[str, Any]] = {}
    for group in apart(given):
        rows = ask(launch, group, device=device)["described"]
        found |= dict(zip(group, rows, strict=True))
    return [found[name] for name in given]


def apart(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Those of this package, and each other one alone."""
    ours, given = own(), dict.fromkeys(names)
    together = tuple(name for name in given if name in ours)
    return [together] * bool(together) + [(name,) for name in given if name not in ours]


def ask(launch: Launch, names: tuple[str, ...], **asked: Any) -> Mapping[str, Any]:
    """The reader's answer about some mechanisms; what it refuses is raised here."""
    reply = launch({"folder": os.getcwd(), "names": names, **asked}, TIMEOUT_S)
    if reply.answer is None:
        which = f"mechanism {names[0]!r}" if len(names) == 1 else "the registered mechanisms"
        if reply.timed_out:
            raise CannotRun(
                f"{which} could not be read within {TIMEOUT_S:g} s;"
                " importing it, or its card, must not wait or compute"
            )
        last = reply.log.splitlines()[-1] if reply.log else "it printed nothing"
        raise CannotRun(
            f"{which} could not be read: importing it, or its card, ended the process"
            f" ({ending(reply.exit_code)}): {last}"
        )
    if "error" in reply.answer:
        raise getattr(errors, reply.answer["error"])(reply.answer["said"])
    return reply.answer


def ending(exit_code: int | None) -> str:
    """How a process ended, in words."""
    if exit_code is not None and exit_code < 0:
        return f"signal {-exit_code}"
    return f"exit code {exit_code}"
