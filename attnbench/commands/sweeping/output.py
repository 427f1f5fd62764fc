"""Terminal output of a sweep while it is measured, and what an interrupted one leaves."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from attnbench.analysis.statistics.curves import series_names
from attnbench.analysis.visits import BlockResults
from attnbench.commands import console
from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.records import Block, Environment, Request, Run, Shard, storage, units
from attnbench.report import machine, styles, terminal
from attnbench.running import session, shards
from attnbench.running.plan import Plan
from attnbench.running.pool import Pool

DECIDED = 2  # comparisons in a line


def measure_and_show(
    request: Request, plan: Plan, pool: Pool, folder: Path, shard: Shard | None, file: bytes
) -> storage.Journal:
    """Measure a plan, or a shard of it, and show choices, warnings, first times and progress.

    The journal is returned open, as `running.session.measure` returns it. A shard's machine must be
    one of the kind that its fleet began on. Raises `UsageError` where there is no such shard,
    `DifferentSweep`, and what `running.session.measure` raises.

    request: what is asked of the sweep
    plan:    its cases with their cards
    pool:    the processes that measure
    folder:  where the journal is, or begins; the fleet's is its parent
    shard:   which part is measured; None: all
    file:    the options as TOML, kept next to the journal of a whole sweep; empty: none are
    """
    cases = shards.cases_of_shard(plan.cases, request, shard)
    share = session.Share(shard=shard, cases=cases) if shard else None
    series = series_names(cases)
    names = styles.labels(series.values())
    depths = {series[planned.case.key]: planned.depth for planned in cases}
    results = BlockResults(depths, request.batch_tokens)
    of = " per layer" if max(depths.values(), default=1) > 1 else ""
    with terminal.ProgressLine(console.err()) as line:

        def visited(block: Block, new: Sequence[str], runs: Mapping[str, tuple[Run, ...]]) -> None:
            stage = f"N = {block.seq_len:,} {block.mode}{of}"
            line.first_times(results.first_times(block, new, runs), stage, names)
            sentences = [
                f"{names[each.fast]} is {units.between(each.low, each.high, units.plain)} times as"
                " fast as"
                f" {names[each.slow]}"
                for each in results.decided(block, runs)
            ]
            line.stay(decided_text(sentences, f"{block.mode} at {block.seq_len:,} tokens{of}"))

        def claim(environment: Environment) -> None:
            if shard:
                fleets.claim(folder.parent, environment)

        began = time.monotonic()
        journal = session.measure(
            request,
            plan,
            pool,
            folder,
            share=share,
            options_file=file,
            before=claim,
            announce=partial(show_choices, request, plan),
            observe=line.turn,
            observe_block=visited,
        )
    console.err().print(f"finished in {time.monotonic() - began:.0f} s")
    return journal


def decided_text(comparisons: Sequence[str], where: str) -> str:
    """What has been decided so far, `where`: the first few comparisons, and how many there are."""
    if not comparisons:
        return ""
    more = len(comparisons[DECIDED:])
    further = [f"and {units.many(more, 'further comparison')}"] if more else []
    return f"decided so far, in {where}: {'; '.join((*comparisons[:DECIDED], *further))}"


def show_choices(
    request: Request, plan: Plan, environment: Environment, journal: storage.Journal
) -> None:
    """Print what the program chose by itself, and warnings, before it starts.

    request: what is asked of the sweep
    plan:    its cases
    environment: that measures
    journal: which has just been opened
    """
    from attnbench.analysis import planned_warnings

    show = console.err().print
    clock = request.settings.clock
    console.warn(journal.sweep.warnings)
    shard = journal.origin.shard
    budget = "no budget" if request.budget_s is None else f"budget {request.budget_s:g} s"
    if shard is not None:
        show(f"shard {shard}, attempt {journal.origin.attempt}; the budget is per shard")
    show(
        f"{environment.device} ({environment.processor}), {machine.clock_of(environment, clock)},"
        f" torch {environment.torch};"
        f" {batch_and_dtypes(request)}, at most {units.many(request.rounds, 'round')}, {budget};"
        f" into {journal.folder}"
    )
    console.warn(planned_warnings(plan.cases))
    console.warn(machine.noise_warnings(environment, clock, request.budget_s))


def batch_and_dtypes(request: Request) -> str:
    """Batch and number types: `8,192 tokens per batch, float32`."""
    batches = dict.fromkeys(str(each.batch) for each in request.sizes)
    batch = f"{request.tokens:,} tokens per batch"
    if request.batch:
        batch = f"batches of {', '.join(batches)} sequences"
    return ", ".join((batch, *dict.fromkeys(each.dtype for each in request.sizes)))


def interruption_message(folder: Path) -> str:
    """What an interrupted sweep leaves in its folder, and how to continue."""
    if fleets.begun(folder):
        return f"jobs that were submitted go on; attnbench sweep --resume '{folder}' continues"
    if not storage.begun(folder):
        return "nothing was measured"
    sweep = storage.load(folder)
    if sweep.finished:
        return f"what was measured is kept; attnbench report '{folder}' shows it"
    return f"what was measured is kept; attnbench sweep --resume '{folder}' continues"
