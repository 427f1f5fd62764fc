"""The lines above every report: the request, the machine, and how it measured."""

import math
from collections.abc import Iterable, Iterator

from attnbench.analysis import Analysis, Frame
from attnbench.records import PASSES, Environment, Level, Sweep, metrics, modes, units
from attnbench.records.notes import Note
from attnbench.report.cost_tables import timed_by

LAPS = 0.01  # share of disturbed laps above which a report tells it
# measured at N = 512 of Fig. 2, as the time of a plain loop over a sweep's
KEPT = (
    " Measuring processes keep freed memory. In a plain process, which returns it, page faults"
    " lengthen times by 3 to 47 %, and a ratio of 2.2 was 1.55."
)

HALF = (
    "Training in {} keeps parameters and Adam's moments in that type, as few who train do: times"
    " are right, and losses were checked in the first iteration alone."
)


def conditions(analysis: Analysis) -> list[str]:
    """Request, machine, versions, date and method, each a line of plain text."""
    sweep = analysis.sweep
    # sessions of one machine differ in free memory: the first of each machine is shown
    machines = {session.fingerprint: session for session in reversed(sweep.sessions)}
    lines = [_requested(sweep)]
    lines += (line for session in reversed(machines.values()) for line in _machine(session))
    if sweep.begun:
        lines.append(f"Measured on {sweep.begun[:10]}.")
    if not sweep.shards:  # merging leaves the file behind
        lines.append("To measure it again: attnbench sweep --config sweep.toml, in its folder.")
    else:
        lines.append(f"Divided into {units.many(sweep.shards[0].of, 'shard')}.")
    if packages := sorted({r.notes[Note.PACKAGE] for r in sweep.runs if Note.PACKAGE in r.notes}):
        lines.append(f"Packages: {', '.join(packages)}.")
    lines += filter(None, (_how(analysis), ended(analysis)))
    half = {each.dtype for each in sweep.request.sizes} & {"bfloat16", "float16"}
    if half and any(modes.find(mode).trains for mode in sweep.request.modes):
        lines.append(HALF.format(" and ".join(sorted(half))))
    for reason in {r.notes[Note.NVML] for r in sweep.runs if Note.NVML in r.notes}:
        lines.append(f"NVML does not show the memory of single processes ({reason}).")
    return lines


def ended(analysis: Analysis) -> str:
    """What ended the sweep, and how well its ratios are known; empty if no precision is set."""
    sweep = analysis.sweep
    blocks = analysis.ratios.certainties
    if sweep.request.precision is None or not sweep.finished or not blocks:
        return ""
    halves = [certainty.half for certainty in blocks.values()]
    decided = sum(half <= sweep.request.precision for half in halves)
    least = max(halves)
    worst = f"to {units.percent(least)}" if math.isfinite(least) else "from one round only"
    return (
        f"Ended {'by --budget' if sweep.over_budget else 'after its rounds'}: {decided} of"
        f" {units.many(len(halves), 'block')} (a length in a mode) known to"
        f" {units.percent(sweep.request.precision)}, the least certain {worst}."
    )


def gpu_settings(session: Environment) -> str:
    """The GPU settings that affect time or memory: `TF32 off; …`."""
    notes = (f"{name} {text}" for name, text in sorted(session.notes.items()))
    return "; ".join(("TF32 on" if session.tf32 else "TF32 off", *notes))


def _requested(sweep: Sweep) -> str:
    request = sweep.request
    lengths = sweep.request.lengths

    def listed(values: Iterable[object]) -> str:
        return ", ".join(map(str, dict.fromkeys(values)))

    steps = sorted(p.case.workload.batch for p in sweep.plan if p.case.workload.steps)
    taken = [each.step for each in request.sizes]
    per_batch = f"batch {listed(each.batch for each in request.sizes)}"
    if not request.batch:
        per_batch = f"{units.many(request.tokens, 'token')} per batch"
    span = units.between(min(lengths), max(lengths)) if lengths else "none"
    parts = {
        f"Request: {', '.join(request.models)}": True,
        f"level {request.level}": True,
        " and ".join(request.modes): True,
        f"{units.many(len(lengths), 'length')}, {span}": True,
        per_batch: bool({*PASSES} & {*request.modes}),
        f"decode at batch {listed(steps)}": bool(steps),
        f"steps of {listed(taken)} tokens": {*taken} != {1},
        f"width {listed(each.width for each in request.sizes)}": True,
        f"heads {listed(each.heads for each in request.sizes)}": True,
        f"layers {request.layers}": request.level is Level.MODEL,
        listed(each.dtype for each in request.sizes): True,
        "causal": request.causal,
        f"{units.percent(request.padding)} padding": request.padding > 0,
    }
    return f"{'; '.join(text for text, true in parts.items() if true)}."


def _machine(session: Environment) -> Iterator[str]:
    device = "" if session.device_memory_bytes is None else f"; {session.device}"
    graphics = f", CUDA {session.cuda}, driver {session.driver}" if session.cuda else ""
    yield (
        f"Machine: {session.processor}, {units.many(session.cores, 'core')}, "
        f"{units.many(session.threads, 'thread')}, "
        f"{units.size(session.memory_bytes)}{device}; {session.system}."
    )
    yield (
        f"Versions: attnbench {session.attnbench}, torch {session.torch}, "
        f"Python {session.python}{graphics}."
    )
    if session.cuda:
        yield f"GPU settings: {gpu_settings(session)}."


def rounds_text(cases: Frame) -> str:
    """`3 rounds`, `1 to 5 rounds`: of the cases that were timed."""
    rounds = [*map(int, cases.loc[cases[metrics.TIME].notna(), "rounds"])] if len(cases) else [0]
    least = min(rounds, default=0)
    most = max(rounds, default=0)
    return units.many(most, "round") if least == most else f"{least} to {units.many(most, 'round')}"


def _how(analysis: Analysis) -> str:
    request = analysis.sweep.request
    cases = analysis.cases
    settings = request.settings
    cuda = any(one.cuda for one in analysis.sweep.sessions)
    by = timed_by(cases) if len(cases) else str(settings.clock)
    parts = [
        *([by] if by != "time" else []),
        rounds_text(cases),
        "no budget" if request.budget_s is None else f"budget {request.budget_s:.10g} s",
        f"seed {settings.seed}",
        *(["cold L2" if settings.cold else "warm L2"] if cuda else []),
        *(words for _, on, words in settings.fields_with("described") if on),
    ]
    text = f"Measured: {', '.join(parts)}"
    if (share := analysis.disturbed) > LAPS:
        text += f"; page faults or a slow core disturbed {units.percent(share)} of laps"
    graphs = " Peaks and counts are those of iterations without graphs."
    return f"{text}.{graphs if settings.cuda_graphs else ''}{'' if cuda else KEPT}"
