"""The driver of a fleet against an engine that runs nothing, and real journals."""

from dataclasses import dataclass, field

import pytest

from attnbench.errors import CannotRun
from attnbench.fleet import drive
from attnbench.fleet import folder as fleets
from attnbench.fleet.drive import MOST_TRIES, Drive
from attnbench.fleet.engine import JobState
from attnbench.fleet.folder import Fleet, Job
from attnbench.records import EngineKind, Shard
from tests.fleet.shards import measured

LOST, RUNNING, WAITING = JobState.ENDED, JobState.RUNNING, JobState.WAITING
CANCELLED, UNSTARTED = JobState.CANCELLED, JobState.UNSTARTED
DONE = "done"


@dataclass
class Fake:
    """An engine with a story for each shard: what is seen of its jobs, one look after another.

    Where it is `DONE`, the shard is measured and its job has ended.
    """

    folder: object
    stories: dict
    name, alone, ends = EngineKind.SLURM, True, "scancel"
    submitted: list = field(default_factory=list)
    outage: int = 0
    breaks_off: int | None = None  # after so many jobs of a submission

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
        return {id_: self.seen(int(id_.partition("_")[2])) for id_ in ids}

    def seen(self, number):
        story = self.stories[number]
        now = story.pop(0) if len(story) > 1 else story[0]
        if now is DONE:
            shard = fleets.shard_folder(self.folder, number)
            if not shard.exists():
                measured(shard, Shard(number, len(self.stories)))
            return LOST
        return now


@pytest.fixture
def driven(tmp_path):
    """Runs a fleet of stories; gives the drive, the engine, and the pauses."""

    def run(*stories, jobs=None, outage=0, breaks_off=None):
        engine = Fake(tmp_path, {i: list(story) for i, story in enumerate(stories, 1)})
        fleet = Fleet(engine=EngineKind.SLURM, shards=len(stories), jobs=jobs or {})
        fleets.prepare(tmp_path, fleet, ("true",))
        pauses, seen = [], []
        driving = Drive(
            folder=tmp_path,
            fleet=fleet,
            engine=engine,
            observe=seen.append,
            pause=pauses.append,
            clock=lambda: sum(pauses),
        )
        engine.outage, engine.breaks_off = outage, breaks_off
        try:
            driving.run()
        finally:
            assert fleets.read(tmp_path) == driving.fleet
        return driving, engine, pauses, seen

    return run


def test_all_shards_are_submitted_once_as_one_array(driven):
    driving, engine, _, seen = driven([WAITING, RUNNING, DONE], [RUNNING, DONE], [RUNNING, DONE])
    assert engine.submitted == [(1, 2, 3)]
    assert not driving.failed
    assert not driving.unfinished
    assert seen == [(1, 2, 0), (0, 1, 2), (0, 0, 3)]


def test_a_lost_shard_is_submitted_again_at_once(driven):
    driving, engine, _, _ = driven([RUNNING, LOST, RUNNING, DONE], [RUNNING, DONE])
    assert engine.submitted == [(1, 2), (1,)]
    assert driving.fleet.jobs[1] == Job(id="2_1", tries=2)
    assert not driving.failed


def test_shards_that_were_lost_together_are_submitted_together(driven):
    _, engine, _, _ = driven([LOST, DONE], [LOST, DONE], [RUNNING, DONE])
    assert engine.submitted[1:] == [(1, 2)]


def test_a_shard_is_given_up_after_three_tries_with_its_last_line(driven, tmp_path):
    (tmp_path / "logs").mkdir()
    fleets.log(tmp_path, 1).write_text("some\nattnbench: no such device\n")
    driving, engine, _, _ = driven([LOST], [DONE])
    assert driving.failed == {
        1: "was given up after it was lost 3 times; its last line: attnbench: no such device"
    }
    assert sum(1 in shards for shards in engine.submitted) == MOST_TRIES


def test_a_shard_that_the_engine_never_started_waits_on_without_a_lost_try(driven):
    story = [LOST, *[WAITING, UNSTARTED] * MOST_TRIES, RUNNING, DONE]
    driving, engine, _, _ = driven(story, [RUNNING, DONE])
    assert not driving.failed
    assert engine.submitted[1:] == [(1,)] * (1 + MOST_TRIES)
    assert driving.fleet.jobs[1].tries == 2


def test_a_shard_that_printed_nothing_may_not_see_the_folder(driven):
    driving, *_ = driven([LOST])
    assert driving.failed[1].endswith("it printed nothing; do all nodes see the folder?")


def test_a_cancelled_shard_is_not_submitted_again(driven):
    driving, engine, _, _ = driven([RUNNING, CANCELLED], [RUNNING, DONE])
    assert driving.failed == {1: "was cancelled"}
    assert len(engine.submitted) == 1


def test_a_shard_that_was_measured_counts_whatever_became_of_its_job(driven, tmp_path):
    measured(tmp_path / "shard-2", Shard(2, 2))
    driving, engine, _, _ = driven([RUNNING, DONE], [LOST])
    assert engine.submitted == [(1,)]
    assert not driving.failed


def test_jobs_that_still_run_are_found_again(driven):
    jobs = {1: Job(id="5_1"), 2: Job(id="5_2", tries=3), 3: Job(id="5_3")}
    driving, engine, _, _ = driven(
        [RUNNING, RUNNING, DONE], [LOST, DONE], [WAITING, RUNNING, DONE], jobs=jobs
    )
    assert engine.submitted == [(2,)]
    assert {n: job.id for n, job in driving.fleet.jobs.items()} == {1: "5_1", 2: "1_2", 3: "5_3"}


def test_what_was_submitted_before_a_submission_broke_off_is_not_submitted_again(driven, tmp_path):
    with pytest.raises(CannotRun, match="connection was lost"):
        driven([RUNNING], [RUNNING], [RUNNING], breaks_off=1)
    jobs = fleets.read(tmp_path).jobs
    assert jobs == {1: Job(id="1_1")}
    _, engine, _, _ = driven([RUNNING, RUNNING, DONE], [DONE], [DONE], jobs=jobs)
    assert engine.submitted == [(2, 3)]


def test_an_engine_may_be_silent_for_a_while(driven):
    driving, _, pauses, _ = driven([RUNNING, RUNNING, DONE], outage=5)
    assert not driving.failed
    assert len(pauses) > 5


def test_an_engine_that_stays_silent_is_given_up(driven):
    with pytest.raises(CannotRun, match="controller does not answer"):
        driven([RUNNING], outage=10_000)


def test_the_pauses_grow_while_nothing_happens(driven):
    _, _, pauses, _ = driven([RUNNING] * 40 + [DONE])
    assert pauses[0] == drive.PAUSE_S
    assert sorted(pauses) == pauses
    assert max(pauses) == drive.LONGEST_PAUSE_S
