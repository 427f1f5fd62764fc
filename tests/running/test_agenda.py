"""Who writes an agenda, and what it makes of the runs that it is sent."""

import ast
from dataclasses import fields, replace
from pathlib import Path

import pytest

from attnbench.records import Outcome, Part, Run
from attnbench.running import agenda as module
from attnbench.running.agenda import Agenda
from attnbench.running.foresee import dry_run
from attnbench.running.order import next_visit, visits
from tests.doubles.machine import Machine
from tests.running.sessions import GIB, PLAN, REQUEST, sweep

ROOT = Path(module.__file__).parents[1]
WRITERS = {"__post_init__", "begin", "take", "owe", "record", "_learn"}
CHANGING = {
    *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove"),
    *("setdefault", "update"),
}


def attributes():
    """The names of what an agenda holds."""
    agenda = Agenda(request=REQUEST, plan=PLAN, memory_bytes=GIB)
    return {field.name for field in fields(agenda)} | set(vars(agenda))


def path(node):
    """The names of which an expression of attributes, items and calls consists, in order."""
    names = []
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred, ast.Call)):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value
    return [getattr(node, "id", ""), *reversed(names)]


def written(tree):
    """Every expression that a piece of code assigns, deletes, or calls a changing method of."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.NamedExpr)):
            targets = [node.target]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in CHANGING:
            targets = [node.func.value]
        else:
            continue
        for target in targets:
            parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            yield from ((node.lineno, path(part)) for part in parts)


def writes(tree, holder):
    """The lines of a piece of code that write what an agenda of this name holds."""
    held = attributes()
    for line, names in written(tree):
        if holder in names and held & set(names[names.index(holder) + 1 :]):
            yield line


def foreign(source):
    """The lines of another file that write an agenda."""
    return [*writes(ast.parse(source), "agenda")]


def test_no_other_file_writes_an_agenda():
    files = [path for path in ROOT.rglob("*.py") if path != Path(module.__file__)]
    files = [path for path in files if "agenda" in path.read_text()]
    found = {str(path): lines for path in files if (lines := foreign(path.read_text()))}
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "agenda.round = 1",
        "agenda.over, agenda.round = 1, 2",
        "agenda.cut_short |= True",
        "del agenda.waiting[key]",
        "agenda.waiting |= more",
        "agenda.runs[key][0] = run",
        "agenda.runs[key].update(runs)",
        "agenda.weighed.add(key)",
        "self.agenda.round = 1",
        "for agenda.round in range(3): pass",
    ],
)
def test_whatever_writes_an_agenda_is_found(line):
    assert foreign(line)
    assert not foreign("agenda.record(cases, runs); cases = agenda.waiting; agenda = Agenda()")


def test_within_it_only_its_writers_do():
    (body,) = (
        node
        for node in ast.parse(Path(module.__file__).read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "Agenda"
    )
    writers = {
        function.name
        for function in body.body
        if isinstance(function, ast.FunctionDef) and any(writes(function, "self"))
    }
    assert writers <= WRITERS
    callers = {
        function.name
        for function in body.body
        if isinstance(function, ast.FunctionDef) and "self._learn(" in ast.unparse(function)
    }
    assert callers == {"__post_init__", "record"}


def agenda_of(**more):
    return Agenda(request=replace(REQUEST, **more), plan=PLAN, memory_bytes=GIB, clock=lambda: 0.0)


def test_a_visit_follows_from_what_ran_in_the_one_before():
    agenda = agenda_of(rounds=1)
    order = visits(agenda)
    visit = next(order)
    assert visit.part is Part.TIME
    assert len(visit.cases) == 2
    fast, slow = sorted(visit.cases, key=lambda planned: planned.case.mechanism)
    failed = Run(case=slow.case.key, part=Part.TIME, round=0, outcome=Outcome.OOM)
    visit = next_visit(order, [failed, dry_run(fast, visit.part, visit.round)])
    assert (visit.part, visit.cases) == (Part.MEMORY, (fast,)), "of what was timed"
    assert not agenda.timed_runs(slow)
    seen = []
    while visit is not None:
        seen += [planned.case.mechanism for planned in visit.cases]
        visit = next_visit(
            order, [dry_run(planned, visit.part, visit.round) for planned in visit.cases]
        )
    assert set(seen) == {"fast"}, "its memory ran out at a shorter length"
    assert not agenda.over_budget


def test_what_the_budget_cut_off_waits_again_in_the_first_round_alone():
    agenda = agenda_of(budget_s=100.0)
    order = visits(agenda)
    visit = next(order)
    agenda.take(visit.cases)
    assert not {planned.case.key for planned in visit.cases} & agenda.waiting.keys()
    agenda.record(visit.cases, [dry_run(visit.cases[0], visit.part, visit.round)])
    assert visit.cases[1].case.key in agenda.waiting
    assert visit.cases[0].case.key not in agenda.waiting
    assert agenda.over_budget
    again = agenda_of(budget_s=100.0)
    again.begin(1)
    again.take(visit.cases)
    again.record(visit.cases, ())
    assert not {planned.case.key for planned in visit.cases} & again.waiting.keys()
    assert again.cut_short


def test_a_run_that_is_not_recorded_changes_nothing():
    agenda = agenda_of()
    visit = next(visits(agenda))
    run = dry_run(visit.cases[0], visit.part, visit.round)
    assert agenda.with_earlier_laps(visit.cases[0], run) == run
    assert not any(agenda.runs.values())


@pytest.mark.parametrize(
    ("slower", "budget_s", "over"), [(1.0, 10.0, True), (6.0, 14.0, True), (1.0, 14.0, False)]
)
def test_what_a_later_round_leaves_out_is_over_budget(slower, budget_s, over):
    """It does not fit when the round begins; or it did, and the blocks before it took longer."""
    later = []
    machine = Machine(lambda case: 0.1 * (slower if later else 1.0))
    watch = {"observe": lambda progress: later.append(1) if progress.round else None}
    request = replace(REQUEST, rounds=2, precision=None, budget_s=budget_s)
    agenda = sweep(machine, request=request, watch=watch)
    assert machine.now - 50.0 < budget_s, "nothing was cut off"
    assert not agenda.waiting
    rounds = {len(agenda.timed_runs(planned)) for planned in PLAN}
    assert rounds == ({1, 2} if over else {2})
    assert agenda.over_budget == over
