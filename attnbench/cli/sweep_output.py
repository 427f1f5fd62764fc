"""Terminal output of a sweep while it is measured, and what an interrupted one leaves."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from attnbench.analysis.visits import timed
from attnbench.api import measuring
from attnbench.cli import console
from attnbench.fleet import folder as fleets
from attnbench.fleet import split
from attnbench.records import OTHERS, Block, Clock, Environment, Request, Run, Shard
from attnbench.render.styles import labels
from attnbench.render.terminal import ProgressLine
from attnbench.run.pool import Pool
from attnbench.statistics.curves import series_names
from attnbench.store.journal import Journal, begun, load
from attnbench.units import many, percent
from attnbench.workloads.reading import Plan

ENOUGH = 0.8  # share of the time it needs below which a process is clearly slowed down


def measure_and_show(
    request: Request, plan: Plan, pool: Pool, folder: Path, shard: Shard | None, file: bytes
) -> Journal:
    """Measure a plan, or a shard of it, and show choices, warnings, first times and progress.

    The journal is returned open, as `api.measuring.measure` returns it. A shard's machine must be
    one of the kind that its fleet began on. Raises `UsageError` where there is no such shard,
    `DifferentSweep`, and what `api.measuring.measure` raises.

    request: what is asked of the sweep
    plan:    its cases with their cards
    pool:    the processes that measure
    folder:  where the journal is, or begins; the fleet's is its parent
    shard:   which part is measured; None: all
    file:    the options as TOML, kept next to the journal of a whole sweep
    """
    cases = split.share(plan.cases, request, shard)
    share = measuring.Share(shard=shard, cases=cases) if shard else None
    series = series_names(cases)
    names = labels(series.values())
    depths = {series[planned.case.key]: planned.depth for planned in cases}
    of = " per layer" if max(depths.values(), default=1) > 1 else ""
    with ProgressLine(console.err()) as line:

        def visited(block: Block, new: Sequence[str], runs: Mapping[str, tuple[Run, ...]]) -> None:
            stage = f"N = {block.seq_len:,} {block.mode}{of}"
            line.first_times(timed(block, new, runs, request.batch_tokens, depths), stage, names)

        def claim(here: Environment) -> None:
            if shard:
                fleets.claim(folder.parent, here)

        began = time.monotonic()
        journal = measuring.measure(
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


def show_choices(request: Request, plan: Plan, here: Environment, journal: Journal) -> None:
    """Print what the program chose by itself, and warnings, before it starts."""
    from attnbench.analysis.warnings import mixed_causality  # it loads pandas, a dry run does not

    show, clock = console.err().print, request.settings.clock
    console.warn(journal.sweep.warnings)
    shard = journal.origin.shard
    budget = "no budget" if request.budget_s is None else f"budget {request.budget_s:g} s"
    if shard is not None:
        show(f"shard {shard}, attempt {journal.origin.attempt}; the budget is per shard")
    show(
        f"{here.device} ({here.processor}), {timed_by(here, clock)}, torch {here.torch};"
        f" {sizes(request)}, at most {many(request.rounds, 'round')}, {budget};"
        f" into {journal.folder}"
    )
    console.warn(mixed_causality(plan.cases))
    console.warn(noise_warnings(here, clock, request.budget_s))


def timed_by(here: Environment, clock: Clock) -> str:
    """The number of threads, and on a CPU the clock: `CPU time on one core`."""
    threads = many(here.threads, "thread")
    if here.device_memory_bytes is not None:
        return threads
    return f"{clock} on one core" if clock is Clock.CPU else f"{clock} on {threads}"


def sizes(request: Request) -> str:
    """Batch and number types: `8,192 tokens per batch, float32`."""
    batches = dict.fromkeys(str(each.batch) for each in request.sizes)
    batch = f"{request.tokens:,} tokens per batch"
    if request.batch:
        batch = f"batches of {', '.join(batches)} sequences"
    return ", ".join((batch, *dict.fromkeys(each.dtype for each in request.sizes)))


def noise_warnings(here: Environment, clock: Clock, budget_s: float | None = None) -> Iterator[str]:
    """Warnings: what will make times on this machine noisier than necessary, or fewer."""
    cores, threads = many(here.cores, "core"), many(here.threads, "thread")
    if here.threads > here.cores:
        yield f"{threads} share {cores}; try --threads {here.cores}"
    if others := here.notes.get(OTHERS):
        yield f"other processes use the GPU ({others}), and times will be noisy"
    if here.share is not None and here.share < ENOUGH:
        so = "measuring will take longer" if clock is Clock.CPU else "times will be noisy"
        if clock is Clock.CPU and budget_s is not None:
            reach = f"what {budget_s:g} s reach on a quiet machine"
            so = f"expect about {10 * max(1, round(10 * here.share))} % of {reach}"
        got = f"a process gets {percent(here.share)} of the time it needs"
        yield f"{slowed_by(here, here.share)}; {got}; {so}"


def slowed_by(here: Environment, share: float) -> str:
    """What keeps a process from computing, of which it has this `share` of the time."""
    others = "other processes compute here"
    if here.quota_cores is None:
        return others
    quota = f"a CPU quota of {here.quota_cores:g} cores (of this container or service) stops it"
    alone = min(1.0, here.quota_cores)  # what a process would get with nothing beside it
    return f"{quota}, and {others}" if share < ENOUGH * alone else quota


def interruption_message(folder: Path) -> str:
    """What an interrupted sweep leaves in its folder, and how to continue."""
    if not begun(folder):
        return "nothing was measured"
    sweep = load(folder)
    if sweep.finished:
        return f"what was measured is kept; attnbench report '{folder}' shows it"
    return f"what was measured is kept; attnbench sweep --resume '{folder}' continues"
