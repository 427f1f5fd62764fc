"""Drives every shard to its end: submits jobs, watches them, and resubmits lost ones."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.engine import ACTIVE, Engine, JobState
from attnbench.commands.sweeping.cluster.folder import Fleet, Job
from attnbench.errors import CannotRun
from attnbench.records import units
from attnbench.running.process import last_line, tail

MOST_TRIES = 3
PAUSE_S = 5.0  # between looks at the queue
OUTAGE_S = 900.0  # an engine that does not answer may be restarting
SILENT = "it printed nothing; do all nodes see the folder?"


def drive(
    folder: Path,
    engine: Engine,
    observe: Callable[[str], None] = lambda progress: None,
    pause: Callable[[float], None] = time.sleep,
) -> dict[int, str]:
    """Wait until every shard is measured or given up; the reason of each that is, by its number.

    `engine` has the jobs of the fleet in `folder`; `observe` gets the progress in words whenever a
    shard has begun or ended, and `pause` waits for so many seconds. A wait that is interrupted can
    be repeated: the stored state says which jobs still run. Raises `CannotRun`.
    """
    fleet = fleets.read(folder)
    asked = fleets.asked(folder)
    jobs = active_jobs(fleet, engine)
    inherited = [*jobs.values()]  # all later ones begin with the limits of now
    fleets.write(folder, replace(fleet, jobs=jobs))
    failed: dict[int, str] = {}

    def poll() -> list[JobState]:
        # first: a job that ends in between has written its journal
        states_by_id = engine.states([job.id for job in jobs.values()]) if jobs else {}
        tries = dict[int, int]()  # of each shard that is to start
        states = list[JobState]()  # of the unfinished shards
        for number in range(1, fleet.shards + 1):
            if number in failed or fleets.is_measured(folder, number, asked):
                continue
            job = jobs.get(number)
            state = states_by_id[job.id] if job else JobState.UNSTARTED
            if state is JobState.ENDED and job in inherited and has_ended_well(folder, number):
                job, state = None, JobState.UNSTARTED  # its limits were smaller
            if state is JobState.CANCELLED:
                failed[number] = "was cancelled"
            elif state is JobState.ENDED and job and job.tries >= MOST_TRIES:
                failed[number] = giving_up(folder, number)
            else:
                states.append(state)
                if state not in ACTIVE:
                    tries[number] = (job.tries if job else 1) + (state is JobState.ENDED)
        submit(folder, engine, jobs, tries)
        return states

    silent_s = OUTAGE_S  # at first it must answer
    last_progress = ""
    states = [JobState.WAITING]
    while states:
        try:
            states = poll()
            silent_s = 0.0
        except CannotRun:
            silent_s += PAUSE_S
            if silent_s > OUTAGE_S:
                raise
        progress = progress_of(states, fleet.shards)
        if progress != last_progress:
            observe(progress)
            last_progress = progress
        if states:
            pause(PAUSE_S)
    return failed


def active_jobs(fleet: Fleet, engine: Engine) -> dict[int, Job]:
    """The jobs of a fleet that still wait or run, by their shards. Raises `CannotRun`."""
    states = engine.states([job.id for job in fleet.jobs.values()]) if fleet.jobs else {}
    return {number: job for number, job in fleet.jobs.items() if states[job.id] in ACTIVE}


def submit(folder: Path, engine: Engine, jobs: dict[int, Job], tries: Mapping[int, int]) -> None:
    """Submit the shards that have `tries`, and store each new job among all. Raises `CannotRun`."""
    fleet = fleets.read(folder)
    for number, id_ in engine.submit(folder, sorted(tries)) if tries else ():
        jobs[number] = Job(id=id_, tries=tries[number])
        fleets.write(folder, replace(fleet, jobs=jobs))


def has_ended_well(folder: Path, number: int) -> bool:
    """Whether a shard ended, by its journal, at whatever limits."""
    return fleets.is_measured(folder, number, {})


def giving_up(folder: Path, number: int) -> str:
    """What became of a shard that was lost too often, with the last line of its output."""
    line = last_line(tail(fleets.log(folder, number)))
    ending = f"its last line: {line}" if line else SILENT
    return f"was given up after it was lost {MOST_TRIES} times; {ending}"


def progress_of(states: Sequence[JobState], shards: int) -> str:
    """How many of the shards run, wait and have ended, by the states of the unfinished ones."""
    running = states.count(JobState.RUNNING)
    waiting = len(states) - running
    ended = shards - len(states)
    return f"{units.many(running, 'shard')} running, {waiting} waiting, {ended} ended"
