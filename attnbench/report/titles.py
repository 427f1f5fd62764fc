"""The title of a report: what was measured, at which lengths, and on what."""

import re
from collections.abc import Iterable

from attnbench.analysis.report import Analysis
from attnbench.records import Environment, Name, Outcome, Part, Sweep, units
from attnbench.report.conclusions import in_order
from attnbench.report.styles import labels

NAMED = 3  # mechanisms that a title names; of more it says how many
# what processors and devices have in their names beside the family and the model
TRADE = re.compile(r"\((?:R|TM)\)|\b(?:\d+-Core )?Processor\b|\bCPU\b|@.*", re.IGNORECASE)
AN = re.compile(r"[aeiou]|nvidia\b", re.IGNORECASE)  # the sounds after which `a` becomes `an`


def title(analysis: Analysis) -> str:
    """`Fastformer and Transformer, 128 to 65,536 tokens, on an AMD EPYC`.

    The lengths are those at which anything was timed.
    """
    sweep = analysis.sweep
    parts = [_measured(sweep, analysis.suspects)]
    timed = {run.case for run in sweep.runs if run.part is Part.TIME and run.outcome is Outcome.OK}
    lengths = [p.case.workload.seq_len for p in sweep.plan if p.case.key in timed]
    if lengths:
        parts.append(f"{units.between(min(lengths), max(lengths))} tokens")
    parts += filter(None, [_place(sweep.sessions)])
    return ", ".join(parts)


def _measured(sweep: Sweep, suspects: Iterable[str]) -> str:
    """`Fastformer and Transformer`, `42 mechanisms`, `Transformer in 3 forms or options`."""
    series = [*dict.fromkeys(line.case.series for line in sweep.plan)]
    marked = {Name.read(name).mechanism for name in suspects}
    mechanisms = [*dict.fromkeys(Name.read(name).mechanism for name in series)]
    if not mechanisms:
        return "No mechanisms"
    if len(mechanisms) > NAMED:
        return f"{units.count(len(mechanisms))} mechanisms"
    names = labels(mechanisms, [name for name in mechanisms if name in marked])
    said = in_order([*names.values()])
    if len(series) == len(mechanisms):
        return said
    return f"{said} in {units.count(len(series))} forms, options or sizes"


def _place(sessions: Iterable[Environment]) -> str:
    """`on an AMD EPYC`, `on 2 machines`; empty where nothing was begun."""
    machines = {session.fingerprint: session for session in sessions}
    if len(machines) > 1:
        return f"on {units.many(len(machines), 'machine')}"
    for session in machines.values():
        full = session.processor if session.device_memory_bytes is None else session.device
        short = " ".join(TRADE.sub(" ", full).split())
        return f"on {'an' if AN.match(short) else 'a'} {short}" if short else ""
    return ""
