"""A small file with a check's counts, to be committed and read in a diff, and a check against it.

    {"attnbench": …, "cases": {"fastformer:eager/B8-N128-…": {"flops": …, …}}, "schema": 2,
     "torch": …}

Sorted, one number per line; the same numbers give the same bytes. It is data: loading parses
JSON, checks every field, and runs nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from itertools import chain
from pathlib import Path

from msgspec import json

from attnbench.errors import CannotRun, StoreError, UsageError
from attnbench.gate import repository
from attnbench.gate.cases import HEAD, MISSING, CheckedCase, CheckPlan, Counted, planned
from attnbench.gate.check import expand_forms, in_repository, located, repository_name
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
        asked = tuple(expand_forms(in_repository(selections, root), runner, root))
        cases = planned(plan, asked)
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


def against_file(
    plan: CheckPlan, path: Path, selections: Sequence[Selection] | None, runner: Runner
) -> Report:
    """The counts of the working tree against those in a file, case by case.

    Raises `UsageError` if the file holds no case of the selections, `CannotRun` or `StoreError`.
    """
    kept, root = load(path), repository.top(Path.cwd())
    cases = list(stored_cases(kept, selections, root))
    if not cases:
        known = dict.fromkeys(Case.read(label).mechanism for label in kept.cases)
        raise UsageError(f"'{path}' has no case of --models; it has {few(known) or 'none at all'}")
    devices = {case.workload.device for case in cases if case.workload}
    if {plan.device} != devices:
        saved = " and ".join(sorted(devices))
        raise CannotRun(f"'{path}' was saved with --device {saved}, this is {plan.device}")
    with runner.within(plan.budget_s):
        count(cases, runner, {HEAD: root})
    notes: tuple[str, ...] = ()
    if kept.torch != (here := version("torch")):
        notes = (
            f"the baseline was saved with torch {kept.torch}, this is {here}:"
            " operators and bytes may differ for this reason alone",
        )
    findings = chain.from_iterable(compared(case, kept) for case in cases)
    report = Report(base=str(path), head="the working tree", findings=tuple(findings), notes=notes)
    return located(report, root)


def stored_cases(
    kept: Baseline, selections: Sequence[Selection] | None, root: Path
) -> Iterator[CheckedCase]:
    """The cases of a baseline, as it counted them."""
    asked = in_repository(selections or (), root)
    for case in map(Case.read, kept.cases):
        if selections is None or any(means(selection, case) for selection in asked):
            name = repository_name(case.mechanism, root, root)
            selection = Selection(name=name, form=case.form, options=case.options)
            yield CheckedCase(asked=selection, workload=case.workload)


def means(selection: Selection, case: Case) -> bool:
    """Whether a selection matches a stored case; what it does not name matches anything."""
    return (
        selection.name == case.mechanism
        and fnmatchcase(case.form, selection.form or "*")
        and set(selection.options) <= set(case.options)
    )


def compared(case: CheckedCase, kept: Baseline) -> Iterator[Finding]:
    """The counts of a case compared with the stored ones."""
    stored = kept.cases.get(case.label)
    base = Counted(outcome=MISSING, reason="it is not in the baseline")
    if stored is not None:
        base = Counted(outcome=Outcome.OK, values=stored)
    yield from counted(case, base, case.counted[HEAD])
