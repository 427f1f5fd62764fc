"""A check of the working tree: against a revision, both raced, or against stored counts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.metadata import version
from itertools import chain
from pathlib import Path

from attnbench.catalogue.registry import names, unknown_name_message
from attnbench.errors import CannotRun, UsageError
from attnbench.gate import baseline, repository
from attnbench.gate.baseline import Baseline
from attnbench.gate.cases import (
    MISSING,
    CheckedCase,
    CheckPlan,
    Counted,
    MechanismPair,
    function_case,
    planned,
)
from attnbench.gate.finding import Finding, Report, counted, covered_by_nothing, reported
from attnbench.gate.measuring import CheckSession, Runner, crowding
from attnbench.gate.pairs import BASE, HEAD
from attnbench.gate.reach import LOAD_TIMEOUT_S, chosen, describe_reach, file_of, reach
from attnbench.metrics import COUNTED
from attnbench.records import Case, Outcome, Selection
from attnbench.records.selection import layers, stack_of
from attnbench.units import few


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
            if not found.known and found.uncovered:
                return replace(report, findings=(covered_by_nothing(found.uncovered),))
            report = replace(report, uncovered=found.uncovered)
            if not found.reached:
                return report
            if asked is None:
                left_s = runner.server.left_s / crowding()
                asked = chosen(found, plan, left_s, f"{plan.seed} {commit}")
            else:
                asked = [one.compared for one in found.reached]
            report = replace(report, notes=(describe_reach(found, asked),))
            runner.announce(report.notes[0])
        compared = tuple(expand_forms(asked, runner, root))
        race = CheckSession(plan, planned(plan, compared), runner, trees)
        race.race()
    return located(reported(report, race), root)


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
    return located(reported(report, race), root)


def located(report: Report, root: Path) -> Report:
    """The report with the file of each finding."""
    files = {name: file_of(name, root) for name in {f.mechanism for f in report.findings}}
    findings = tuple(replace(f, file=files[f.mechanism]) for f in report.findings)
    return replace(report, findings=findings)


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
        with runner.server.process(root) as worker:
            answer = worker.ask(LOAD_TIMEOUT_S, do="forms", mechanism=name)
        known = tuple(answer.get("forms", ()))
        forms = [form for form in known if fnmatchcase(form, pattern)]
        if known and not forms:
            raise UsageError(unknown_name_message(pattern, known, f"form of {name}"))
        yield from (mechanism.in_form(form, further=False) for form in forms or [None])


def save_baseline(
    plan: CheckPlan, path: Path, selections: Sequence[Selection], runner: Runner, ours: str
) -> tuple[int, list[str]]:
    """Write the counts of the working tree to a file; `ours` is the version of this package.

    Returns the number of its cases, and what is left out with the reasons. Raises `UsageError`,
    `StoreError`, or `CannotRun` if there is nothing to write.
    """
    root = repository.top(Path.cwd())
    with runner.within(plan.budget_s):
        compared = tuple(expand_forms(compared_selections(selections, root), runner, root))
        cases = planned(plan, compared)
        CheckSession(plan, cases, runner, {HEAD: root}).count()
    left_out = [f"{case.label}: {case.counted[HEAD].reason}" for case in cases if not case.ran]
    counts = {case.label: case.counted[HEAD].values for case in cases if case.ran}
    if not counts:
        raise CannotRun(f"no case ran that could be saved; {few(left_out, 1)}")
    kept = {
        label: {key: values[key] for key in COUNTED if key in values}
        for label, values in counts.items()
    }
    baseline.save(Baseline(attnbench=ours, torch=version("torch"), cases=kept), path)
    return len(kept), left_out


def against_file(
    plan: CheckPlan, path: Path, selections: Sequence[Selection] | None, runner: Runner
) -> Report:
    """The counts of the working tree against those in a file, case by case.

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
        CheckSession(plan, cases, runner, {HEAD: root}).count()
    report = Report(
        base=str(path),
        head="the working tree",
        findings=tuple(chain.from_iterable(findings(case, kept) for case in cases)),
        notes=tuple(notes(kept, root, every=selections is None)),
    )
    return located(report, root)


def notes(kept: Baseline, root: Path, *, every: bool) -> Iterator[str]:
    """What a reader should know; `every`: no mechanism of the file was left out."""
    if kept.torch != (here := version("torch")):
        yield (
            f"the baseline was saved with torch {kept.torch}, this is {here}:"
            " operators and bytes may differ for this reason alone"
        )
    known = {Case.read(label).mechanism for label in kept.cases}
    new = [name for name in names() if name not in known and file_of(name, root)]
    if every and new:
        yield f"not in the baseline: {few(new)}; --save, which rewrites the whole file, adds them"


def stored_cases(
    kept: Baseline, selections: Sequence[Selection] | None, root: Path
) -> Iterator[CheckedCase]:
    """The cases of a baseline, as it counted them."""
    asked = [side.head for side in compared_selections(selections or (), root)]
    for case in map(Case.read, kept.cases):
        if selections is None or any(means(selection, case) for selection in asked):
            name = repository_name(case.mechanism, root, root)
            selection = Selection(name=name, form=case.form, options=case.options)
            compared = MechanismPair(base=selection, head=selection)
            yield CheckedCase(compared=compared, workload=case.workload)


def means(selection: Selection, case: Case) -> bool:
    """Whether a selection matches a stored case; what it does not name matches anything."""
    return (
        selection.name == case.mechanism
        and fnmatchcase(case.form, selection.form or "*")
        and set(selection.options) <= set(case.options)
    )


def findings(case: CheckedCase, kept: Baseline) -> Iterator[Finding]:
    """The counts of a case compared with the stored ones."""
    stored = kept.cases.get(case.label)
    base = Counted(outcome=MISSING, reason="it is not in the baseline")
    if stored is not None:
        base = Counted(outcome=Outcome.OK, values=stored)
    yield from counted(case, base, case.counted[HEAD])
