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
    planned,
)
from attnbench.commands.check.finding import CheckReport, reported, runs
from attnbench.commands.check.imports import Imports
from attnbench.commands.check.measuring import Looks, Runner
from attnbench.commands.check.origins import Origins, installed_copies
from attnbench.commands.check.prepare import prepared
from attnbench.commands.check.reach import Reach, chosen, file_of, reach
from attnbench.errors import UsageError
from attnbench.records import Outcome, Selection
from attnbench.records.selection import layers, stack_of
from attnbench.records.units import few

ON_BASE = Counted(outcome=Outcome.OK)  # it is there; it was not run
UNLOADED = Counted(
    outcome=MISSING,
    reason="no mechanism loads this; name one with --models, or a function with --call",
)


def against_revision(
    plan: CheckPlan,
    revision: str,
    asked: Sequence[Selection] | None,
    runner: Runner,
    folder: Path | None = None,
    functions: bool = False,
    tests: Collection[str] | None = None,
) -> CheckReport:
    """The working tree against a revision, checked out in a temporary folder.

    Where the revision is no ancestor, base is the merge base. What is `asked` are mechanisms, or
    `functions` without arguments. Without it, the mechanisms that the change reaches are checked,
    in every form that is not compiled by torch. Where the functions are of `tests`, these are the
    names of all tests that head has. Raises `UsageError` or `CannotRun`.
    """
    where = (folder or Path.cwd()).resolve()
    root = repository.root(where).resolve()
    base = repository.base(root, revision)
    names = None if asked is None else in_repository(asked, where, root)
    report = CheckReport(
        base=base.text,
        head=repository.describe(root),
        notes=base.notes,
        named=asked is not None,
    )
    with (
        runner.within(plan.budget_s),
        both_sides(plan, base.commit, root, where, runner) as (runner, origins),
    ):
        if names is None:
            changes = repository.changes(root, base.commit)
            found = reach(origins.trees, changes, runner, plan.device)
            report = replace(report, uncovered=found.uncovered)
            if not found.reached:
                return without_reach(report, found)
            names, note = chosen(found, plan, runner.server.left_s)
            report = replace(report, notes=(*report.notes, note))
        if functions:
            changes = repository.changes(root, base.commit)
            given = [one.name for one in names]
            paths = to_lay_over(given, origins.trees, below(where, root), changes)
            if tests is None:
                on_base, silent = functions_on_base(
                    given, paths, origins.trees, below(where, root), runner
                )
            else:
                known, silent = tests_on_base(origins.trees, runner)
                on_base = known - {*tests}
            laid = lay_over(paths, origins.trees)
            report = replace(report, notes=(*report.notes, *silent, *laid))
        looks = Looks(plan, runner, origins.trees, origins.apart)
        own = [CheckedCase(asked=one) for one in dict.fromkeys(names)] if functions else []
        looks.take(own or planned(plan, names))
        if functions:
            looks.cases = [*with_base(looks.cases, on_base)]
    report = replace(report, notes=(*report.notes, *origins.outside(looks.cases)))
    return located(reported(report, looks), root, below(where, root))


def with_base(cases: Sequence[CheckedCase], on_base: Collection[str]) -> Iterator[CheckedCase]:
    """The cases, with those that base has without head's files and head has no more."""
    for case in cases:
        if case.name in on_base and case.counted[HEAD].outcome == MISSING:
            case.counted[BASE] = ON_BASE
        yield case
    for name in sorted({*on_base} - {case.name for case in cases}):
        counted = {BASE: ON_BASE, HEAD: Counted(outcome=MISSING, reason="base alone has it")}
        yield CheckedCase(asked=Selection(name=name), counted=counted)


@contextmanager
def both_sides(
    plan: CheckPlan, commit: str, root: Path, where: Path, runner: Runner
) -> Iterator[tuple[Runner, Origins]]:
    """Check the commit out and prepare both trees.

    Yields a runner whose processes import from their own tree, and what is known of the trees.
    """
    with ExitStack() as stack:
        tree = stack.enter_context(repository.checkout(root, commit, plan.budget_s))
        trees = {BASE: tree, HEAD: root}
        lost = repository.write_submodules(root, commit, tree, plan.budget_s)
        sites = dict[Path, str]()
        if plan.prepare:
            repository.add_history(root, commit, tree)
            building = prepared(plan.prepare, trees, runner.left_s, runner.observe)
            sites = stack.enter_context(building)
        origins = Origins(
            trees=trees,
            copies=installed_copies(root),
            lost=lost,
            prepared=bool(plan.prepare),
            ours=(runner.server.folder, *map(Path, sites.values())),
        )
        imports = Imports(head=root, folder=below(where, root), sites=sites)
        yield replace(runner, imports=imports), origins


def below(folder: Path, root: Path) -> str:
    """A folder of the repository, relative to it; the repository's own if it lies elsewhere."""
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else ""


def without_reach(report: CheckReport, found: Reach) -> CheckReport:
    """The report on a change that reaches no mechanism."""
    if not found.uncovered or found.known:
        return report
    nothing = runs("none", few(found.uncovered), UNLOADED, UNLOADED)
    return replace(report, findings=(nothing,) if nothing else ())


def located(report: CheckReport, root: Path, folder: str = "") -> CheckReport:
    """The report with the file of each finding, of names that were given in a folder."""
    files = {name: file_of(name, root, folder) for name in {f.mechanism for f in report.findings}}
    findings = tuple(replace(f, file=files[f.mechanism]) for f in report.findings)
    return replace(report, findings=findings)


def in_repository(asked: Sequence[Selection], folder: Path, root: Path) -> list[Selection]:
    """The selections with paths relative to the repository. Raises `UsageError`."""
    return [replace(one, name=repository_name(one.name, folder, root)) for one in asked]


def repository_name(name: str, folder: Path, root: Path) -> str:
    """The name of a mechanism, with the path of a file made relative to the repository.

    Raises `UsageError` if the file, which will be run, is outside the repository.
    """
    if own := layers(name):
        return stack_of(replace(one, name=repository_name(one.name, folder, root)) for one in own)
    if ".py:" not in name or "::" in name:  # a test is named from the repository's top folder
        return name
    path, _, card = name.rpartition(":")
    try:
        whole = (folder / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"no file {path!r} for mechanism {name!r}") from error
    if not whole.is_relative_to(root.resolve()):
        raise UsageError(f"{path!r} is outside the repository {root}")
    return f"{whole.relative_to(root.resolve()).as_posix()}:{card}"
