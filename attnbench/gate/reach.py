"""The mechanisms that a change reaches: those for which a process loads a file that differs.

A process of each tree is asked which files it has loaded for one mechanism. A mechanism is also
reached where only one side can load it.
"""

import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.metadata import entry_points
from pathlib import Path, PurePath
from typing import NamedTuple

from attnbench.catalogue.registry import GROUP
from attnbench.gate.cases import MISSING, CheckPlan, MechanismPair
from attnbench.gate.measuring import Runner, loaded, on_sides
from attnbench.gate.pairs import BASE, HEAD
from attnbench.gate.repository import Change, files_with
from attnbench.records import Selection
from attnbench.records.selection import mechanisms
from attnbench.run.process import Answer
from attnbench.units import many

LOAD_TIMEOUT_S = 60.0
OWN = PurePath("attnbench/mechanisms")
PEERS = "attnbench/peers/"  # all loaded for every mechanism; each is for the form of its name
BINDING = re.compile(r"^(\w+)\b[^=\n]*=[ \w.]*\bCard\(", re.MULTILINE)  # `NAME = Card(`
FIRST_LOOK = 0.5  # share of the budget for the first look at all that is timed
COUNT_S = 0.3  # about the time to count a case


class Loaded(NamedTuple):
    """What a process of each tree says about one mechanism."""

    compared: MechanismPair
    base: Answer
    head: Answer

    @property
    def files(self) -> set[str]:
        """The files that it depends on, on either side."""
        sides = (self.compared.base.name, self.compared.head.name)
        names = [name for side in sides for name in mechanisms(side)]
        form = f"/{self.compared.head.form}."
        files = {*self.base.get("files", ()), *self.head.get("files", ())}
        own = {name.rpartition(":")[0] for name in names if ".py:" in name}
        return own | {path for path in files if PEERS not in path or form in path}

    @property
    def is_nowhere(self) -> bool:
        """Whether neither side has it."""
        return bool(self.base["outcome"] == self.head["outcome"] == MISSING)

    @property
    def forms(self) -> list[str]:
        """The forms of head, except those that torch would have to compile."""
        compiled = self.head.get("compiled", ())
        return [form for form in self.head.get("forms", ()) if form not in compiled]

    def is_reached(self, touched: set[str]) -> bool:
        """Whether it depends on a changed file, or can be loaded on one side only."""
        return self.base["outcome"] != self.head["outcome"] or bool(self.files & touched)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What a change reaches, of `known` mechanisms; no mechanism loads the `uncovered` files."""

    reached: tuple[Loaded, ...] = ()
    known: int = 0
    uncovered: tuple[str, ...] = ()


def reach(
    trees: Mapping[str, Path],
    changes: Sequence[Change],
    runner: Runner,
    device: str,
    asked: Sequence[MechanismPair] | None = None,
) -> Reach:
    """What the changes reach of the mechanisms asked for, or of all that the trees contain.

    Raises `CannotRun` and `OverBudget`.
    """
    differing = tuple(without_moved(changes, trees))
    if not differing:
        return Reach()
    known = contained(trees, changes) if asked is None else tuple(asked)

    def answers(side: str) -> list[Answer]:
        given = []
        for pair in known:
            with loaded(runner.server, side, trees[side]) as worker:
                runner.observe(f"asking what {pair.head.name} loads")
                name = (pair.base if side == BASE else pair.head).name
                asking = {"do": "loads", "mechanism": name, "device": device}
                given.append(worker.ask(LOAD_TIMEOUT_S, **asking))
        return given

    both = on_sides(runner.server, (BASE, HEAD), answers)
    of_each = [Loaded(*each) for each in zip(known, both[BASE], both[HEAD], strict=True)]
    # some text may only look like a card; what was asked for is reported even if it is nowhere
    there = [one for one in of_each if asked is not None or not one.is_nowhere]
    touched = {path for change in differing for path in change.paths}
    covered = {path for one in there for path in one.files}
    return Reach(
        reached=tuple(one for one in there if one.is_nowhere or one.is_reached(touched)),
        known=len(there),
        uncovered=tuple(
            change.paths[-1]
            for change in differing
            if change.paths[-1].endswith(".py") and not covered & set(change.paths)
        ),
    )


def without_moved(changes: Sequence[Change], trees: Mapping[str, Path]) -> Iterator[Change]:
    """The changes except those of files that only moved: the other side has their content."""

    def contents(side: str) -> dict[str, bytes]:
        paths = (getattr(change, side) for change in changes if change.base != change.head)
        found = {}
        for path in filter(None, paths):
            with suppress(OSError):  # such as a link to nowhere
                found[path] = sha256((trees[side] / path).read_bytes()).digest()
        return found

    before, after = contents(BASE), contents(HEAD)
    both = set(before.values()) & set(after.values())
    for change in changes:
        sides = (before.get(change.base or ""), after.get(change.head or ""))
        if not set(filter(None, sides)) or not set(filter(None, sides)) <= both:
            yield change


def contained(trees: Mapping[str, Path], changes: Sequence[Change]) -> tuple[MechanismPair, ...]:
    """All mechanisms of both trees; a renamed file counts once."""
    renamed = {c.base: c.head for c in changes if c.base and c.head}
    original = {head: base for base, head in renamed.items()}
    pairs = {(path, renamed.get(path, path), card) for path, card in cards(trees[BASE])}
    pairs |= {(original.get(path, path), path, card) for path, card in cards(trees[HEAD])}
    compared = [MechanismPair(base=named(old, c), head=named(new, c)) for old, new, c in pairs]
    return tuple(sorted(compared, key=lambda pair: pair.head.name))


def cards(tree: Path) -> Iterator[tuple[str, str]]:
    """Path and name of every `NAME = Card(…)` in the text of the tree's files."""
    for path in files_with(tree, "Card("):
        text = (tree / path).read_text(encoding="utf-8", errors="replace")
        yield from ((path, name) for name in BINDING.findall(text))


def named(path: str, card: str) -> Selection:
    """The name that `--models` takes: the registered one, or `path.py:NAME`."""
    if PurePath(path).parent == OWN and card == "CARD":
        return Selection(name=PurePath(path).stem)
    module = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__")
    for point in entry_points(group=GROUP):
        if (point.module, point.attr) == (module.replace("/", "."), card):
            return Selection(name=point.name)
    return Selection(name=f"{path}:{card}")


def file_of(name: str, root: Path) -> str:
    """The file of the repository that holds a mechanism or function; empty if there is none."""
    place = name.rpartition(":")[0]
    offered = [point.module for point in entry_points(group=GROUP, name=name)]
    module = place or next(iter(offered), f"attnbench.mechanisms.{name}")
    path = place.removesuffix(".py") if place.endswith(".py") else module.replace(".", "/")
    files = [f"{folder}{path}{end}" for folder in ("", "src/") for end in (".py", "/__init__.py")]
    return next((file for file in files if os.path.isfile(root / file)), "")


def chosen(found: Reach, plan: CheckPlan, left_s: float, seed: str) -> list[MechanismPair]:
    """What to check of these: each mechanism in its default form, those timed in every form.

    All are timed, or a random sample that fits into `left_s`; the others are only counted.
    """
    counted, timed = list[MechanismPair](), list[MechanismPair]()
    draw = random.Random(seed)
    look_s = plan.pairs * plan.visit_s if plan.times else 0.0
    fit_s = FIRST_LOOK * left_s - COUNT_S * plan.cases * len(found.reached)
    for one in draw.sample(found.reached, len(found.reached)):
        forms = [one.compared.in_form(form) for form in one.forms]
        fit_s -= plan.cases * max(1, len(forms)) * (COUNT_S + look_s)
        if fit_s >= 0 or not timed:
            timed += (one.compared, *forms)
        else:
            counted.append(replace(one.compared, timed=False))
    return timed + counted


def describe_reach(found: Reach, compared: Sequence[MechanismPair]) -> str:
    """What the change reaches, and what of that is timed."""
    names = [one.compared.head.name for one in found.reached]
    every = "all " if len(names) == found.known > 1 else ""
    text = f"the change reaches {every}{len(names)} of {many(found.known, 'mechanism')}"
    timed = list(dict.fromkeys(pair.head.name for pair in compared if pair.timed))
    if len(timed) == len(names):
        return f"{text}: {', '.join(names)}"
    return (
        f"{text}; all are counted in their default form, and as many as --budget allows, drawn at"
        f" random, timed and counted in every form: {', '.join(timed)}"
    )
