"""What `sweep` does between its options and its report: measure into a folder's journal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnbench.cli import console
from attnbench.errors import CannotRun, SweepExists
from attnbench.records import CardFacts, Environment, Planned, Request, Sweep
from attnbench.run import schedule
from attnbench.run.processes import Server
from attnbench.run.session import Progress, Session, Start
from attnbench.run.workers import Worker
from attnbench.store.journal import FILE, Journal, load
from attnbench.store.resuming import done
from attnbench.store.schema import Ending
from attnbench.store.writable import refuse_unwritable
from attnbench.workloads.reading import Plan

PEAKS_TIMEOUT_S = 300.0
TAKEN = 0.1  # of what the threads need, what others may take now without a warning
CROWDED = 0.5  # of the cores, what may have been at work over the last minute


def measure(
    request: Request, plan: Plan, server: Server, folder: Path, resume: bool, anyway: bool
) -> None:
    """Measure what is planned into the folder's journal; a resumed one goes on.

    Raises `StoreError`, and `CannotRun` if no worker starts.
    """
    refuse_unwritable(folder)
    begun = time.monotonic()
    here = environment(server, request.device, request.settings.threads, request.dtype)
    with open_journal(request, here, folder, resume, anyway) as journal:
        stored = described(journal, plan)
        say(request, here, journal, folder)
        session = Session(
            request=request,
            plan=plan.lines,
            store=journal,
            start=starter(server, request, schedule.kept_bytes(plan.lines, here.memory_bytes)),
            memory_bytes=here.device_memory_bytes or here.memory_bytes,
            earlier=stored.runs,
            finished=done(stored),
            begun=begun,
        )
        try:
            with watched(session):
                session.run()
        except KeyboardInterrupt:
            journal.end(Ending.INTERRUPTED)
            raise
        journal.end(Ending.BUDGET if session.over_budget else Ending.FINISHED)
        took = time.monotonic() - begun
        share = session.useful_s / took
        console.err().print(f"{took:.0f} s, {100 * share:.0f} % of it in warm-up and samples")


def starter(server: Server, request: Request, keep_bytes: float) -> Start:
    """What starts the processes of a sweep, each with the ceiling of memory in the settings."""
    settings = request.settings

    def start(series: str, *, weighs: bool = False) -> Worker:
        limit = settings.memory_limit_bytes
        return server.worker(weighs=weighs, keep_bytes=keep_bytes, limit_bytes=limit)

    return start


def environment(server: Server, device: str, threads: int, dtype: str = "float32") -> Environment:
    """This machine as a worker sees it, with its measured peaks. Raises `CannotRun`."""
    with server.worker() as worker:
        asked = {"do": "environment", "device": device, "threads": threads, "dtype": dtype}
        answer = worker.ask(PEAKS_TIMEOUT_S, **asked)
    if answer["outcome"] != "ok":
        raise CannotRun(f"no worker process could be started: {answer.get('reason', '')}")
    return Environment(**answer["environment"])


def open_journal(
    request: Request, here: Environment, folder: Path, resume: bool, anyway: bool
) -> Journal:
    if resume:
        return Journal.resume(folder, request, here, anyway=anyway)
    return Journal.create(folder, folder.name, request, here)


def refuse_begun(folder: Path) -> None:
    """Raises `SweepExists` if a sweep began in the folder."""
    if begun_in(folder):
        raise SweepExists(
            f"'{folder}' already holds a sweep; --resume to go on, --out for another folder"
        )


def begun_in(folder: Path) -> bool:
    """Whether a sweep began there; an empty journal is one that was stopped before it did."""
    file = folder / FILE
    return file.exists() and file.stat().st_size > 0


def described(journal: Journal, plan: Plan) -> Sweep:
    """The sweep, once its journal describes every case: a damaged one may have lost some."""
    known = {planned.case.key for planned in journal.sweep.plan}
    facts = {card.mechanism for card in journal.sweep.cards}
    missing: list[CardFacts | Planned] = [c for c in plan.cards if c.mechanism not in facts]
    missing += [line for line in plan.lines if line.case.key not in known]
    if missing:
        journal.append(*missing)
    return load(journal.folder)  # runs whose case had been lost count again


def say(request: Request, here: Environment, journal: Journal, folder: Path) -> None:
    """What the program chose by itself, and what should be known before it starts."""
    from attnbench.units import many

    show = console.err().print
    for warning in journal.sweep.warnings:
        show(f"warning: {warning}")
    budget = "no budget" if request.budget_s is None else f"budget {request.budget_s:g} s"
    show(
        f"{here.device} ({here.processor}), {many(here.threads, 'thread')}, torch {here.torch};"
        f" c = {request.tokens:,} tokens, {request.dtype}, at most {many(request.rounds, 'round')},"
        f" {budget}; into {folder}"
    )
    if here.cuda:
        show(f"TF32 is {'on' if here.tf32 else 'off'}; driver {here.driver}, CUDA {here.cuda}")
    for doubt in doubts(here):
        show(f"warning: {doubt}")


def doubts(here: Environment) -> Iterator[str]:
    """What will make times on this machine noisier than they need be."""
    from attnbench.units import many

    cores = many(here.cores, "core")
    if here.threads > here.cores:
        yield f"{many(here.threads, 'thread')} take turns on {cores}; try --threads {here.cores}"
    if load := crowding(here):
        yield f"{load}; times will be noisy"


def crowding(here: Environment) -> str:
    """What other processes take of the cores that are needed, if it is much; else nothing."""
    from attnbench.units import many

    cores = many(here.cores, "core")
    spare = max(0, here.cores - here.threads)
    if here.busy_cores is not None and here.busy_cores - spare > TAKEN * here.threads:
        return f"other processes take {here.busy_cores:.1f} of {cores} now"
    if here.load is not None and here.load > CROWDED * here.cores:
        return f"load average {here.load:.1f} on {cores} over the last minute"
    return ""


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
    """Raises `CannotRun`, with a reason that the journal keeps, if no case of the sweep ran."""
    from attnbench.units import many

    sweep = load(folder)
    if any(run.elapsed_s for run in sweep.runs):
        return
    reasons = list(dict.fromkeys(run.reason for run in sweep.runs))
    more = f" (and {many(len(reasons) - 1, 'other reason')})" if len(reasons) > 1 else ""
    raise CannotRun(
        f"nothing was measured: 0 of {many(len(sweep.plan), 'case')} ran;"
        f" {reasons[0] if reasons else 'nothing was planned'}{more};"
        f" '{folder}' keeps what was refused, and why"
    )


def kept(folder: Path) -> str:
    """What an interrupted sweep leaves in its folder, and how to go on."""
    if not begun_in(folder):
        return "nothing was measured"
    sweep = load(folder)
    if sweep.finished:
        return f"what was measured is kept; attnbench report '{folder}' shows it"
    measured = any(run.elapsed_s for run in sweep.runs)
    what = "what was measured is kept" if measured else "nothing was measured yet"
    return f"{what}: repeat with --out '{folder}' --resume"
