"""The driver of a fleet against an engine that runs nothing, and real journals."""

from dataclasses import replace

import pytest

from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.drive import MOST_TRIES, drive
from attnbench.commands.sweeping.cluster.folder import Fleet, Job
from attnbench.errors import CannotRun
from attnbench.records import EngineKind, Shard
from attnbench.running.request.requests import to_toml
from tests.commands.sweeping.cluster.shards import measured
from tests.doubles.engine import CANCELLED, DONE, LOST, RUNNING, UNSTARTED, WAITING, Engine
from tests.running.sessions import REQUEST


@pytest.fixture
def driven(tmp_path):
    """Drives a fleet of stories."""

    def run(*stories, jobs=None, **how):
        engine = Engine(tmp_path, {i: list(story) for i, story in enumerate(stories, 1)}, **how)
        fleet = Fleet(engine=EngineKind.SLURM, shards=len(stories), jobs=jobs or {})
        fleets.prepare(tmp_path, fleet, ("true",))
        engine.failed = drive(tmp_path, engine, engine.seen.append, engine.pauses.append)
        return engine

    return run


def test_all_shards_are_submitted_once_as_one_array(driven):
    done = driven([WAITING, RUNNING, DONE], [RUNNING, DONE], [RUNNING, DONE])
    assert done.submitted == [(1, 2, 3)]
    assert not done.failed
    assert done.seen == [
        "0 shards running, 3 waiting, 0 ended",
        "2 shards running, 1 waiting, 0 ended",
        "1 shard running, 0 waiting, 2 ended",
        "0 shards running, 0 waiting, 3 ended",
    ]


def test_shards_that_were_lost_together_are_submitted_together(driven):
    done = driven([LOST, DONE], [LOST, DONE], [RUNNING, DONE])
    assert done.submitted == [(1, 2, 3), (1, 2)]
    assert done.jobs[1] == Job(id="2_1", tries=2)
    assert not done.failed


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("some\nattnbench: no such device\n", "its last line: attnbench: no such device"),
        ("", "it printed nothing; do all nodes see the folder?"),
    ],
)
def test_a_shard_is_given_up_after_three_tries_with_its_last_line(printed, said, driven, tmp_path):
    (tmp_path / "logs").mkdir()
    fleets.log(tmp_path, 1).write_text(printed)
    done = driven([LOST], [DONE])
    assert done.failed == {1: f"was given up after it was lost 3 times; {said}"}
    assert sum(1 in shards for shards in done.submitted) == MOST_TRIES


def test_a_shard_that_the_engine_never_started_waits_on_without_a_lost_try(driven):
    story = [LOST, *[WAITING, UNSTARTED] * MOST_TRIES, RUNNING, DONE]
    done = driven(story, [RUNNING, DONE])
    assert not done.failed
    assert done.submitted[1:] == [(1,)] * (1 + MOST_TRIES)
    assert done.jobs[1].tries == 2


def test_a_cancelled_shard_is_not_submitted_again(driven):
    done = driven([RUNNING, CANCELLED], [RUNNING, DONE])
    assert done.failed == {1: "was cancelled"}
    assert len(done.submitted) == 1


def test_a_shard_that_was_measured_counts_whatever_became_of_its_job(driven, tmp_path):
    measured(tmp_path / "shard-2", Shard(2, 2))
    done = driven([RUNNING, DONE], [LOST])
    assert done.submitted == [(1,)]
    assert not done.failed


def test_shards_that_ended_at_smaller_limits_are_submitted_again(driven, tmp_path):
    for number in (1, 2, 3):
        rounds = 5 if number == 3 else 3
        folder = fleets.shard_folder(tmp_path, number)
        measured(folder, Shard(number, 3), request=replace(REQUEST, rounds=rounds))
    (tmp_path / fleets.OPTIONS).write_bytes(to_toml({"rounds": 5}))
    more = replace(REQUEST, rounds=5)
    done = driven([RUNNING, DONE], [RUNNING, DONE], [DONE], request=more)
    assert done.submitted == [(1, 2)]
    assert not done.failed
    assert {run.round for run in fleets.stored(tmp_path, 1).runs} == {*range(5)}
    (tmp_path / fleets.OPTIONS).write_bytes(to_toml({"rounds": 4}))
    assert driven([LOST], [LOST], [LOST]).submitted == []


@pytest.fixture
def smaller(tmp_path):
    """The only shard ended well with fewer rounds than are asked for now; the request of now."""
    measured(tmp_path / "shard-1", Shard(1, 1), request=replace(REQUEST, rounds=3))
    (tmp_path / fleets.OPTIONS).write_bytes(to_toml({"rounds": 5}))
    return replace(REQUEST, rounds=5)


def test_a_job_that_ended_well_at_an_earlier_limit_is_no_lost_try(driven, smaller):
    jobs = {1: Job(id="5_1", tries=MOST_TRIES)}
    done = driven([RUNNING, RUNNING, LOST, RUNNING, DONE], jobs=jobs, request=smaller)
    assert not done.failed
    assert done.jobs == {1: Job(id="1_1", tries=1)}


def test_a_shard_that_is_lost_before_it_goes_on_is_given_up(driven, smaller):
    done = driven([RUNNING, RUNNING, LOST], jobs={1: Job(id="5_1")}, request=smaller)
    assert done.failed[1].startswith("was given up after it was lost 3 times")
    assert done.submitted == [(1,)] * MOST_TRIES


def test_jobs_that_have_ended_are_forgotten_when_a_fleet_goes_on(driven, tmp_path):
    jobs = {1: Job(id="5_1"), 2: Job(id="5_2")}
    with pytest.raises(CannotRun, match="connection was lost"):
        driven([LOST], [RUNNING], jobs=jobs, breaks_off=0)
    assert fleets.read(tmp_path).jobs == {2: Job(id="5_2")}


def test_jobs_that_still_run_are_found_again(driven):
    jobs = {1: Job(id="5_1"), 2: Job(id="5_2", tries=3), 3: Job(id="5_3")}
    stories = [RUNNING, RUNNING, DONE], [LOST, DONE], [WAITING, RUNNING, DONE]
    done = driven(*stories, jobs=jobs)
    assert done.submitted == [(2,)]
    assert {n: job.id for n, job in done.jobs.items()} == {1: "5_1", 2: "1_2", 3: "5_3"}


def test_what_was_submitted_before_a_submission_broke_off_is_not_submitted_again(driven, tmp_path):
    with pytest.raises(CannotRun, match="connection was lost"):
        driven([RUNNING], [RUNNING], [RUNNING], breaks_off=1)
    jobs = fleets.read(tmp_path).jobs
    assert jobs == {1: Job(id="1_1")}
    done = driven([RUNNING, RUNNING, DONE], [DONE], [DONE], jobs=jobs)
    assert done.submitted == [(2, 3)]


def test_an_engine_may_be_silent_for_a_while_but_not_for_ever(driven):
    done = driven([RUNNING, RUNNING, DONE], outage=5)
    assert not done.failed
    assert len(done.pauses) > 5
    with pytest.raises(CannotRun, match="controller does not answer"):
        driven([RUNNING], [RUNNING], outage=10_000)
