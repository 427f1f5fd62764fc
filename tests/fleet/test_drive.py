"""The driver of a fleet against an engine that runs nothing, and real journals."""

from dataclasses import dataclass, field

import pytest

from attnbench.errors import CannotRun
from attnbench.fleet import drive, split
from attnbench.fleet import folder as fleets
from attnbench.fleet.drive import MOST_TRIES, Drive, progress
from attnbench.fleet.engine import JobState, JobStatus
from attnbench.fleet.folder import Fleet, Job
from attnbench.records import EngineKind, Shard
from tests.fleet.shards import measured
from tests.run.sessions import PLAN, REQUEST, planned

ENDED, RUNNING, WAITING = (
    JobStatus(s, "n1") for s in (JobState.ENDED, JobState.RUNNING, JobState.WAITING)
)
LOST = JobStatus(JobState.ENDED, "n1")
DONE = "done"
CANCELLED = JobStatus(JobState.CANCELLED)
UNSTARTED = JobStatus(JobState.UNSTARTED)


@dataclass
class Fake:
    """An engine with a story for each shard: what is seen of its jobs, one look after another.

    Where it is `DONE`, the shard is measured and its job has ended.
    """

    folder: object
    stories: dict
    name, alone = EngineKind.SLURM, True
    submitted: list = field(default_factory=list)
    cancelled: list = field(default_factory=list)
    outage: int = 0
    breaks_off: int | None = None  # after so many jobs of a submission

    def submit(self, folder, shards, avoid=()):
        assert folder == self.folder
        self.submitted.append((tuple(shards), tuple(avoid)))
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
            return ENDED
        return now

    def cancel(self, ids):
        self.cancelled += ids


@pytest.fixture
def driven(tmp_path):
    """Runs a fleet of stories; gives the drive, the engine, and the pauses."""

    def run(*stories, jobs=None, outage=0, breaks_off=None):
        engine = Fake(tmp_path, {i: list(story) for i, story in enumerate(stories, 1)})
        fleet = Fleet(engine=EngineKind.SLURM, shards=len(stories), jobs=jobs or {})
        fleets.prepare(tmp_path, fleet, ("true",))
        units = split.units(PLAN, REQUEST)
        pauses, seen = [], []
        driving = Drive(
            folder=tmp_path,
            fleet=fleet,
            engine=engine,
            request=REQUEST,
            plan=PLAN,
            parts=split.split(units, len(stories)),
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
    assert engine.submitted == [((1, 2, 3), ())]
    assert not driving.failed
    assert not driving.unfinished
    assert [p.running for p in seen] == [2, 1, 0]
    assert [p.runs for p in seen] == sorted(p.runs for p in seen)
    assert seen[0].runs == 0 < seen[0].of
    assert seen[-1].runs == seen[-1].of


def test_a_lost_shard_is_submitted_again_at_once_and_not_to_the_node_that_lost_it(driven):
    driving, engine, _, _ = driven([RUNNING, LOST, RUNNING, DONE], [RUNNING, DONE])
    assert engine.submitted == [((1, 2), ()), ((1,), ("n1",))]
    assert driving.fleet.jobs[1] == Job(id="2_1", tries=2, avoid=("n1",))
    assert not driving.failed


def test_every_node_that_lost_a_shard_is_avoided(driven):
    other = JobStatus(JobState.ENDED, "n2")
    driving, engine, _, _ = driven([LOST, other, DONE], [DONE])
    assert engine.submitted[1:] == [((1,), ("n1",)), ((1,), ("n1", "n2"))]
    assert not driving.failed


def test_shards_that_were_lost_together_are_submitted_together(driven):
    _, engine, _, _ = driven([LOST, DONE], [LOST, DONE], [JobStatus(JobState.ENDED, "n3"), DONE])
    assert engine.submitted[1:] == [((1, 2), ("n1",)), ((3,), ("n3",))]


def test_a_shard_is_given_up_after_three_tries_with_its_last_line(driven, tmp_path):
    (tmp_path / "logs").mkdir()
    fleets.log(tmp_path, 1).write_text("some\nattnbench: no such device\n")
    driving, engine, _, _ = driven([LOST], [DONE])
    assert driving.failed == {
        1: "was given up after it was lost 3 times; its last line: attnbench: no such device"
    }
    assert sum(1 in shards for shards, _ in engine.submitted) == MOST_TRIES


def test_a_shard_that_the_engine_never_started_waits_on_without_a_lost_try(driven):
    story = [LOST, *[WAITING, UNSTARTED] * MOST_TRIES, RUNNING, DONE]
    driving, engine, _, _ = driven(story, [RUNNING, DONE])
    assert not driving.failed
    assert engine.submitted[1:] == [((1,), ("n1",))] * (1 + MOST_TRIES)
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
    assert engine.submitted == [((1,), ())]
    assert not driving.failed


def test_jobs_that_still_run_are_found_again(driven):
    jobs = {1: Job(id="5_1"), 2: Job(id="5_2", tries=3), 3: Job(id="5_3")}
    driving, engine, _, _ = driven(
        [RUNNING, RUNNING, DONE], [LOST, DONE], [WAITING, RUNNING, DONE], jobs=jobs
    )
    assert engine.submitted == [((2,), ())]
    assert {n: job.id for n, job in driving.fleet.jobs.items()} == {1: "5_1", 2: "1_2", 3: "5_3"}


def test_what_was_submitted_before_a_submission_broke_off_is_not_submitted_again(driven, tmp_path):
    with pytest.raises(CannotRun, match="connection was lost"):
        driven([RUNNING], [RUNNING], [RUNNING], breaks_off=1)
    jobs = fleets.read(tmp_path).jobs
    assert jobs == {1: Job(id="1_1")}
    _, engine, _, _ = driven([RUNNING, RUNNING, DONE], [DONE], [DONE], jobs=jobs)
    assert engine.submitted == [((2, 3), ())]


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


def test_the_kind_of_machine_may_change_only_before_anything_was_measured(driven, tmp_path):
    (tmp_path / fleets.MACHINE).touch()
    driven([DONE], [DONE])
    assert not (tmp_path / fleets.MACHINE).exists()
    (tmp_path / fleets.MACHINE).touch()
    driven([DONE], [DONE])
    assert (tmp_path / fleets.MACHINE).exists()


def test_only_open_shards_are_cancelled(driven, tmp_path):
    driving, engine, _, _ = driven([DONE], [CANCELLED])
    driving.unfinished = {2, 3}  # the third was not submitted
    driving.cancel()
    assert engine.cancelled == ["1_2"]


def test_cases_that_cannot_run_are_no_runs_to_come(tmp_path):
    plan = (*PLAN, planned("odd", 128, 10**8, refusal="it cannot"))
    parts = split.split(split.units(plan, REQUEST), 3)
    counts = []
    for number in (1, 2, 3):
        measured(tmp_path / f"shard-{number}", Shard(number, 3), plan=plan)
        sweeps = [fleets.stored(tmp_path, n) for n in (1, 2, 3)]
        found = progress(plan, REQUEST, parts, sweeps, 0)
        counts.append((found.runs, found.of))
    assert counts == [(6, 18), (12, 18), (18, 18)]


def test_the_time_left_is_that_of_the_slowest_shard_at_the_speed_so_far(tmp_path):
    parts = split.split(split.units(PLAN, REQUEST), 3)
    nothing = progress(PLAN, REQUEST, parts, [None] * 3, 0).left_s
    visits = split.visits_s(PLAN, REQUEST)
    assert nothing <= split.makespan_s(parts)
    whole = fleets.stored(tmp_path, 1)
    assert whole is None
    measured(tmp_path / "shard-1", Shard(1, 3))
    one = fleets.stored(tmp_path, 1)
    assert one.finished
    took = sum(run.elapsed_s for run in one.runs if run.samples)
    slower = took / sum(visits[run.case] for run in one.runs if run.samples)
    lacking = max(
        sum(visits[p.case.key] for u in part for p in PLAN if p.block == u.block)
        for part in parts[1:]
    )
    found = progress(PLAN, REQUEST, parts, [one, None, None], 2)
    assert found.left_s == pytest.approx(lacking * slower)
