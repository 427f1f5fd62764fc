"""A check against a file: what is counted, anywhere; times, on the same machine only."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from attnbench.gate.cases import Line
from attnbench.gate.finding import Finding, Report, counted, runs
from attnbench.gate.measuring import Gate
from attnbench.gate.two_days import two_days
from attnbench.metrics import COUNTED
from attnbench.records import Fingerprint, Workload
from attnbench.run.pairs import HEAD
from attnbench.store.baseline import Baseline, Entry, Timing

PAIRS = 3  # processes of a case: a stored time is a hint, not a gate


def measure(gate: Gate, times: bool, batches: Mapping[str, int]) -> None:
    """Count every case on head, and time each in a few processes, at the batch that was stored."""
    gate.observe("counting")
    gate.count((HEAD,))
    ran = [line for line in gate.lines if line.answers[HEAD]["outcome"] == "ok"]
    if times and ran:
        gate.size(ran, (HEAD,), batches)
        gate.stage(ran, 0, PAIRS)


def baseline(gate: Gate, version: str, machine: Fingerprint) -> Baseline:
    """What was measured, as a file holds it; a case that did not run is left out."""
    cases = {}
    for line in gate.lines:
        values = line.answers[HEAD].get("values")
        if values is not None:
            seconds = line.seconds(HEAD)
            time = Timing(batch=line.batch, seconds=seconds) if line.batch and seconds else None
            counts = {key: values[key] for key in COUNTED if key in values}
            cases[line.label] = Entry(counts=counts, time=time)
    return Baseline(attnbench=version, machine=machine, cases=cases)


def compare(gate: Gate, stored: Baseline, machine: Fingerprint, name: str, head: str) -> Report:
    """What was measured against the file."""
    differences = stored.machine.differences(machine)
    findings = [found for line in gate.lines for found in one(line, stored, not differences)]
    return Report(
        base=name,
        head=head,
        findings=tuple(findings),
        notes=tuple(notes(gate, stored, machine, differences)),
        conditions={"machine": "the same" if not differences else "; ".join(differences)},
    )


def one(line: Line, stored: Baseline, same_machine: bool) -> Iterator[Finding]:
    """The findings of one case."""
    label = asked_label(line)
    entry, answer = stored.cases.get(label), line.answers[HEAD]
    base = {"outcome": "ok" if entry else "missing", "reason": "it is not in the baseline"}
    if found := runs(line.chosen.name, label, base, answer):
        yield found
    if entry is None or "values" not in answer:
        return
    yield from counted(line.chosen.name, label, entry.counts, answer["values"])
    seconds = line.seconds(HEAD)
    if entry.time and seconds and same_machine and entry.time.batch == line.batch:
        moved = two_days(line.chosen.name, label, entry.time.seconds, seconds)
        yield replace(moved, batch=entry.time.batch)


def notes(
    gate: Gate, stored: Baseline, machine: Fingerprint, differences: tuple[str, ...]
) -> Iterator[str]:
    """What the reader should know of the comparison."""
    if gate.plan.times and differences and any(entry.time for entry in stored.cases.values()):
        yield f"times are not compared: {'; '.join(differences)}"
    if stored.machine.torch != machine.torch:
        yield (
            f"the baseline was saved with torch {stored.machine.torch}, this is {machine.torch}:"
            " operators and bytes may differ for that alone"
        )


def asked_label(line: Line) -> str:
    """The case's printed name, also where it did not run."""
    if line.answers[HEAD].get("case"):
        return line.label
    chosen = ",".join(f"{name}={value}" for name, value in line.chosen.options)
    series = f"{line.chosen.name}:{line.chosen.form}" + (f"[{chosen}]" if chosen else "")
    return f"{series}/{msgspec.convert({'causal': False, **line.workload}, Workload)}"
