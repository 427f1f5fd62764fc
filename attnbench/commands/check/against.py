"""A check of the working tree against a revision: mechanisms, or any functions."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from attnbench.commands.check import repository
from attnbench.commands.check.benchmarks import (
    functions_on_base,
    lay_over,
    tests_on_base,
    to_lay_over,
)
from attnbench.commands.check.cases import (
    BASE,
    HEAD,
    MISSING,
    CheckedCase,
    CheckPlan,
    Counted,
    Trees,
    planned_cases,
)
from attnbench.commands.check.finding import CheckReport, run_finding, with_results
from attnbench.commands.check.imports import Imports
from attnbench.commands.check.measuring import Looks, Runner
from attnbench.commands.check.origins import Origins, installed_copies
from attnbench.commands.check.prepare import prepare
from attnbench.commands.check.reach import Reach, chosen_selections, file_of, reach
from attnbench.errors import UsageError
from attnbench.records import Outcome, Selection, selection, units

ON_BASE = Counted(outcome=Outcome.OK)  # it is there; it was not run
UNLOADED = Counted(
    outcome=MISSING,
    reason="no mechanism loads this; name one with --models, or a function with --call",
)


def against_revision(
    plan: CheckPlan,
    revision: str,
    selections: Sequence[Selection] | None,
    runner: Runner,
    folder: Path | None = None,
    functions: bool = False,
    tests: Collection[str] | None = None,
) -> CheckReport:
    """The working tree against a revision, checked out in a temporary folder.

    Where the revision is no ancestor, base is the merge base. Raises `UsageError` or `CannotRun`.

    plan: what is measured of each case.
    revision: a branch, tag or commit.
    selections: mechanisms, or functions without arguments; without them, the mechanisms that the
        change reaches are checked, in every form that is not compiled by torch.
    runner: of the measuring processes.
    folder: of the repository, to which paths are relative; by default the current one.
    functions: whether functions are selected, and no mechanisms.
    tests: the names of all tests that head has, where the functions are tests.
    """
    where = (folder or Path.cwd()).resolve()
    root = repository.root(where).resolve()
    base = repository.base(root, revision)
    names = None if selections is None else in_repository(selections, where, root)
    report = CheckReport(
        base=base.text,
        head=repository.tree_text(root),
        notes=base.notes,
        named=selections is not None,
    )
    with (
        runner.within(plan.budget_s),
        prepared_sides(plan, base.commit, root, where, runner) as (runner, origins),
    ):
        if names is None:
            changes = repository.changes(root, base.commit)
            extent = reach(origins.trees, changes, runner, plan.device)
            report = replace(report, uncovered=extent.uncovered)
            if not extent.reached:
                return report_without_reach(report, extent)
            names, note = chosen_selections(extent, plan, runner.server.left_s)
            report = replace(report, notes=(*report.notes, note))
        if functions:
            changes = repository.changes(root, base.commit)
            functions_named = [one.name for one in names]
            on_base, notes = overlay_functions(
                functions_named, changes, origins.trees, relative_folder(where, root), runner, tests
            )
            report = replace(report, notes=(*report.notes, *notes))
        looks = Looks(plan, runner, origins.trees, origins.reason_apart)
        function_cases = (
            [CheckedCase(selection=one) for one in dict.fromkeys(names)] if functions else []
        )
        looks.take(function_cases or planned_cases(plan, names))
        if functions:
            looks.cases = [*with_base_cases(looks.cases, on_base)]
    report = replace(report, notes=(*report.notes, *origins.outside_code(looks.cases)))
    return with_files(with_results(report, looks), root, relative_folder(where, root))


def overlay_functions(
    names: Sequence[str],
    changes: Sequence[str],
    trees: Trees,
    folder: str,
    runner: Runner,
    tests: Collection[str] | None,
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Lay head's files of functions over base's: what base alone has of them, and notes on that.

    names: of the functions.
    changes: paths of files that differ, relative to the repository.
    trees: of both sides.
    folder: where the names were given, relative to the repository.
    runner: of the measuring processes.
    tests: the names of all tests that head has, where the functions are tests.
    """
    paths = to_lay_over(names, trees, folder, changes)
    if tests is None:
        on_base, silent = functions_on_base(names, paths, trees, folder, runner)
    else:
        base_tests, silent = tests_on_base(trees, runner)
        on_base = base_tests - {*tests}
    return on_base, (*silent, *lay_over(paths, trees))


def with_base_cases(
    cases: Sequence[CheckedCase], on_base: Collection[str]
) -> Iterator[CheckedCase]:
    """The cases, with those that base has without head's files and head has no more."""
    for case in cases:
        if case.name in on_base and case.counted[HEAD].outcome == MISSING:
            case.counted[BASE] = ON_BASE
        yield case
    for name in sorted({*on_base} - {case.name for case in cases}):
        counted = {BASE: ON_BASE, HEAD: Counted(outcome=MISSING, reason="base alone has it")}
        yield CheckedCase(selection=Selection(name=name), counted=counted)


@contextmanager
def prepared_sides(
    plan: CheckPlan, commit: str, root: Path, where: Path, runner: Runner
) -> Iterator[tuple[Runner, Origins]]:
    """Check the commit out and prepare both trees.

    Yields a runner whose processes import from their own tree, and what is known of the trees.

    plan: with the command that prepares a tree, and the budget.
    commit: of base.
    root: of the repository.
    where: the folder to which paths are relative.
    runner: of the measuring processes.
    """
    with ExitStack() as stack:
        tree = stack.enter_context(repository.checkout(root, commit, plan.budget_s))
        trees = {BASE: tree, HEAD: root}
        lost_submodules = repository.write_submodules(root, commit, tree, plan.budget_s)
        sites = dict[Path, str]()
        if plan.prepare:
            repository.add_history(root, commit, tree)
            building = prepare(plan.prepare, trees, runner.left_s, runner.observe)
            sites = stack.enter_context(building)
        origins = Origins(
            trees=trees,
            copies=installed_copies(root),
            lost=lost_submodules,
            prepared=bool(plan.prepare),
            ours=(runner.server.folder, *map(Path, sites.values())),
        )
        imports = Imports(head=root, folder=relative_folder(where, root), sites=sites)
        yield replace(runner, imports=imports, watched=tuple(sorted(origins.copies))), origins


def relative_folder(folder: Path, root: Path) -> str:
    """A folder of the repository, relative to it; the repository's own if it lies elsewhere."""
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else ""


def report_without_reach(report: CheckReport, extent: Reach) -> CheckReport:
    """The report on a change that reaches no mechanism."""
    if not extent.uncovered or extent.considered:
        return report
    nothing = run_finding("none", units.few(extent.uncovered), UNLOADED, UNLOADED)
    return replace(report, findings=(nothing,) if nothing else ())


def with_files(report: CheckReport, root: Path, folder: str = "") -> CheckReport:
    """The report with the file of each finding, of names that were given in a folder."""
    files = {name: file_of(name, root, folder) for name in {f.mechanism for f in report.findings}}
    findings = tuple(replace(f, file=files[f.mechanism]) for f in report.findings)
    return replace(report, findings=findings)


def in_repository(selections: Sequence[Selection], folder: Path, root: Path) -> list[Selection]:
    """The selections with paths relative to the repository. Raises `UsageError`."""
    return [replace(one, name=repository_name(one.name, folder, root)) for one in selections]


def repository_name(name: str, folder: Path, root: Path) -> str:
    """The name of a mechanism, with the path of a file made relative to the repository.

    Raises `UsageError` if the file, which will be run, is outside the repository.
    """
    if layers := selection.layers(name):
        return selection.stack_of(
            replace(one, name=repository_name(one.name, folder, root)) for one in layers
        )
    if ".py:" not in name or "::" in name:  # a test is named from the repository's top folder
        return name
    path, _, card = name.rpartition(":")
    try:
        file = (folder / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"no file {path!r} for mechanism {name!r}") from error
    if not file.is_relative_to(root.resolve()):
        raise UsageError(f"{path!r} is outside the repository {root}")
    return f"{file.relative_to(root.resolve()).as_posix()}:{card}"
