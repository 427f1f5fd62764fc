"""An engine of a cluster that runs nothing: what becomes of each job is a story."""

from dataclasses import dataclass, field

from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.engine import JobState
from attnbench.errors import CannotRun
from attnbench.records import Request, Shard
from tests.commands.sweeping.cluster.shards import measured
from tests.running.sessions import REQUEST

LOST = JobState.ENDED
RUNNING = JobState.RUNNING
WAITING = JobState.WAITING
CANCELLED = JobState.CANCELLED
UNSTARTED = JobState.UNSTARTED
DONE = "done"


@dataclass
class Engine:
    """An engine with a story for each shard: what is seen of its jobs, one look after another.

    Where it is `DONE`, the shard is measured and its job has ended.
    """

    folder: object
    stories: dict
    alone = True
    ends = "scancel"
    submitted: list = field(default_factory=list)
    outage: int = 0
    request: Request = REQUEST  # of what is measured
    breaks_off: int | None = None  # after so many jobs of a submission
    failed: dict = field(default_factory=dict)  # what `drive` returned, was told, and paused
    pauses: list = field(default_factory=list)
    seen: list = field(default_factory=list)

    @property
    def jobs(self):
        return fleets.read(self.folder).jobs

    def submit(self, folder, shards):
        assert folder == self.folder
        self.submitted.append(tuple(shards))
        for count, number in enumerate(shards):
            if count == self.breaks_off:
                raise CannotRun("Ray: the connection was lost")
            yield number, f"{len(self.submitted)}_{number}"

    def states(self, ids):
        if self.outage:
            self.outage -= 1
            raise CannotRun("squeue: the controller does not answer")
        return {id_: self.look(int(id_.partition("_")[2])) for id_ in ids}

    def look(self, number):
        story = self.stories[number]
        now = story.pop(0) if len(story) > 1 else story[0]
        if now is DONE:
            if not fleets.is_measured(self.folder, number, fleets.asked(self.folder)):
                shard = fleets.shard_folder(self.folder, number)
                measured(shard, Shard(number, len(self.stories)), request=self.request)
            return LOST
        return now
