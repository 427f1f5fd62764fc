"""A check of the working tree against a revision: mechanisms, or any functions."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnbench.errors import UsageError
from attnbench.gate import repository
from attnbench.gate.cases import BASE, HEAD, MISSING, CheckedCase, CheckPlan, Counted, planned
from attnbench.gate.finding import Report, reported, runs
from attnbench.gate.measuring import Looks, Runner
from attnbench.gate.reach import chosen, file_of, reach
from attnbench.records import Selection
from attnbench.records.selection import layers, stack_of
from attnbench.units import few

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
) -> Report:
    """The working tree against a revision, checked out in a temporary folder.

    What is `asked` are mechanisms, or `functions` without arguments. Without it, the mechanisms
    that the change reaches are checked, in every form that is not compiled by torch. Raises
    `UsageError` or `CannotRun`.
    """
    where = folder or Path.cwd()
    root = repository.root(where)
    commit = repository.commit(root, revision)
    report = Report(base=f"{revision} ({commit[:10]})", head=repository.describe(root))
    with runner.within(plan.budget_s), repository.checkout(root, commit, plan.budget_s) as tree:
        trees = {BASE: tree, HEAD: root}
        if asked is None:
            found = reach(trees, repository.changes(root, commit), runner, plan.device)
            report = replace(report, uncovered=found.uncovered)
            if not found.reached:
                lost = found.uncovered and not found.known
                nothing = runs("none", few(found.uncovered), UNLOADED, UNLOADED)
                return replace(report, findings=(nothing,) if lost and nothing else ())
            asked, note = chosen(found, plan, runner.server.left_s)
            report = replace(report, notes=(note,))
        else:
            asked = in_repository(asked, where, root)
        looks = Looks(plan, runner, trees)
        own = [CheckedCase(asked=one) for one in dict.fromkeys(asked)] if functions else []
        looks.take(own or planned(plan, asked))
    return located(reported(report, looks), root)


def located(report: Report, root: Path) -> Report:
    """The report with the file of each finding."""
    files = {name: file_of(name, root) for name in {f.mechanism for f in report.findings}}
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
