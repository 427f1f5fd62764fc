"""A small file with a check's counts, to be committed and read in a diff, and a check against it.

    {"cases": {"fastformer:eager/B8-N128-…": {"counts": {"flops": …}, "workload": {…}}}, …}

Sorted, one number per line; the same numbers give the same bytes. It is data: loading parses
JSON, checks every field, and runs nothing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from msgspec import json

from attnbench.commands.check import repository
from attnbench.commands.check.against import in_repository, with_files
from attnbench.commands.check.cases import (
    HEAD,
    MISSING,
    CheckedCase,
    CheckPlan,
    Counted,
    planned_cases,
)
from attnbench.commands.check.finding import CheckReport, count_findings
from attnbench.commands.check.measuring import Runner, count
from attnbench.errors import CannotRun, StoreError, UsageError, small_file
from attnbench.records import Amount, Outcome, Selection, Work, Workload, metrics, storage, units

SCHEMA = 3
SIZES = re.compile(r"/B\d+-N\d+-D\d+-H\d+/.*")  # of a label, which a series comes before


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The workload of a case as it was asked for, and its counts."""

    workload: Workload
    counts: Mapping[str, Work | Amount]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A whole file: the counts of each case by its label, and the torch that gave them."""

    torch: str
    cases: Mapping[str, Saved]
    schema: int = SCHEMA


def dump(baseline: Baseline) -> bytes:
    """The file's content."""
    return json.format(json.encode(baseline, order="sorted"), indent=1) + b"\n"


def as_integer(count: float) -> float:
    """A count as an integer where it is one, so that a file does not change with its writing."""
    return int(count) if float(count).is_integer() else count


def load(path: Path) -> Baseline:
    """The baseline in a file. Raises `StoreError` that says what is wrong."""
    try:
        baseline = json.decode(small_file(path), type=Baseline)
        if baseline.schema != SCHEMA:
            raise ValueError(f"has schema {baseline.schema}, and this attnbench reads {SCHEMA}")
    except OSError as error:
        raise StoreError(f"cannot read the baseline {str(path)!r}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not a baseline: {error}; make one with --save") from error
    return baseline


def save_baseline(
    plan: CheckPlan, path: Path, selections: Sequence[Selection], runner: Runner
) -> tuple[int, list[str]]:
    """Write the counts of the working tree to a file.

    Returns the number of its cases, and what is left out with the reasons. Raises `UsageError`,
    `StoreError`, or `CannotRun` if there is nothing to write.

    plan: the modes, lengths and sizes.
    path: of the file.
    selections: the mechanisms.
    runner: of the measuring processes.
    """
    root = repository.top(Path.cwd())
    cases = planned_cases(plan, in_repository(selections, Path.cwd(), root))
    with runner.within(plan.budget_s):
        count(cases, runner, {HEAD: root})
    left_out = [f"{case.label}: {case.counted[HEAD].reason}" for case in cases if not case.ran]
    saved_cases = {}
    for case in (case for case in cases if case.ran):
        values = case.counted[HEAD].values
        counts = {key: as_integer(values[key]) for key in metrics.COUNTED if key in values}
        assert case.workload is not None, "it is no function"
        saved_cases[case.label] = Saved(workload=case.workload, counts=counts)
    if not saved_cases:
        raise CannotRun(f"no case ran that could be saved; {units.few(left_out, 1)}")
    storage.output.write(path, dump(Baseline(torch=version("torch"), cases=saved_cases)))
    return len(saved_cases), left_out


def against_file(plan: CheckPlan, path: Path, runner: Runner) -> CheckReport:
    """The counts of the working tree against those in a file, case by case.

    Raises `UsageError` if the file holds no case, `CannotRun` or `StoreError`.
    """
    baseline = load(path)
    root = repository.top(Path.cwd())
    if not (cases := stored_cases(baseline, root)):
        raise UsageError(f"'{path}' has no case")
    with runner.within(plan.budget_s):
        count(cases, runner, {HEAD: root})
    absent = Counted(outcome=MISSING, reason="it is not in the baseline")
    stored = {
        label: Counted(outcome=Outcome.OK, values=saved.counts)
        for label, saved in baseline.cases.items()
    }
    findings = [
        finding
        for case in cases
        for finding in count_findings(case, stored.get(case.label, absent), case.counted[HEAD])
    ]
    why = "operators and bytes may differ for this reason alone"
    note = f"the baseline was saved with torch {baseline.torch}, this is {version('torch')}: {why}"
    notes = (note,) if baseline.torch != version("torch") else ()
    report = CheckReport(
        base=str(path),
        head="the working tree",
        named=True,
        findings=tuple(findings),
        notes=notes,
    )
    return with_files(report, root)


def stored_cases(baseline: Baseline, root: Path) -> list[CheckedCase]:
    """The cases of a baseline, as it counted them. Raises `UsageError`."""
    stored = baseline.cases.items()
    selections = [Selection.read(SIZES.sub("", label)) for label, _ in stored]
    return [
        CheckedCase(selection=one, workload=saved.workload)
        for one, (_, saved) in zip(in_repository(selections, root, root), stored, strict=True)
    ]
