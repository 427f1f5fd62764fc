"""A check of the working tree: against a revision, both raced, or against a stored baseline.

A baseline gives counts on any machine, times only on the one that saved them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

import numpy as np

from attnbench.catalogue.registry import names, unknown_name_message
from attnbench.errors import CannotRun, UsageError
from attnbench.gate import repository
from attnbench.gate.cases import (
    MISSING,
    CheckedCase,
    CheckPlan,
    Counted,
    MechanismPair,
    function_case,
    planned,
)
from attnbench.gate.finding import (
    Conditions,
    Finding,
    Report,
    broken,
    counted,
    covered_by_nothing,
    reported,
)
from attnbench.gate.measuring import CheckSession, Runner
from attnbench.gate.reach import LOAD_TIMEOUT_S, chosen, describe_reach, reach
from attnbench.gate.rule import LEVEL
from attnbench.metrics import COUNTED, TIME
from attnbench.records import Case, Fingerprint, Outcome, Selection
from attnbench.records.selection import layers, stack_of
from attnbench.run.pairs import BASE, HEAD
from attnbench.statistics.estimate import student_quantile
from attnbench.statistics.verdict import Verdict, judge
from attnbench.store import baseline, selftest
from attnbench.store.baseline import Baseline, StoredCase, Timing
from attnbench.units import few

NO_SELFTEST = "unknown, since no selftest was run on this machine; run attnbench selftest"

PAIRS = 3  # processes per stored case: a stored time is a hint, not a gate
# without a change, medians of one machine on different days differ by less than this
BETWEEN_DAYS = 0.10


def against_revision(
    plan: CheckPlan,
    revision: str,
    selections: Sequence[Selection] | None,
    runner: Runner,
    *,
    only_changed: bool = False,
    folder: Path | None = None,
) -> Report:
    """The working tree against a revision, checked out in a temporary worktree.

    Without selections, or with `only_changed`, the mechanisms that the change reaches are checked,
    in every form that is not compiled by torch. Raises `UsageError` or `CannotRun`.
    """
    root, commit, report = _begun(revision, folder)
    changes = repository.changes(root, commit)
    asked = None if selections is None else compared_selections(selections, root)
    with runner.within(plan.budget_s), repository.worktree(root, commit, plan.budget_s) as tree:
        trees = {BASE: tree, HEAD: root}
        if asked is None or only_changed:
            found = reach(trees, changes, runner, plan.device, asked)
            report = replace(report, uncovered=found.uncovered)
            if not found.known and found.uncovered:
                return replace(report, findings=(covered_by_nothing(found.uncovered),))
            if not found.reached:
                return report
            if asked is None:
                asked = chosen(found, plan, runner.server.left_s, f"{plan.seed} {commit}")
            else:
                asked = [one.compared for one in found.reached]
            report = replace(report, notes=(describe_reach(found, asked),))
            runner.announce(report.notes[0])
        compared = tuple(expand_forms(asked, runner, root))
        # read before the race, which may use up the budget
        quoted = selftest.sentence(runner.machine()) or NO_SELFTEST if plan.times else ""
        race = CheckSession(plan, planned(plan, compared), runner, trees)
        race.race()
    return reported(report, race, quoted)


def check_functions(
    plan: CheckPlan, revision: str, names: Sequence[str], runner: Runner, folder: Path | None = None
) -> Report:
    """Functions of the working tree against a revision. Raises `UsageError` or `CannotRun`."""
    root, commit, report = _begun(revision, folder)
    with runner.within(plan.budget_s), repository.worktree(root, commit, plan.budget_s) as tree:
        cases: list[CheckedCase] = [
            function_case(repository_name(name, folder or Path.cwd(), root))
            for name in dict.fromkeys(names)
        ]
        race = CheckSession(plan, cases, runner, {BASE: tree, HEAD: root})
        race.race()
    return reported(report, race, "")


def _begun(revision: str, folder: Path | None) -> tuple[Path, str, Report]:
    """The repository, the commit of the revision, and the report to fill."""
    root = repository.root(folder or Path.cwd())
    commit = repository.commit(root, revision)
    base = f"{revision} ({commit[:10]})"
    return root, commit, Report(base=base, head=repository.describe(root), findings=())


def compared_selections(selections: Sequence[Selection], root: Path) -> list[MechanismPair]:
    """Each selection for both sides, with paths relative to the repository. Raises `UsageError`."""
    sides = (replace(s, name=repository_name(s.name, Path.cwd(), root)) for s in selections)
    return [MechanismPair(base=side, head=side) for side in sides]


def repository_name(name: str, folder: Path, root: Path) -> str:
    """The name of a mechanism, with the path of a file made relative to the repository.

    Raises `UsageError` if the file, which will be run, is outside the repository.
    """
    if own := layers(name):
        return stack_of(replace(one, name=repository_name(one.name, folder, root)) for one in own)
    if ".py:" not in name:
        return name
    path, _, card = name.rpartition(":")
    try:
        whole = (folder / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"no file {path!r} for mechanism {name!r}") from error
    if not whole.is_relative_to(root.resolve()):
        raise UsageError(f"{path!r} is outside the repository {root}")
    return f"{whole.relative_to(root.resolve()).as_posix()}:{card}"


def expand_forms(
    compared: Sequence[MechanismPair], runner: Runner, root: Path
) -> Iterator[MechanismPair]:
    """Patterns of forms expanded to those of the working tree.

    A mechanism without forms stays, so that the report says why. Raises `UsageError` if no form
    matches.
    """
    for mechanism in compared:
        pattern = mechanism.head.form or ""
        if not set("*?") & set(pattern):
            yield mechanism
            continue
        name = mechanism.head.name
        with runner.server.worker(root) as worker:
            answer = worker.ask(LOAD_TIMEOUT_S, do="forms", mechanism=name)
        known = tuple(answer.get("forms", ()))
        forms = [form for form in known if fnmatchcase(form, pattern)]
        if known and not forms:
            raise UsageError(unknown_name_message(pattern, known, f"form of {name}"))
        yield from (mechanism.in_form(form, further=False) for form in forms or [None])


def save_baseline(
    plan: CheckPlan, path: Path, selections: Sequence[Selection], runner: Runner, version: str
) -> tuple[int, list[str]]:
    """Write a baseline of the working tree.

    Returns the number of its cases, and what is left out with the reasons. Raises `UsageError`,
    `StoreError`, or `CannotRun` if there is nothing to write.
    """
    root = repository.top(Path.cwd())
    with runner.within(plan.budget_s):
        machine = runner.machine()
        compared = tuple(expand_forms(compared_selections(selections, root), runner, root))
        cases = planned(plan, compared)
        measure(CheckSession(plan, cases, runner, {HEAD: root}), plan.times)
    entries = {case.label: entry(case) for case in cases if case.ran}
    left_out = [f"{case.label}: {case.counted[HEAD].reason}" for case in cases if not case.ran]
    if not entries:
        raise CannotRun(f"no case ran that could be saved; {few(left_out, 1)}")
    left_out += [f"time of {case.label}: {case.failed}" for case in cases if case.failed]
    baseline.save(Baseline(attnbench=version, machine=machine, cases=entries), path)
    return len(entries), [*left_out, *untimed(cases)]


def against_file(
    plan: CheckPlan, path: Path, selections: Sequence[Selection] | None, runner: Runner
) -> Report:
    """The working tree against a stored baseline, case by case.

    Raises `UsageError` if the file holds no case of the selections, `CannotRun` or `StoreError`.
    """
    kept = baseline.load(path)
    root = repository.top(Path.cwd())
    cases = list(stored_cases(kept, selections, root))
    if not cases:
        known = dict.fromkeys(Case.read(label).mechanism for label in kept.cases)
        raise UsageError(f"'{path}' has no case of --models; it has {few(known) or 'none at all'}")
    if {plan.device} != (devices := {case.workload.device for case in cases}):
        saved = " and ".join(sorted(devices))
        raise CannotRun(f"'{path}' was saved with --device {saved}, this is {plan.device}")
    with runner.within(plan.budget_s):
        machine = runner.machine()
        other_machine = kept.machine.differences(machine)
        measure(CheckSession(plan, cases, runner, {HEAD: root}), plan.times and not other_machine)
    return Report(
        base=str(path),
        head="the working tree",
        findings=(*chain.from_iterable(findings(case, kept) for case in cases), *broken(cases)),
        notes=(*notes(plan, kept, machine, every=selections is None), *untimed(cases)),
        conditions=Conditions(plan=plan, other_machine=other_machine),
    )


def notes(plan: CheckPlan, kept: Baseline, machine: Fingerprint, *, every: bool) -> Iterator[str]:
    """What a reader should know; `every`: no mechanism of the file was left out."""
    differences = kept.machine.differences(machine)
    if plan.times and differences and any(entry.time for entry in kept.cases.values()):
        yield f"times are not compared: {'; '.join(differences)}"
    if kept.machine.torch != machine.torch:
        yield (
            f"the baseline was saved with torch {kept.machine.torch}, this is {machine.torch}:"
            " operators and bytes may differ for this reason alone"
        )
    known = {Case.read(label).mechanism for label in kept.cases}
    if every and (new := [name for name in names() if name not in known]):
        yield f"not in the baseline: {few(new)}; --save, which rewrites the whole file, adds them"


def measure(race: CheckSession, times: bool) -> None:
    """Count every case on head, and time those to be timed in a few processes."""
    race.count()
    ran = [case for case in race.cases if case.ran and case.compared.timed]
    if times and ran:
        race.size(ran)
        race.plan = replace(race.plan, pairs=PAIRS)
        race.stage(ran, 0)


def untimed(cases: Sequence[CheckedCase]) -> list[str]:
    """A line naming the cases that the budget left untimed, if there are any."""
    without = [case for case in cases if case.skipped and not case.numbers(HEAD)]
    texts = few([case.label for case in without])
    return [f"times of {texts}: over budget: {without[0].skipped}"] if without else []


def stored_cases(
    kept: Baseline, selections: Sequence[Selection] | None, root: Path
) -> Iterator[CheckedCase]:
    """The cases of a baseline, as it counted them, at their stored batches."""
    asked = [side.head for side in compared_selections(selections or (), root)]
    for label, stored in kept.cases.items():
        case = Case.read(label)
        if selections is None or any(means(selection, case) for selection in asked):
            name = repository_name(case.mechanism, root, root)
            selection = Selection(name=name, form=case.form, options=case.options)
            compared = MechanismPair(base=selection, head=selection, timed=stored.time is not None)
            batch = stored.time.batch if stored.time else None
            yield CheckedCase(compared=compared, workload=case.workload, batch=batch)


def means(selection: Selection, case: Case) -> bool:
    """Whether a selection matches a stored case; what it does not name matches anything."""
    return (
        selection.name == case.mechanism
        and fnmatchcase(case.form, selection.form or "*")
        and set(selection.options) <= set(case.options)
    )


def entry(case: CheckedCase) -> StoredCase:
    """What the baseline keeps of a case."""
    seconds, values = case.numbers(HEAD), case.counted[HEAD].values
    return StoredCase(
        counts={key: values[key] for key in COUNTED if key in values},
        time=Timing(batch=case.batch, seconds=seconds) if case.batch and seconds else None,
    )


def findings(case: CheckedCase, kept: Baseline) -> Iterator[Finding]:
    """The counts and times of a case compared with the stored ones."""
    stored, head = kept.cases.get(case.label), case.counted[HEAD]
    base = Counted(outcome=MISSING, reason="it is not in the baseline")
    if stored:
        base = Counted(outcome=Outcome.OK, values=stored.counts)
    yield from counted(case, base, head)
    seconds = case.numbers(HEAD)
    if stored and stored.time and seconds:
        finding = stored_time_finding(case.name, case.label, stored.time.seconds, seconds)
        yield replace(finding, batch=case.batch)


def stored_time_finding(
    mechanism: str, case: str, before: Sequence[float], now: Sequence[float]
) -> Finding:
    """The finding on seconds per process, stored and now; at worst `unsure`, it never fails.

    No interval covers changes of the machine between days: a check of a revision is needed.
    """
    a, b = np.log(before), np.log(now)
    point, df, half = float(b.mean() - a.mean()), len(a) + len(b) - 2, math.nan
    if df:
        variance = (len(a) * a.var() + len(b) * b.var()) / df
        half = student_quantile(LEVEL, df) * math.sqrt(variance * (1 / len(a) + 1 / len(b)))
    low, high = point - half, point + half
    verdict = judge(point, low, high, called=False, threshold=BETWEEN_DAYS)
    unsure = verdict is Verdict.UNSURE
    return Finding(
        mechanism=mechanism,
        case=case,
        metric=TIME,
        base=math.exp(a.mean()),
        head=math.exp(b.mean()),
        ratio=math.exp(point),
        low=math.exp(low) if df else None,
        high=math.exp(high) if df else None,
        verdict=verdict,
        reason="stored earlier; --base measures both sides in turns" if unsure else "",
    )
