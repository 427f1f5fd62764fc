"""What `sweep` does between its options and its report: measure into a folder's journal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from attnbench.cli import console
from attnbench.cli.processes import START_TIMEOUT_S, measuring
from attnbench.cli.stopping import stoppable
from attnbench.errors import CannotRun, SweepExists
from attnbench.records import CardFacts, Environment, Planned, Request, Settings, Sweep
from attnbench.run.launch import Launcher
from attnbench.run.session import Progress, Session
from attnbench.store.journal import FILE, Journal, load
from attnbench.store.resuming import done
from attnbench.store.schema import Ending
from attnbench.workloads.reading import Plan


def measure(request: Request, plan: Plan, folder: Path, resume: bool, anyway: bool) -> None:
    """Measure what is planned into the folder's journal; a resumed one goes on.

    Raises `StoreError`, `CannotRun` if no worker starts, `Interrupted` after Ctrl-C.
    """
    if not resume and begun_in(folder):
        raise SweepExists(
            f"'{folder}' already holds a sweep; --resume to go on, --out for another folder"
        )
    launcher = measuring()
    with interruptible(launcher, folder):
        begun = time.monotonic()
        here = environment(launcher, request.device, request.settings, request.dtype)
        with open_journal(request, here, folder, resume, anyway) as journal:
            stored = described(journal, plan)
            say(request, here, journal, folder)
            session = Session(
                request=request,
                plan=plan.lines,
                store=journal,
                launch=launcher,
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
            console.err().print(f"{took:.0f} s, {share:.0%} of them in warm-up and samples")


def environment(
    launcher: Launcher, device: str, settings: Settings, dtype: str = "float32"
) -> Environment:
    """This machine as a worker sees it, with its measured peaks. Raises `CannotRun`."""
    asked = {"environment": device, "dtype": dtype, "settings": asdict(settings)}
    reply = launcher(asked, START_TIMEOUT_S)
    if reply.answer is None or "outcome" in reply.answer:
        said = (reply.answer or {}).get("reason") or reply.log or f"exit {reply.exit_code}"
        raise CannotRun(f"no worker process could be started: {said}")
    return Environment(**reply.answer)


def open_journal(
    request: Request, here: Environment, folder: Path, resume: bool, anyway: bool
) -> Journal:
    if resume:
        return Journal.resume(folder, request, here, anyway=anyway)
    return Journal.create(folder, folder.name, request, here)


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
    from attnbench.render.units import many

    show = console.err().print
    for warning in journal.sweep.warnings:
        show(f"warning: {warning}")
    budget = "no budget" if request.budget_s is None else f"budget {request.budget_s:g} s"
    show(
        f"{here.device} ({here.processor}), {many(here.threads, 'thread')}, torch {here.torch};"
        f" c = {request.tokens:,} tokens, {request.dtype}, {many(request.rounds, 'round')},"
        f" {budget}; into {folder}"
    )
    if request.device != "cpu":
        show(f"TF32 is {'on' if here.tf32 else 'off'}; driver {here.driver}, CUDA {here.cuda}")
    if here.load is not None and here.load > 0.5 * here.cores:
        cores = many(here.cores, "core")
        show(f"warning: load average {here.load:.1f} on {cores}; times will be noisy")


@contextmanager
def watched(session: Session) -> Iterator[None]:
    """Show progress while the block runs."""
    from attnbench.render.progress import ProgressLine

    with ProgressLine(console.err()) as line:

        def observe(p: Progress) -> None:
            part = f"{p.part}, round {p.round + 1}"
            line.show(p.running, part, p.done, p.total, p.left_s, p.predicted_s)

        session.observe = observe
        yield


@contextmanager
def interruptible(launcher: Launcher, folder: Path) -> Iterator[None]:
    """A signal ends the running process too, and the user is told how to go on."""
    with stoppable(f"what was measured is kept: repeat with --out '{folder}' --resume"):
        try:
            yield
        finally:
            launcher.stop()
