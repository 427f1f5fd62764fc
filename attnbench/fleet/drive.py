"""Drives every shard to its end: submits jobs, watches them, and resubmits lost ones."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from attnbench.errors import CannotRun
from attnbench.fleet import folder as fleets
from attnbench.fleet.engine import Engine, JobState
from attnbench.fleet.folder import Fleet, Job
from attnbench.records import Sweep
from attnbench.run.process import last_line, tail

MOST_TRIES = 3
PAUSE_S, LONGEST_PAUSE_S, GROWTH = 1.0, 30.0, 1.2  # between polls; short while something happens
OUTAGE_S = 900.0  # an engine that does not answer may be restarting
SILENT = "it printed nothing; do all nodes see the folder?"
ACTIVE = (JobState.WAITING, JobState.RUNNING)


class FleetProgress(NamedTuple):
    """How many shards wait for a device, run, and have ended."""

    waiting: int
    running: int
    ended: int


@dataclass
class Drive:
    """A fleet's shards and the engine that runs them.

    `run` may be interrupted, and another drive of the same folder continues: the stored state says
    which jobs still run, and the journals what was measured.
    """

    folder: Path
    fleet: Fleet
    engine: Engine
    observe: Callable[[FleetProgress], None] = lambda progress: None
    pause: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    unfinished: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)  # shards that were given up, and why
    sweeps: dict[int, Sweep | None] = field(default_factory=dict)  # as stored when last looked

    def run(self) -> None:
        """Wait until every shard is measured or given up. Raises `CannotRun`."""
        self.unfinished = {n for n in range(1, self.fleet.shards + 1) if not self.is_measured(n)}
        seen = self.seen()
        self.submit({n: Job(id="") for n in self.unfinished if seen.get(n) not in ACTIVE})
        pause_s, answered_s = PAUSE_S, self.clock()
        while self.unfinished:
            self.pause(pause_s)
            before = len(self.unfinished), self.fleet
            try:
                self.poll()
                answered_s = self.clock()
            except CannotRun:
                if self.clock() - answered_s > OUTAGE_S:
                    raise
            same = before == (len(self.unfinished), self.fleet)
            pause_s = min(LONGEST_PAUSE_S, GROWTH * pause_s) if same else PAUSE_S

    def poll(self) -> None:
        """Poll jobs and journals once, and resubmit what was lost."""
        seen = self.seen()  # first: a job that ends in between has written its journal
        again: dict[int, Job] = {}
        for number in sorted(self.unfinished):
            job = self.fleet.jobs[number]
            if self.is_measured(number):
                self.unfinished.remove(number)
            elif seen[number] is JobState.CANCELLED:
                self.failed[number] = "was cancelled"
            elif seen[number] is JobState.UNSTARTED:
                again[number] = job
            elif seen[number] is JobState.ENDED and job.tries >= MOST_TRIES:
                line = last_line(tail(fleets.log(self.folder, number)))
                said = f"its last line: {line}" if line else SILENT
                self.failed[number] = f"was given up after it was lost {MOST_TRIES} times; {said}"
            elif seen[number] is JobState.ENDED:
                again[number] = replace(job, tries=job.tries + 1)
        self.unfinished.difference_update(self.failed)  # what they measured is kept
        self.submit(again)
        states = [seen[number] for number in self.unfinished]
        running, ended = states.count(JobState.RUNNING), self.fleet.shards - len(states)
        self.observe(FleetProgress(len(states) - running, running, ended))

    def seen(self) -> Mapping[int, JobState]:
        """What the engine says of the unfinished shards that have a job."""
        ids = {n: self.fleet.jobs[n].id for n in self.unfinished if n in self.fleet.jobs}
        states = self.engine.states(ids.values()) if ids else {}
        return {number: states[id_] for number, id_ in ids.items()}

    def submit(self, jobs: Mapping[int, Job]) -> None:
        """Submit shards together, and store each id at once."""
        for number, id_ in self.engine.submit(self.folder, sorted(jobs)) if jobs else ():
            new = {number: replace(jobs[number], id=id_)}
            self.fleet = replace(self.fleet, jobs={**self.fleet.jobs, **new})
            fleets.write(self.folder, self.fleet)

    def is_measured(self, number: int) -> bool:
        """Whether the shard's journal says that it is done."""
        sweep = self.sweeps[number] = fleets.stored(self.folder, number)
        return sweep is not None and sweep.finished
