"""A small file with a check's counts, to be committed and read in a diff, and a check against it.

    {"attnbench": …, "cases": {"fastformer:eager/B8-N128-…": {"flops": …, …}}, "schema": 2,
     "torch": …}

Sorted, one number per line; the same numbers give the same bytes. It is data: loading parses
JSON, checks every field, and runs nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path

from msgspec import json

from attnbench.errors import CannotRun, StoreError, UsageError
from attnbench.gate import repository
from attnbench.gate.cases import HEAD, MISSING, CheckedCase, CheckPlan, Counted, planned
from attnbench.gate.check import in_repository, located, repository_name
from attnbench.gate.finding import Finding, Report, counted
from attnbench.gate.measuring import Runner, count
from attnbench.metrics import COUNTED
from attnbench.records import Amount, Case, Outcome, Selection, Work
from attnbench.store import output
from attnbench.units import few

SCHEMA = 2


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A whole file: the counts of each case by its label, and the versions that gave them."""

    attnbench: str
    torch: str
    cases: Mapping[str, Mapping[str, Work | Amount]]
    schema: int = SCHEMA


def save(baseline: Baseline, path: Path) -> None:
    """Write the file atomically. Raises `StoreError`."""
    output.write(path, dump(baseline))


def dump(baseline: Baseline) -> bytes:
    """The file's content."""
    return json.format(json.encode(baseline, order="sorted"), indent=1) + b"\n"


def load(path: Path) -> Baseline:
    """The baseline in a file. Raises `StoreError` that says what is wrong."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read the baseline {str(path)!r}: {error.strerror}") from error
    return parse(content, str(path))


def parse(content: bytes, name: str = "baseline") -> Baseline:
    """The baseline in the content of a file. Raises `StoreError`."""
    try:
        found = json.decode(content, type=Baseline)
        if found.schema != SCHEMA:
            raise ValueError(f"has schema {found.schema}, and this attnbench reads {SCHEMA}")
        for label in found.cases:
            Case.read(label)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{name} is not a baseline: {error}; make one with --save") from error
    return found


def save_baseline(
    plan: CheckPlan, path: Path, selections: Sequence[Selection], runner: Runner, ours: str
) -> tuple[int, list[str]]:
    """Write the counts of the working tree to a file; `ours` is the version of this package.

    Returns the number of its cases, and what is left out with the reasons. Raises `UsageError`,
    `StoreError`, or `CannotRun` if there is nothing to write.
    """
    root = repository.top(Path.cwd())
    with runner.within(plan.budget_s):
        cases = planned(plan, in_repository(selections, root))
        count(cases, runner, {HEAD: root})
    left_out = [f"{case.label}: {case.counted[HEAD].reason}" for case in cases if not case.ran]
    counts = {case.label: case.counted[HEAD].values for case in cases if case.ran}
    if not counts:
        raise CannotRun(f"no case ran that could be saved; {few(left_out, 1)}")
    kept = {
        label: {key: values[key] for key in COUNTED if key in values}
        for label, values in counts.items()
    }
    save(Baseline(attnbench=ours, torch=version("torch"), cases=kept), path)
    return len(kept), left_out


def against_file(plan: CheckPlan, path: Path, runner: Runner) -> Report:
    """The counts of the working tree against those in a file, case by case.

    Raises `UsageError` if the file holds no case, `CannotRun` or `StoreError`.
    """
    kept, root = load(path), repository.top(Path.cwd())
    if not (cases := [*stored_cases(kept, root)]):
        raise UsageError(f"'{path}' has no case")
    with runner.within(plan.budget_s):
        count(cases, runner, {HEAD: root})
    findings = chain.from_iterable(compared(case, kept) for case in cases)
    report = Report(base=str(path), head="the working tree", findings=tuple(findings))
    if kept.torch != (here := version("torch")):
        why = "operators and bytes may differ for this reason alone"
        note = f"the baseline was saved with torch {kept.torch}, this is {here}: {why}"
        report = replace(report, notes=(note,))
    return located(report, root)


def stored_cases(kept: Baseline, root: Path) -> Iterator[CheckedCase]:
    """The cases of a baseline, as it counted them. Raises `UsageError`."""
    for case in map(Case.read, kept.cases):
        name = repository_name(case.mechanism, root, root)
        selection = Selection(name=name, form=case.form, options=case.options)
        yield CheckedCase(asked=selection, workload=case.workload)


def compared(case: CheckedCase, kept: Baseline) -> Iterator[Finding]:
    """The counts of a case compared with the stored ones."""
    base = Counted(outcome=MISSING, reason="it is not in the baseline")
    if (stored := kept.cases.get(case.label)) is not None:
        base = Counted(outcome=Outcome.OK, values=stored)
    yield from counted(case, base, case.counted[HEAD])
