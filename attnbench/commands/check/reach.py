"""The mechanisms that a change reaches: those for which a process loads a file that differs.

A fresh process of each tree is asked which files it has loaded for one mechanism, since it says
nothing of what an earlier one has loaded already. A mechanism is also reached where only one side
can load it.
"""

import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path, PurePath

from attnbench.commands.check.cases import BASE, HEAD, MISSING, CheckPlan, Trees
from attnbench.commands.check.imports import places
from attnbench.commands.check.measuring import Runner
from attnbench.commands.check.repository import files_with
from attnbench.mechanisms import catalogue
from attnbench.records import Outcome, Selection, messages, units

LOAD_TIMEOUT_S = 60.0
OWN = PurePath("attnbench/mechanisms")
# all loaded for every mechanism; each is for forms of packages
PEERS = "attnbench/mechanisms/peers/"
BINDING = re.compile(r"^(\w+)\b[^=\n]*=[ \w.]*\bCard\(", re.MULTILINE)  # `NAME = Card(`
COUNT_S = 0.5  # about the time to count a case on both sides


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What a change reaches, of `considered` mechanisms; no mechanism loads the `uncovered` files.

    `reached` has the forms of each that head computes, except those that torch would compile.
    """

    reached: Mapping[str, Sequence[str]] = field(default_factory=dict)
    considered: int = 0
    uncovered: tuple[str, ...] = ()


def reach(trees: Trees, changes: Sequence[str], runner: Runner, device: str) -> Reach:
    """What a change reaches of all mechanisms that the trees contain.

    trees: of both sides.
    changes: paths of files that differ, relative to the repository.
    runner: of the measuring processes.
    device: for which mechanisms are loaded.
    Raises `CannotRun` and `OverBudget`.
    """
    reached = dict[str, Sequence[str]]()
    covered = dict[str, set[str]]()
    names = (
        {name for tree in trees.values() for name in mechanism_names(tree)} if changes else set()
    )
    for name in sorted(names):
        runner.observe(f"asking what {name} loads")
        question = messages.Loads(mechanism=name, device=device)
        answers = dict[str, messages.LoadedForms | messages.Failure]()
        for side, tree in trees.items():
            with runner.loaded_process(side, tree) as worker:
                answers[side] = worker.ask(question, LOAD_TIMEOUT_S)
        base = answers[BASE]
        head = answers[HEAD]
        if outcome(base) == outcome(head) == MISSING:
            continue  # some text only looks like a card
        files = {name.rpartition(":")[0]}
        for answer in (base, head):
            files |= {*answer.files}
        covered[name] = {file for file in files if not file.startswith(PEERS)}
        if outcome(base) != outcome(head) or covered[name] & {*changes}:
            reached[name] = () if isinstance(head, messages.Failure) else head.forms
    code = {path for path in changes if path.endswith(".py")}.difference(*covered.values())
    return Reach(reached=reached, considered=len(covered), uncovered=tuple(sorted(code)))


def outcome(answer: messages.LoadedForms | messages.Failure) -> str:
    """How a process ended that was asked what it loads."""
    return answer.outcome if isinstance(answer, messages.Failure) else Outcome.OK


def mechanism_names(tree: Path) -> Iterator[str]:
    """The names of all mechanisms whose `NAME = Card(…)` stands in a file of the tree."""
    for path in files_with(tree, "Card("):
        text = (tree / path).read_text(encoding="utf-8", errors="replace")
        yield from (mechanism_name(path, card) for card in BINDING.findall(text))


def mechanism_name(path: str, card: str) -> str:
    """The name that `--models` takes: a mechanism of attnbench, or `path.py:NAME`."""
    built_in = PurePath(path).parent == OWN and card == "CARD"
    return PurePath(path).stem if built_in else f"{path}:{card}"


def file_of(name: str, root: Path, folder: str = "") -> str:
    """The file of the repository that holds a mechanism, function or test; empty if there is none.

    `folder`, relative to the repository, is where the name was given.
    """
    test, is_test, _ = name.partition("::")
    place = test if is_test else name.rpartition(":")[0]
    offered = [point.module for point in entry_points(group=catalogue.ENTRY_POINTS, name=name)]
    module = place or next(iter(offered), f"attnbench.mechanisms.{name}")
    if place.endswith(".py"):
        paths = [place]
    else:
        inner = module.replace(".", "/")
        folders = places(root, folder)
        ends = (".py", "/__init__.py")
        paths = [PurePath(top, inner + end).as_posix() for top in folders for end in ends]
    return next((path for path in paths if os.path.isfile(root / path)), "")


def chosen_selections(extent: Reach, plan: CheckPlan, left_s: float) -> tuple[list[Selection], str]:
    """What to check of what is reached, in random order, and that in words.

    Every form of each mechanism, or its default form where `left_s` is not enough for all.
    """
    names = random.Random(0).sample(sorted(extent.reached), len(extent.reached))
    forms = [Selection(name=n, form=form) for n in names for form in (None, *extent.reached[n])]
    case_s = COUNT_S + (plan.looks[0] * plan.visit_s if plan.times else 0.0)
    every = "all " if len(names) == extent.considered > 1 else ""
    text = f"the change reaches {every}{len(names)} of {units.many(extent.considered, 'mechanism')}"
    text += f": {units.few(sorted(names))}"
    if len(forms) * len(plan.modes) * len(plan.lengths) * case_s <= left_s:
        return forms, text
    text += "; their default forms are checked, since --budget is not enough for every form"
    return [Selection(name=name) for name in names], text
