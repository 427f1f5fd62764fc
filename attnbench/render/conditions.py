"""What was asked, on what machine, under what conditions: the lines above every report."""

from collections.abc import Iterator

import numpy as np

from attnbench.analysis.foresight import scores
from attnbench.analysis.noise import drift, drift_widening, loads, throttled, widening
from attnbench.analysis.roofline import blind, roof, too_fast
from attnbench.analysis.summary import Frame
from attnbench.records import Environment, Sweep
from attnbench.render import units
from attnbench.render.grid import clean
from attnbench.render.scored import told

# a drift that is surely larger than this makes the order of the runs matter
DRIFT = 0.03
# a load above this share of the cores means that something else was at work
BUSY = 0.5
# bytes that each iteration leaves behind
LEAK = 1 << 20


def conditions(sweep: Sweep, cases: Frame) -> list[str]:
    """One line of plain text each, warnings first; `cases` is the summary of the sweep."""
    lines = [f"Warning: {line}" for line in warnings(sweep, cases)]
    lines.append(_asked(sweep))
    # free memory differs from session to session of one machine: the first of each is shown
    machines = {session.fingerprint: session for session in reversed(sweep.sessions)}
    lines += [line for session in reversed(machines.values()) for line in _machine(session)]
    lines.append(_how(sweep, cases))
    if reason := blind(sweep):
        lines.append(f"There is no roofline: {reason}.")
    if (predicted := told(scores(cases))) is not None:
        lines.append(predicted)
    return [clean(line) for line in lines]


def warnings(sweep: Sweep, cases: Frame) -> Iterator[str]:
    """What makes the numbers worth less than they look."""
    yield from sweep.warnings
    if not sweep.finished:
        yield "the sweep did not finish; --resume goes on where it stopped"
    if len({session.fingerprint for session in sweep.sessions}) > 1:
        yield "sessions ran on different machines or versions; times mix them"
    yield from _meddled(sweep)
    yield from (
        f"{series} took less time than merely reading its input takes on this machine"
        for series in too_fast(sweep, cases)
    )
    peaks = roof(sweep, cases)
    if peaks is not None and peaks.raised:
        yield (
            "a case did more than the peaks that were measured at the start, so the roofline is"
            " raised to it; a machine that is busy shows peaks that are too low"
        )
    bad = [*_busy(sweep), *_throttled(sweep), *_drifted(sweep)]
    wider = widening(sweep)
    if bad and wider is not None:
        share = f"{units.plain(wider, 2)} times as wide as the samples of single processes"
        bad.append(f"with all that happened between rounds, intervals are {share} would make them")
    yield from bad
    kinds = set(cases.loc[cases["time_s"].notna(), "interval_kind"])
    if kinds and "rounds" not in kinds:
        yield "one round only: intervals do not include what a restart changes"


def _busy(sweep: Sweep) -> Iterator[str]:
    """Load by others: all of it before the first run, later what exceeds the sweep's threads."""
    at_start = [session.load for session in sweep.sessions if session.load is not None]
    cores = max((session.cores for session in sweep.sessions), default=1)
    threads = max((session.threads for session in sweep.sessions), default=1)
    if at_start and max(at_start) > BUSY * cores:
        on = units.many(cores, "core")
        yield f"the machine was busy: load {max(at_start):.1f} on {on} at the start"
    found, limit = loads(sweep), threads + BUSY * cores
    above = [load for load in found if load > limit]
    if above:
        yield (
            f"{len(above)} of {len(found)} timed runs began under a load above {limit:g}, up to"
            f" {max(above):.1f}: the sweep's own {units.many(threads, 'thread')} and what else"
            " was at work"
        )


def _meddled(sweep: Sweep) -> Iterator[str]:
    """Mechanisms that left their process other than they found it; once each."""
    names = {line.case.key: line.case.mechanism for line in sweep.plan}
    changes: dict[str, None] = {}
    kept: dict[str, float] = {}
    for run in sweep.runs:
        name = names.get(run.case, run.case)
        if what := run.notes.get("changed"):
            changes[f"{name} changed {what}"] = None
        for note in ("odd", "processes", "later"):
            if what := run.notes.get(note):
                changes[f"{name} {what}"] = None
        kept[name] = max(kept.get(name, 0.0), run.values.get("kept_bytes", 0.0))
    yield from (f"{change}; times and results may depend on that" for change in changes)
    for name, most in kept.items():
        if most > LEAK:
            yield f"{name} keeps memory with each iteration: {units.size(most)}"


def _throttled(sweep: Sweep) -> Iterator[str]:
    reasons = throttled(sweep)
    if reasons:
        parts = [f"{reason} in {count} runs" for reason, count in reasons.items()]
        yield f"the GPU was slowed down: {'; '.join(parts)}"


def _drifted(sweep: Sweep) -> Iterator[str]:
    change = drift(sweep)
    if change is None or (change.low < 1 + DRIFT and change.high > 1 - DRIFT):
        return
    ends = (units.percent(end - 1) for end in (change.low, change.high))
    text = units.interval(units.percent(change.point - 1), *ends)
    wider = drift_widening(sweep)
    more = f" and made intervals {units.plain(wider, 2)} times as wide" if wider else ""
    yield f"times changed by {text} from the first run to the last; the machine drifted{more}"


def _asked(sweep: Sweep) -> str:
    request = sweep.request
    sizes = [
        f"{units.count(request.tokens)} tokens per batch",
        f"width {request.width}",
        f"{request.heads} heads",
        f"{request.layers} layers",
        str(request.dtype),
    ]
    sizes += ["causal"] * request.causal
    sizes += [f"{units.percent(request.padding)} padding"] * (request.padding > 0)
    lengths = request.lengths
    span = f"{units.length(min(lengths))} to {units.length(max(lengths))}" if lengths else "none"
    return (
        f"Asked: {', '.join(request.models)}; level {request.level}; "
        f"{' and '.join(request.modes)}; {units.many(len(lengths), 'length')}, {span};"
        f" {', '.join(sizes)}."
    )


def _machine(session: Environment) -> tuple[str, ...]:
    device = "" if session.device_memory_bytes is None else f"; {session.device}"
    graphics = f", CUDA {session.cuda}, driver {session.driver}" if session.cuda else ""
    tf32 = f"; TF32 {'on' if session.tf32 else 'off'}" if session.cuda else ""
    return (
        f"Machine: {session.processor}, {units.many(session.cores, 'core')}, "
        f"{units.many(session.threads, 'thread')}, "
        f"{units.size(session.memory_bytes)}{device}; {session.system}.",
        f"Versions: attnbench {session.attnbench}, torch {session.torch}, "
        f"Python {session.python}{graphics}{tf32}.",
    )


def _how(sweep: Sweep, cases: Frame) -> str:
    request = sweep.request
    budget = "no budget" if request.budget_s is None else f"budget {request.budget_s:g} s"
    rounds = int(cases["rounds"].max()) if len(cases) else 0
    text = f"Measured: {units.many(rounds, 'round')}, {budget}, seed {request.settings.seed}"
    spread = cases["time_log_se"] * np.sqrt(cases["rounds"])
    if (cases["interval_kind"] == "rounds").any():
        text += f"; a restart changes a time by {units.percent(float(spread.median()))} (1 σ)"
        if (wider := widening(sweep)) is not None:
            text += f", {units.plain(wider, 2)} times what samples of one process would tell"
    return text + "."
