"""The lines above every report: the request, the machine, how it measured, and warnings."""

import math
from collections.abc import Iterator, Sequence

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.records import PASSES, Clock, Environment, Level, Sweep
from attnbench.render.cost_tables import timed_by
from attnbench.render.grid import clean
from attnbench.workloads.requests import command

WALL = 1.05  # ratio to CPU time above which wall time is reported too
# under a load of 5, ratios of pairs of laps varied by 9 to 18 % by wall time, 1.2 % by CPU time;
# without other load, half-widths of sweeps were 8 to 9 % on two threads, 3.4 % on one core
UNCERTAIN = (
    "; other programs and uneven cores disturb this clock, and ratios are known two to ten times"
    " less precisely than by CPU time on one core"
)
# measured at N = 512 of Fig. 2, as the time of a plain loop over that of a sweep
KEPT = (
    " Freed pages stay mapped. Where they are given back, as by default, page faults lengthen times"
    " by 3 to 47 %, and a ratio of 2.2 was 1.55."
)


def origin(sweep: Sweep) -> list[str]:
    """Request, machine, versions, date and command, each a line of plain text."""
    lines = [_asked(sweep)]
    # sessions of one machine differ in free memory: the first of each machine is shown
    machines = {session.fingerprint: session for session in reversed(sweep.sessions)}
    lines += [line for session in reversed(machines.values()) for line in _machine(session)]
    begun = f" on {sweep.begun[:10]}" * bool(sweep.begun)
    lines.append(f"Measured{begun} by: {command(sweep.request)}{_resumed(sweep)}")
    return [clean(line) for line in lines]


def _resumed(sweep: Sweep) -> str:
    """How often a sweep went on, whose request has the limits of the last time."""
    again = len(sweep.sessions) - 1
    if again < 1 or any(run.origin.shard for run in sweep.runs):
        return ""
    return f" (the last of {units.many(again + 1, 'session')}, each with a budget of its own)"


def conditions(analysis: Analysis) -> list[str]:
    """`origin` and the method, each a line of plain text; warnings are separate."""
    sweep = analysis.sweep
    lines = [*origin(sweep), *_nodes(analysis)]
    if packages := sorted({run.notes["package"] for run in sweep.runs if "package" in run.notes}):
        lines.append(f"Packages: {', '.join(packages)}.")
    lines += filter(None, (_how(analysis), ended(analysis)))
    lines += (f"{units.capitalised(found.text)}." for found in analysis.warnings if found.note)
    return [clean(line) for line in lines]


def warnings(analysis: Analysis) -> list[str]:
    """One line of plain text for each warning that calls for action, the most serious first."""
    return [clean(found.text) for found in analysis.warnings if not found.note]


def ended(analysis: Analysis) -> str:
    """What ended the sweep, and how well its ratios are known; empty if no precision is set."""
    sweep, blocks = analysis.sweep, analysis.ratios.certainties
    if sweep.request.precision is None or not sweep.finished or not blocks:
        return ""
    halves = [certainty.half for certainty in blocks.values()]
    least, wanted = max(halves), units.percent(sweep.request.precision)
    by = "by --budget" if sweep.over_budget else "after its rounds"
    if least <= sweep.request.precision:
        lengths = ", ".join(units.count(n) for n in sorted({block.seq_len for block in blocks}))
        how = f" {by}" * sweep.over_budget
        return f"Ended{how}: every ratio at N = {lengths} is known to {wanted} or better."
    known = sum(half <= sweep.request.precision for half in halves)
    worst = f"to {units.percent(least)}" if math.isfinite(least) else "from one round only"
    return (
        f"Ended {by}: {known} of {units.many(len(halves), 'block')} known to {wanted}, the least"
        f" certain {worst}."
    )


def gpu_settings(session: Environment) -> str:
    """The GPU settings that affect time or memory: `TF32 off; …`."""
    notes = (f"{name} {text}" for name, text in sorted(session.notes.items()))
    return "; ".join(("TF32 on" if session.tf32 else "TF32 off", *notes))


def _asked(sweep: Sweep) -> str:
    request = sweep.request
    planned = (planned.case.workload for planned in sweep.plan)
    decoded = sorted({w.batch for w in planned if w.steps})
    batches, widths, heads, dtypes = (
        list(dict.fromkeys(getattr(each, name) for each in request.sizes))
        for name in ("batch", "width", "heads", "dtype")
    )
    batch = units.many(request.tokens, "token") if not request.batch else _many(batches, "sequence")
    sizes = [f"{batch} per batch"] * bool(set(PASSES) & {*request.modes})
    sizes += [f"decode at batch {', '.join(map(units.count, decoded))}"] * bool(decoded)
    sizes += [
        f"width {', '.join(map(str, widths))}",
        _many(heads, "head"),
        *[units.many(request.layers, "layer")] * (request.level is Level.MODEL),
        ", ".join(dtypes),
    ]
    sizes += ["causal"] * request.causal
    sizes += [f"{units.percent(request.padding)} padding"] * (request.padding > 0)
    lengths = request.lengths
    span = f"{units.count(min(lengths))} to {units.count(max(lengths))}" if lengths else "none"
    return (
        f"Request: {', '.join(request.models)}; level {request.level}; "
        f"{' and '.join(request.modes)}; {units.many(len(lengths), 'length')}, {span};"
        f" {', '.join(sizes)}."
    )


def _many(counts: Sequence[int], noun: str) -> str:
    """`2, 4 heads`."""
    *others, last = counts
    return ", ".join([*map(str, others), units.many(last, noun)])


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


def _nodes(analysis: Analysis) -> list[str]:
    """Where the shards of a divided sweep ran."""
    if not analysis.nodes:
        return []
    shards = analysis.sweep.shards
    of = f" of {shards[0].of}" if shards and len(shards) < shards[0].of else ""
    where = units.few(analysis.nodes)
    nodes = units.many(len(analysis.nodes), "node")
    return [f"Divided into {units.many(len(shards), 'shard')}{of}, on {nodes}: {where}."]


def _how(analysis: Analysis) -> str:
    request, cases = analysis.sweep.request, analysis.cases
    budget = "no budget" if request.budget_s is None else f"budget {request.budget_s:.10g} s"
    rounds = int(cases["rounds"].max()) if len(cases) else 0
    settings = request.settings
    by = timed_by(cases) if len(cases) else str(settings.clock)
    text = f"Measured: {by}, " * (by != "time") or "Measured: "
    text += f"{units.many(rounds, 'round')}, {budget}, seed {settings.seed}"
    text += "".join(f", {words}" for _, on, words in settings.fields_with("said") if on)
    if (spread := analysis.process_spread) is not None:
        text += f"; times vary by {units.percent(spread)} between processes (1 σ)"
    if (factor := analysis.wall_factor or 1.0) > WALL:
        text += f"; wall time was {units.plain(factor, 2)} times as long in the median"
    if settings.clock is Clock.WALL and settings.threads > 1 and by != "time":
        text += UNCERTAIN
    kept = any(run.notes.get("allocator") == "pages kept" for run in analysis.sweep.runs)
    graphs = " Peaks and counts are those of iterations without graphs." * settings.cuda_graphs
    return f"{text}.{graphs}{KEPT * kept}"
