"""The title of a report: what was measured, at which lengths, and on what."""

import re
from collections.abc import Iterable, Sequence

from attnbench.analysis import Analysis
from attnbench.records import Environment, Name, metrics, units
from attnbench.report.phrases import in_order
from attnbench.report.styles import labels

NAMED = 3  # mechanisms that a title names; of more it says how many
# what processors and devices have in their names beside the family and the model
TRADE = re.compile(r"\((?:R|TM)\)|\b(?:\d+-Core )?Processor\b|\bCPU\b|@.*", re.IGNORECASE)
AN = re.compile(r"[aeiou]|nvidia\b", re.IGNORECASE)  # the sounds after which `a` becomes `an`


def title(analysis: Analysis) -> str:
    """`Fastformer and Transformer, 128 to 65,536 tokens, on an AMD EPYC`.

    Mechanisms and lengths are those that were timed. Where none was, those that were to be:
    `Fastformer and Transformer, nothing timed, on an AMD EPYC`.
    """
    cases = analysis.cases
    timed = cases[cases[metrics.TIME].notna()]
    shown = cases if timed.empty else timed
    parts = [_measured([*shown["series"].unique()], analysis.suspects)]
    if timed.empty:
        parts.append("nothing timed")
    else:
        lengths = timed["seq_len"]
        parts.append(f"{units.between(int(lengths.min()), int(lengths.max()))} tokens")
    parts += filter(None, [_place(analysis.sweep.sessions)])
    return ", ".join(parts)


def _measured(series: Sequence[str], suspects: Iterable[str]) -> str:
    """`Fastformer and Transformer`, `42 mechanisms`, `Transformer in 3 forms, options or sizes`."""
    marked = {Name.read(name).mechanism for name in suspects}
    mechanisms = [*dict.fromkeys(Name.read(name).mechanism for name in series)]
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
