"""Measures a request into a folder's journal; the command line and Python both call this."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from attnbench.analysis.costs import peak_rates
from attnbench.devices import SYSTEM
from attnbench.devices.cgroups import cores
from attnbench.devices.host import quietest_core
from attnbench.errors import CannotRun, DifferentSweep
from attnbench.records import (
    CardFacts,
    Clock,
    Environment,
    Planned,
    Request,
    Run,
    Shard,
    Sweep,
    messages,
    storage,
    units,
)
from attnbench.running import weighing
from attnbench.running.agenda import Agenda
from attnbench.running.pace import Pace
from attnbench.running.plan import READER, Plan
from attnbench.running.pool import TORCH, Pool
from attnbench.running.process import Process
from attnbench.running.request.requests import FILE
from attnbench.running.sweep import ObserveBlock, Progress, make_visits

SCRIPT = Path(__file__).parents[1] / "measuring" / "server.py"
# loaded once, before workers fork: no mechanism can then replace the code that measures memory
SHARED = ("attnbench.measuring.worker", "attnbench.devices.memory", READER)

PEAKS_TIMEOUT_S = 300.0


def reading_server() -> Pool:
    """The server of processes that only read cards; it starts in half the time."""
    return Pool(SCRIPT, modules=("torch", READER))


def measuring_server(threads: int, seed: int = 0) -> Pool:
    """The server of processes that measure this package, and that read cards."""
    return Pool(SCRIPT, modules=(*TORCH, *SHARED), threads=threads, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Share:
    """The cases of a plan that one of several machines measures, and which part of it they are."""

    shard: Shard
    cases: Sequence[Planned]


def measure(
    request: Request,
    plan: Plan,
    pool: Pool,
    folder: Path,
    *,
    share: Share | None = None,
    options_file: bytes = b"",
    before: Callable[[Environment], None] = lambda machine: None,
    announce: Callable[[Environment, storage.Journal], None] = lambda machine, journal: None,
    observe: Callable[[Progress], None] = lambda progress: None,
    observe_block: ObserveBlock = lambda block, series, runs: None,
) -> storage.Journal:
    """Measure a plan, or a share of it, into the folder's journal, which may have begun before.

    The journal is returned open: until the caller closes it nobody else writes to the folder, and
    what happens to the file is noticed. Raises `StoreError`, `CannotRun` if no worker starts, and
    what `before` raises.

    request:       what is asked of the sweep
    plan:          its cases with their cards
    pool:          the processes that measure
    folder:        where the journal is, or begins
    share:         the cases to measure; None: all
    options_file:  the options as TOML, kept next to the journal of a whole sweep
    before:        called with this machine before the journal is opened: it may refuse
    announce:      called with this machine and the journal before anything runs
    observe:       called whenever another process has its turn
    observe_block: called whenever series of a block have been timed
    """
    began_s = time.monotonic()
    machine = environment_of(request, pool)
    before(machine)
    begins = storage.Start(request, machine, share.shard if share else None)
    with ExitStack() as unless_done, ExitStack() as stack:
        journal = unless_done.enter_context(storage.Journal(folder, begins, same_code(plan.cards)))
        pace = stack.enter_context(pace_of(request, pool))
        if share is None and options_file:
            store_options(folder, options_file)
        stored = add_missing_records(journal, plan)
        announce(machine, journal)
        agenda = Agenda(
            request=request,
            plan=share.cases if share else plan.cases,
            memory_bytes=machine.device_memory_bytes or machine.memory_bytes,
            earlier=storage.completed_runs(stored, request),
            begun=began_s,
            rates=peak_rates(machine),
        )
        start = starter(pool, request, pace)
        spare = cores_beside(request, pace)
        visits = partial(make_visits, agenda, start, journal.append, pace=pace, spare=spare)
        try:
            visits(observe=observe, observe_block=observe_block)
        except KeyboardInterrupt:
            journal.end(storage.EndReason.INTERRUPTED)
            raise
        journal.end(storage.EndReason.BUDGET if agenda.over_budget else storage.EndReason.FINISHED)
        unless_done.pop_all()
    return journal


def starter(pool: Pool, request: Request, pace: Pace | None) -> Callable[..., Process]:
    """What starts a process for a series in a round, as `running.sweep` asks for."""
    spare = spare_cores(request.settings.threads, pace)
    limit_bytes = request.settings.memory_limit_bytes

    def start(series: str, *, round_: int = 0, measures_memory: bool = False) -> Process:
        # memory needs no layout of its own, and its process may outlive a round
        server = pool if measures_memory else pool.of_round(round_, request.rounds, spare)
        return server.process(measures_memory=measures_memory, limit_bytes=limit_bytes)

    return start


def spare_cores(threads: int, pace: Pace | None) -> frozenset[int]:
    """Cores on which nothing is timed; none where all may be."""
    if not SYSTEM.binds:
        return frozenset()
    usable = SYSTEM.cores()
    if cores() <= (1 if pace else threads):  # of several, as a container's limit allows
        return frozenset()
    return usable - {pace.core} if pace else usable


def cores_beside(request: Request, pace: Pace | None) -> Collection[int]:
    """Cores on which memory is measured beside races; none where it is measured alone."""
    possible = weighing.is_possible(request, cores())
    return spare_cores(request.settings.threads, pace) if possible else ()


@contextmanager
def pace_of(request: Request, pool: Pool) -> Iterator[Pace | None]:
    """What tells how fast a core is, beside each lap; nothing where wall time is measured,
    or processes cannot be bound to a core.
    """
    if request.settings.clock is not Clock.CPU or not SYSTEM.binds:
        yield None
        return
    with Pace(pool.process, quietest_core()) as pace:
        yield pace


def environment_of(request: Request, pool: Pool) -> Environment:
    """This machine as a request needs it described. Raises `CannotRun` if no worker answers."""
    dtypes = dict.fromkeys(sizes.dtype for sizes in request.sizes)
    return environment(pool, request.device, request.settings.threads, tuple(dtypes))


def environment(
    pool: Pool, device: str, threads: int, dtypes: tuple[str, ...] = ("float32",)
) -> Environment:
    """This machine as a worker sees it, with measured peak rates.

    Raises `CannotRun` if no worker answers.

    pool:    the processes that measure
    device:  whose memory and rates are meant
    threads: of each process
    dtypes:  number types of which the rates are measured
    """
    question = messages.DescribeMachine(device=device, threads=threads, dtypes=dtypes)
    answer = pool.ask(question, PEAKS_TIMEOUT_S)
    if isinstance(answer, messages.Failure):
        raise CannotRun(f"no worker process could be started: {answer.reason}")
    return answer.environment


def store_options(folder: Path, options_file: bytes) -> None:
    """Write the options of a sweep into its folder; those that it began with stay."""
    if not (folder / FILE).exists():
        storage.output.write(folder / FILE, options_file)


def same_code(cards: Iterable[CardFacts]) -> Callable[[Sweep], None]:
    """What raises `DifferentSweep` of a stored sweep in which a card has other code than here."""

    def refuse(sweep: Sweep) -> None:
        facts = {card.mechanism: card for card in sweep.cards}
        for card in cards:
            stored = facts.get(card.mechanism, card)
            if stored.code and card.code and stored.code != card.code:
                raise DifferentSweep(
                    f"cannot resume {sweep.name!r}: the code of {card.mechanism} is not that which"
                    " was measured; measure it into another folder with --out"
                )

    return refuse


def add_missing_records(journal: storage.Journal, plan: Plan) -> Sweep:
    """The stored sweep, after adding cases and cards that its journal lacks, as after damage."""
    planned_keys = {planned.case.key for planned in journal.sweep.plan}
    facts = {card.mechanism: card for card in journal.sweep.cards}
    missing: list[CardFacts | Planned] = [c for c in plan.cards if c.mechanism not in facts]
    missing += [planned for planned in plan.cases if planned.case.key not in planned_keys]
    if missing:
        journal.append(*missing)
    return journal.held()  # runs whose case had been lost count again


def refuse_empty(sweep: Sweep, folder: Path) -> None:
    """Raises `CannotRun`, with the first of the stored reasons, if no case of the sweep ran."""
    if not any(run.elapsed_s for run in sweep.runs):
        raise CannotRun(
            f"nothing was measured: 0 of {units.many(len(sweep.plan), 'case')} ran;"
            f" {first_reason(sweep.plan, sweep.runs)};"
            f" attnbench report '{folder}' lists all, and why"
        )


def first_reason(plan: Iterable[Planned], runs: Iterable[Run]) -> str:
    """Why the first case did not run: `fnet:eager: no causal form`."""
    series = {planned.case.key: planned.case.series for planned in plan}
    return next((f"{series[run.case]}: {run.reason}" for run in runs), "nothing was planned")
