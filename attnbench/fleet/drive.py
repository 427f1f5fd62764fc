"""Drives every shard to its end: submits jobs, watches them, and resubmits lost ones."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from attnbench.errors import CannotRun
from attnbench.fleet import folder as fleets
from attnbench.fleet.engine import Engine, JobState, JobStatus
from attnbench.fleet.folder import Fleet, Job
from attnbench.fleet.split import Units, visits_s
from attnbench.records import Part, Planned, Request, Sweep
from attnbench.run.agenda import blocks
from attnbench.run.process import last_line, tail

MOST_TRIES = 3
PAUSE_S, LONGEST_PAUSE_S, GROWTH = 1.0, 30.0, 1.2  # between polls; short while something happens
OUTAGE_S = 900.0  # an engine that does not answer may be restarting
SILENT = "it printed nothing; do all nodes see the folder?"
ACTIVE = (JobState.WAITING, JobState.RUNNING)


@dataclass(frozen=True, kw_only=True)
class FleetProgress:
    """The progress of all shards together; `left_s` is predicted for the slowest one."""

    shards: int
    running: int
    runs: int  # of cases, timed
    of: int  # that will have been tried when all are done
    left_s: float


@dataclass
class Drive:
    """A fleet's shards and the engine that runs them; `parts` are the units of each shard.

    `run` may be interrupted, and another drive of the same folder continues: the stored state says
    which jobs still run, and the journals what was measured.
    """

    folder: Path
    fleet: Fleet
    engine: Engine
    request: Request
    plan: Sequence[Planned]
    parts: Sequence[Units]
    observe: Callable[[FleetProgress], None] = lambda progress: None
    pause: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    unfinished: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)  # shards that were given up, and why
    sweeps: dict[int, Sweep | None] = field(default_factory=dict)  # as stored when last looked

    def run(self) -> None:
        """Wait until every shard is measured or given up. Raises `CannotRun`."""
        self.begin()
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

    def begin(self) -> None:
        """Submit every shard that is neither measured nor running."""
        self.unfinished = {n for n in range(1, self.fleet.shards + 1) if not self.is_measured(n)}
        seen = self.seen()
        lost = [n for n in self.unfinished if n not in seen or seen[n].state not in ACTIVE]
        if len(lost) == self.fleet.shards and not any(self.sweeps.values()):
            fleets.disclaim(self.folder)
        self.submit({n: Job(id="") for n in lost})

    def poll(self) -> None:
        """Poll jobs and journals once, and resubmit what was lost."""
        seen = self.seen()  # first: a job that ends in between has written its journal
        again: dict[int, Job] = {}
        for number in sorted(self.unfinished):
            job, now = self.fleet.jobs[number], seen[number]
            if self.is_measured(number):
                self.unfinished.remove(number)
            elif now.state is JobState.CANCELLED:
                self.failed[number] = "was cancelled"
            elif now.state is JobState.UNSTARTED:
                again[number] = job
            elif now.state is JobState.ENDED and job.tries >= MOST_TRIES:
                line = last_line(tail(fleets.log(self.folder, number)))
                said = f"its last line: {line}" if line else SILENT
                self.failed[number] = f"was given up after it was lost {MOST_TRIES} times; {said}"
            elif now.state is JobState.ENDED:
                avoid = dict.fromkeys((*job.avoid, *filter(None, [now.node])))
                again[number] = replace(job, tries=job.tries + 1, avoid=tuple(avoid))
        self.unfinished.difference_update(self.failed)  # what they measured is kept
        self.submit(again)
        running = sum(
            now.state is JobState.RUNNING for n, now in seen.items() if n in self.unfinished
        )
        sweeps = [self.sweeps.get(number) for number in range(1, self.fleet.shards + 1)]
        self.observe(progress(self.plan, self.request, self.parts, sweeps, running))

    def seen(self) -> Mapping[int, JobStatus]:
        """What the engine says of the unfinished shards that have a job."""
        ids = {n: self.fleet.jobs[n].id for n in self.unfinished if n in self.fleet.jobs}
        states = self.engine.states(ids.values()) if ids else {}
        return {number: states[id_] for number, id_ in ids.items()}

    def submit(self, jobs: Mapping[int, Job]) -> None:
        """Submit shards, those with the same nodes to avoid together, and store each id at once."""
        for avoid in dict.fromkeys(job.avoid for job in jobs.values()):
            together = sorted(n for n, job in jobs.items() if job.avoid == avoid)
            for number, id_ in self.engine.submit(self.folder, together, avoid):
                new = {number: replace(jobs[number], id=id_)}
                self.fleet = replace(self.fleet, jobs={**self.fleet.jobs, **new})
                fleets.write(self.folder, self.fleet)

    def cancel(self) -> None:
        """End the jobs of the unfinished shards. Raises `CannotRun`."""
        if ids := [job.id for number, job in self.fleet.jobs.items() if number in self.unfinished]:
            self.engine.cancel(ids)

    def is_measured(self, number: int) -> bool:
        """Whether the shard's journal says that it is done."""
        sweep = self.sweeps[number] = fleets.stored(self.folder, number)
        return sweep is not None and sweep.finished


def progress(
    plan: Sequence[Planned],
    request: Request,
    parts: Sequence[Units],
    sweeps: Sequence[Sweep | None],
    running: int,
) -> FleetProgress:
    """The progress of the shards; predictions are scaled by how long the stored runs took.

    Cases that cannot run, or would take too long, do not count.
    """
    of_block, visits = blocks(plan), visits_s(plan, request)
    timed = lacks = 0
    took = expected = most = 0.0
    for part, sweep in zip(parts, sweeps, strict=True):
        runs = (run for run in sweep.runs if run.case in visits) if sweep else ()
        stored = {(run.case, run.round): run for run in runs if run.part is Part.TIME}
        timed += len(stored)
        lacking = []
        for unit in part:
            for key in visits.keys() & {planned.case.key for planned in of_block[unit.block]}:
                if (run := stored.get((key, unit.round))) is None:
                    lacking.append(visits[key])
                elif run.elapsed_s:
                    took, expected = took + run.elapsed_s, expected + visits[key]
        if not (sweep and sweep.finished):
            lacks, most = lacks + len(lacking), max(most, sum(lacking))
    left_s = most * (took / expected if expected else 1.0)
    return FleetProgress(
        shards=len(parts), running=running, runs=timed, of=timed + lacks, left_s=left_s
    )
