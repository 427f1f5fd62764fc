"""What `sweep` does between options and report: measure into the journal of a folder."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnbench.cli import console
from attnbench.errors import CannotRun, SweepBusy, SweepExists
from attnbench.fleet import folder as fleets
from attnbench.fleet import split
from attnbench.records import CardFacts, Environment, Planned, Request, Shard, Sweep
from attnbench.run import schedule
from attnbench.run.processes import Server
from attnbench.run.session import Progress, Session
from attnbench.run.workers import Worker
from attnbench.store import output
from attnbench.store.journal import FILE, Journal, load, refuse_unwritable
from attnbench.store.resuming import done
from attnbench.store.schema import Ending
from attnbench.units import many
from attnbench.workloads import config
from attnbench.workloads.reading import Plan

PEAKS_TIMEOUT_S = 300.0
BUSY_S, BUSY_PAUSE_S = 120.0, 1.0  # a lost try of a shard may take this long to end
TAKEN = 0.1  # others may take this share of the needed cores without a warning
CROWDED = 0.5  # and the load average may be this share of all cores


def measure(
    request: Request,
    plan: Plan,
    server: Server,
    folder: Path,
    resume: bool,
    anyway: bool,
    shard: Shard | None = None,
    options_file: bytes = b"",
) -> None:
    """Measure the plan, or a shard of it, into the folder's journal, a new or a resumed one.

    A whole sweep keeps its options next to its journal.
    Raises `StoreError`, and `CannotRun` if no worker starts.
    """
    share = split.share(plan.cases, request, shard) if shard else None
    refuse_unwritable(folder)
    begun = time.monotonic()
    here = environment(server, request.device, request.settings.threads, request.dtype)
    if shard:
        fleets.claim(folder.parent, here.fingerprint)
    keep_bytes = schedule.kept_bytes(plan.cases, here.memory_bytes)
    limit_bytes = request.settings.memory_limit_bytes

    def start(series: str, *, weighs: bool = False) -> Worker:
        return server.worker(weighs=weighs, keep_bytes=keep_bytes, limit_bytes=limit_bytes)

    if resume:
        journal = resumed(folder, request, here, shard, anyway)
    else:
        journal = Journal.create(folder, folder.name, request, here, shard)
    with journal:
        if shard is None and options_file:
            keep(folder, options_file)
        stored = described(journal, plan)
        show_choices(request, here, journal, folder)
        session = Session(
            request=request,
            plan=plan.cases,
            store=journal,
            start=start,
            memory_bytes=here.device_memory_bytes or here.memory_bytes,
            earlier=stored.runs,
            finished=done(stored),
            begun=begun,
            share=share,
            name=f"-{shard}" if shard else "",
        )
        try:
            with watched(session):
                session.run()
        except KeyboardInterrupt:
            journal.end(Ending.INTERRUPTED)
            raise
        journal.end(Ending.BUDGET if session.over_budget else Ending.FINISHED)
        took = time.monotonic() - begun
        useful = session.useful_s / took
        console.err().print(f"{took:.0f} s, {100 * useful:.0f} % of it in warm-up and samples")


def resumed(
    folder: Path, request: Request, here: Environment, shard: Shard | None, anyway: bool
) -> Journal:
    """The folder's journal, to go on with; waits for an earlier try of the shard to end."""
    end_s = time.monotonic() + (BUSY_S if shard else 0.0)
    while True:
        try:
            return Journal.resume(folder, request, here, shard, anyway=anyway)
        except SweepBusy:
            if time.monotonic() >= end_s:
                raise
            time.sleep(BUSY_PAUSE_S)


def environment(server: Server, device: str, threads: int, dtype: str = "float32") -> Environment:
    """This machine as a worker sees it, with measured peak rates. Raises `CannotRun`."""
    with server.worker() as worker:
        asked = {"do": "environment", "device": device, "threads": threads, "dtype": dtype}
        answer = worker.ask(PEAKS_TIMEOUT_S, **asked)
    if answer["outcome"] != "ok":
        raise CannotRun(f"no worker process could be started: {answer.get('reason', '')}")
    return Environment(**answer["environment"])


def keep(folder: Path, options_file: bytes) -> None:
    """Write the options of a sweep into its folder; those that it began with stay."""
    if not (file := folder / config.FILE).exists():
        output.write(file, options_file)


def refuse_begun(folder: Path) -> None:
    """Raises `SweepExists` if a sweep began in the folder."""
    if begun_in(folder):
        raise SweepExists(
            f"'{folder}' already holds a sweep; --resume to go on, --out for another folder"
        )


def begun_in(folder: Path) -> bool:
    """Whether a sweep began there; one stopped earlier leaves an empty journal."""
    file = folder / FILE
    return file.exists() and file.stat().st_size > 0


def described(journal: Journal, plan: Plan) -> Sweep:
    """The stored sweep, after adding cases and cards that its journal lacks, as after damage."""
    known = {planned.case.key for planned in journal.sweep.plan}
    facts = {card.mechanism for card in journal.sweep.cards}
    missing: list[CardFacts | Planned] = [c for c in plan.cards if c.mechanism not in facts]
    missing += [planned for planned in plan.cases if planned.case.key not in known]
    if missing:
        journal.append(*missing)
    return load(journal.folder)  # runs whose case had been lost count again


def show_choices(request: Request, here: Environment, journal: Journal, folder: Path) -> None:
    """Print what the program chose by itself, and warnings, before it starts."""
    show = console.err().print
    for warning in journal.sweep.warnings:
        show(f"warning: {warning}")
    shard = journal.origin.shard
    budget = "no budget" if request.budget_s is None else f"budget {request.budget_s:g} s"
    if shard is not None:
        show(f"shard {shard}, try {journal.origin.attempt}; a budget is that of each shard")
    show(
        f"{here.device} ({here.processor}), {many(here.threads, 'thread')}, torch {here.torch};"
        f" {sizes(request)}, at most {many(request.rounds, 'round')}, {budget}; into {folder}"
    )
    if here.cuda:
        from attnbench.render.conditions import gpu_settings

        show(f"driver {here.driver}, CUDA {here.cuda}; {gpu_settings(here)}")
    for doubt in doubts(here):
        show(f"warning: {doubt}")


def sizes(request: Request) -> str:
    """Batch and number types: `c = 8,192 tokens, float32`."""
    batches = dict.fromkeys(str(single.batch) for single in request.each)
    batch = f"B = {', '.join(batches)}" if request.batch else f"c = {request.tokens:,} tokens"
    return ", ".join((batch, *dict.fromkeys(single.dtype for single in request.each)))


def doubts(here: Environment) -> Iterator[str]:
    """What will make times on this machine noisier than necessary."""
    cores = many(here.cores, "core")
    if here.threads > here.cores:
        yield f"{many(here.threads, 'thread')} take turns on {cores}; try --threads {here.cores}"
    spare = max(0, here.cores - here.threads)
    if here.busy_cores is not None and here.busy_cores - spare > TAKEN * here.threads:
        yield f"other processes take {here.busy_cores:.1f} of {cores} now; times will be noisy"
    elif here.load is not None and here.load > CROWDED * here.cores:
        load = f"load average {here.load:.1f} on {cores} over the last minute"
        yield f"{load}; times will be noisy"


@contextmanager
def watched(session: Session) -> Iterator[None]:
    """Show progress while the block runs."""
    from attnbench.render.terminal import ProgressLine

    with ProgressLine(console.err()) as line:

        def observe(p: Progress) -> None:
            block = f"N = {p.seq_len:,} {p.mode}, round {p.round + 1}"
            line.show(block, p.running, p.done, p.left_s)

        session.observe = observe
        yield


def refuse_empty(folder: Path) -> None:
    """Raises `CannotRun`, with one of the stored reasons, if no case of the sweep ran."""
    sweep = load(folder)
    if any(run.elapsed_s for run in sweep.runs):
        return
    reasons = list(dict.fromkeys(run.reason for run in sweep.runs))
    more = f" (and {many(len(reasons) - 1, 'other reason')})" if len(reasons) > 1 else ""
    raise CannotRun(
        f"nothing was measured: 0 of {many(len(sweep.plan), 'case')} ran;"
        f" {reasons[0] if reasons else 'nothing was planned'}{more};"
        f" '{folder}' lists the cases that did not run, and why"
    )


def kept(folder: Path) -> str:
    """What an interrupted sweep leaves in its folder, and how to go on."""
    if not begun_in(folder):
        return "nothing was measured"
    sweep = load(folder)
    if sweep.finished:
        return f"what was measured is kept; attnbench report '{folder}' shows it"
    measured = any(run.elapsed_s for run in sweep.runs)
    state = "what was measured is kept" if measured else "nothing was measured yet"
    return f"{state}; attnbench sweep --resume '{folder}' goes on"
