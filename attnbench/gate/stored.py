"""A check against a file: counts on any machine, times only on the one that saved them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from attnbench.errors import CannotRun, UsageError
from attnbench.gate.cases import MISSING, CheckedCase, CheckPlan, Compared, Counted, planned
from attnbench.gate.check import from_top, in_forms, on_both_sides
from attnbench.gate.finding import Conditions, Finding, Report, counts, runs
from attnbench.gate.measuring import NO_BATCHES, Measuring, Runner
from attnbench.gate.repository import top
from attnbench.gate.rule import stored_time_finding
from attnbench.metrics import COUNTED
from attnbench.records import Case, Fingerprint, Outcome, Selection
from attnbench.registry import names
from attnbench.run.pairs import HEAD
from attnbench.store import baseline
from attnbench.store.baseline import Baseline, StoredCase, Timing

PAIRS = 3  # processes per case: a stored time is a hint, not a gate


def save(
    plan: CheckPlan, path: Path, selections: Sequence[Selection], runner: Runner, version: str
) -> tuple[int, list[str]]:
    """Write a baseline of the working tree.

    Returns the number of its cases, and the cases left out with the reasons. Raises `UsageError`,
    `CannotRun` or `StoreError`.
    """
    root = top(Path.cwd())
    with runner.within(plan.budget_s):
        machine = runner.machine()
        compared = tuple(in_forms(on_both_sides(selections, root), runner, root))
        cases = planned(plan, compared)
        measure(Measuring(plan, cases, runner, {HEAD: root}), plan.times)
    entries = {case.label: entry(case) for case in cases if case.ran}
    baseline.save(Baseline(attnbench=version, machine=machine, cases=entries), path)
    return len(entries), [f"{c.label}: {c.counted[HEAD].reason}" for c in cases if not c.ran]


def against_file(
    plan: CheckPlan, path: Path, selections: Sequence[Selection] | None, runner: Runner
) -> Report:
    """The working tree against a stored baseline, case by case.

    Raises `UsageError` if the file holds no case of the selections, `CannotRun` or `StoreError`.
    """
    kept = baseline.load(path)
    root = top(Path.cwd())
    cases = list(stored_cases(kept, selections, root))
    if not cases:
        raise UsageError(f"'{path}' has no case of the mechanisms in --models")
    if {case.workload.device for case in cases} != {plan.device}:
        raise CannotRun(f"'{path}' was saved on another device than --device {plan.device}")
    with runner.within(plan.budget_s):
        machine = runner.machine()
        other_machine = kept.machine.differences(machine)
        batches = {label: e.time.batch for label, e in kept.cases.items() if e.time is not None}
        race = Measuring(plan, cases, runner, {HEAD: root})
        measure(race, plan.times and not other_machine, batches)
    return Report(
        base=str(path),
        head="the working tree",
        findings=tuple(finding for case in cases for finding in findings(case, kept)),
        notes=tuple(notes(plan, kept, machine, every=selections is None)),
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
        yield f"not in the baseline: {', '.join(new)}; add them with --save"


def measure(race: Measuring, times: bool, batches: Mapping[str, int] = NO_BATCHES) -> None:
    """Count every case on head, and time each in a few processes at its stored batch."""
    race.count()
    ran = [case for case in race.cases if case.ran]
    if times and ran:
        race.size(ran, batches)
        race.stage(ran, 0, PAIRS)


def stored_cases(
    kept: Baseline, selections: Sequence[Selection] | None, root: Path
) -> Iterator[CheckedCase]:
    """The cases of a baseline, as it counted them."""
    names = {side.selection.name for side in on_both_sides(selections or (), root)}
    for case in map(Case.read, kept.cases):
        if selections is None or case.mechanism in names:
            name = from_top(case.mechanism, root, root)
            selection = Selection(name=name, form=case.form, options=case.options)
            compared = Compared(base=selection, head=selection)
            yield CheckedCase(compared=compared, workload=case.workload)


def entry(case: CheckedCase) -> StoredCase:
    """What the baseline keeps of a case."""
    seconds, values = case.seconds(HEAD), case.counted[HEAD].values
    return StoredCase(
        counts={key: values[key] for key in COUNTED if key in values},
        time=Timing(batch=case.batch, seconds=seconds) if case.batch and seconds else None,
    )


def findings(case: CheckedCase, kept: Baseline) -> Iterator[Finding]:
    """The counts and times of a case compared with the stored ones."""
    stored, head = kept.cases.get(case.label), case.counted[HEAD]
    outcome = Outcome.OK if stored else MISSING
    base = Counted(outcome=outcome, reason="it is not in the baseline")
    if not_both := runs(case.name, case.label, base, head):
        yield not_both
    if stored is None or not head.ran:
        return
    yield from counts(case.name, case.label, stored.counts, head.values)
    seconds = case.seconds(HEAD)
    if stored.time and seconds and stored.time.batch == case.batch:
        finding = stored_time_finding(case.name, case.label, stored.time.seconds, seconds)
        yield replace(finding, batch=case.batch)
