"""Sweeps on a real Slurm of three nodes: one report, whatever is killed on the way."""

import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.commands.sweeping.cluster.engine import JobState
from attnbench.commands.sweeping.cluster.folder import Fleet
from attnbench.commands.sweeping.cluster.slurm import Slurm, job_state
from attnbench.errors import CannotRun, UsageError
from attnbench.records import EngineKind
from attnbench.records.storage.journal import load
from attnbench.records.units import many
from tests.commands.sweeping.cluster import cluster as clusters
from tests.commands.sweeping.cluster.cluster import Cluster, kill, processes_with, until
from tests.commands.sweeping.cluster.sweeps import LONG, LONGER, ended, start, stored, whole


@pytest.fixture(scope="module")
def cluster():
    """Three nodes; their socket needs a short path."""
    if reason := clusters.missing():
        assert not os.environ.get(clusters.REQUIRED), reason
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    try:
        with Cluster(folder) as running:
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def idle(cluster):
    """The cluster without jobs of another test."""
    yield cluster
    cluster.asked("scancel", "--user=root")
    until(lambda: not cluster.asked("squeue", "-h", "-o", "%i"), "the end of all jobs")


def begun(cluster, out, *arguments, **how):
    """A driver on Slurm that has not ended yet."""
    return start(out, "--on", "slurm", *arguments, env=cluster.environment, **how)


@pytest.mark.long
def test_three_shards_on_three_nodes_give_one_report(idle, tmp_path):
    out = tmp_path / "a sweep, 5 %a"
    printed, err = ended(begun(idle, out, "--shards", "3"))
    sweep = whole(out, 3)
    assert {run.origin.host for run in sweep.runs} == set(clusters.NODES)
    assert {run.origin.attempt for run in sweep.runs} == {1}
    assert "Inference time" in printed
    assert (
        "3 shards on slurm, each on cpu and alone on its node"
        " (--slurm --oversubscribe lets it share); 64 tokens per batch, float32, 3 rounds;"
        " predicted " in err
    )
    assert "3 shards merged in" in err
    assert (out / "fig2.png").read_bytes().startswith(b"\x89PNG")
    assert "Divided into 3 shards." in (out / "tables.md").read_text()
    assert set(idle.jobs().values()) == {"COMPLETED"}
    assert all("shard " in fleets.log(out, number).read_text() for number in (1, 2, 3))


@pytest.mark.long
def test_what_a_killed_job_measured_is_kept_and_the_rest_measured(idle, tmp_path):
    driver = begun(idle, tmp_path, "--shards", "2", *LONG)
    until(lambda: stored(tmp_path, 2) > 1, "runs of shard 2")
    first = fleets.read(tmp_path).jobs[2]
    kill(processes_with(str(tmp_path / "shard-2")))
    kept = {(r.case, r.part, r.round) for r in fleets.stored(tmp_path, 2).runs}
    ended(driver)
    sweep = whole(tmp_path, 2)
    second = fleets.read(tmp_path).jobs[2]
    assert (first.tries, second.tries) == (1, 2)
    origins = {
        (r.case, r.part, r.round): r.origin for r in sweep.runs if r.origin.shard.number == 2
    }
    assert {origin.attempt for origin in origins.values()} == {1, 2}
    assert {origins[key].attempt for key in kept} == {1}


@pytest.mark.long
def test_an_interrupt_leaves_the_jobs_resume_finds_them_and_cancelled_ones_end_the_sweep(
    idle, tmp_path
):
    driver = begun(idle, tmp_path, "--shards", "2", *LONGER)
    until(lambda: stored(tmp_path, 1) and stored(tmp_path, 2), "runs of both shards")
    jobs = fleets.read(tmp_path).jobs
    ids = [job.id for job in jobs.values()]
    os.kill(driver.pid, signal.SIGINT)
    _, err = ended(driver, 130)
    assert (
        f"interrupted; jobs {', '.join(ids)} keep running (scancel ends them);"
        f" attnbench sweep --resume '{tmp_path}' continues" in err
    )
    assert set(idle.asked("squeue", "-h", "-r", "-o", "%i").split()) == {*ids}
    driver = begun(idle, tmp_path, *LONGER)  # the default number of shards is the stored one
    assert next(line for line in driver.stderr if "shards running" in line)
    idle.asked("scancel", *ids)
    _, err = ended(driver, 4)
    assert fleets.read(tmp_path).jobs == jobs
    last = err.strip().splitlines()[-1]
    merged = f"merged: {many(len(load(tmp_path).runs), 'run')}"
    merged += f"; attnbench sweep --resume '{tmp_path}' continues"
    assert last == f"attnbench: shard 1/2 (and 1 other) was cancelled; {merged}"
    assert not load(tmp_path).finished
    ended(begun(idle, tmp_path, *LONGER))
    assert {run.origin.attempt for run in whole(tmp_path, 2).runs} == {1, 2}


@pytest.mark.long
def test_what_sbatch_refuses_is_said_and_can_be_mended(idle, tmp_path):
    out = tmp_path / "out"
    _, err = ended(begun(idle, out, "--shards", "2", "--slurm", "--partition=none"), 2)
    *_, last = err.splitlines()
    assert "sbatch: error: " in last
    assert last.endswith(f"; attnbench sweep --resume '{out}' continues")
    ended(begun(idle, out, "--slurm", "--partition=all"))
    whole(out, 2)


@pytest.mark.long
def test_shards_that_have_ended_go_on_with_more_rounds(idle, tmp_path):
    ended(begun(idle, tmp_path, "--shards", "2", *LONG))
    whole(tmp_path, 2)
    _, err = ended(begun(idle, tmp_path, *LONG, "--lengths", "16,32"), 2)
    assert "as another sweep (lengths: " in err.splitlines()[-1]
    ended(begun(idle, tmp_path, *LONG, "--rounds", "4"))
    sweep = whole(tmp_path, 2, rounds=4)
    assert {run.origin.attempt for run in sweep.runs} == {1, 2}


@pytest.mark.long
def test_what_was_accepted_without_an_answer_is_found_in_the_queue(idle, tmp_path):
    out = tmp_path / "out"
    mark = tmp_path / "mark"
    real = shutil.which("sbatch")
    silent = tmp_path / "sbatch"
    silent.write_text(
        f'#!/bin/sh\n{real} "$@" || exit\n[ -e {mark} ] || {{ touch {mark}; exit 1; }}\n'
    )
    silent.chmod(0o755)
    env = {**idle.environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    options = ("--on", "slurm", "--shards", "2")
    _, err = ended(start(out, *options, env=env), 2)
    assert "sbatch: exit 1; attnbench sweep --resume" in err.splitlines()[-1]
    assert fleets.read(out).jobs == {}
    ended(start(out, *options, env=env))
    assert len({job.id.partition("_")[0] for job in fleets.read(out).jobs.values()}) == 1
    assert {run.origin.attempt for run in whole(out, 2).runs} == {1}


@pytest.mark.parametrize(
    ("means", "states"),
    [
        (JobState.WAITING, "PENDING"),
        (JobState.RUNNING, "RUNNING COMPLETING"),
        (JobState.CANCELLED, "CANCELLED"),
        (JobState.ENDED, "PREEMPTED COMPLETED FAILED TIMEOUT NODE_FAIL OUT_OF_MEMORY"),
    ],
)
def test_states(means, states):
    assert {job_state(state) for state in states.split()} == {means}


def test_without_slurm_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotRun, match=r"no sbatch on the PATH; .* --shard I/N"):
        Slurm()


def test_options_that_do_not_parse_are_refused(tmp_path, monkeypatch):
    (tmp_path / "sbatch").write_text("#!/bin/sh\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="--slurm '\"' does not parse"):
        Slurm('"')


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Commands of Slurm that accept everything, and write down what they were given.

    sbatch answers with 7, and squeue with the lines of `squeue.answer`, if there is one.
    """
    lines = 'while read line; do echo "$line"; done < "$0.answer"'
    queue = f'[ ! -e "$0.answer" ] || {lines}'
    for name, does in {"sinfo": ":", "sbatch": "echo 7", "squeue": queue}.items():
        script = f'#!/bin/sh\nprintf "%s\\n" "$@" > "$0.given"\n{does}\n'
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    ("options", "gpus", "given"),
    [
        ("", 0, ["--cpus-per-task=2", "--exclusive"]),
        ("-t 60 --oversubscribe", 0, ["--cpus-per-task=2", "-t", "60", "--oversubscribe"]),
        ("--gres=gpu:h100:1", 1, ["--cpus-per-task=2", "--gres=gpu:h100:1"]),
    ],
)
def test_a_shard_has_a_node_of_its_own_unless_it_has_a_gpu(
    options, gpus, given, tmp_path, commands
):
    fleets.write(tmp_path, Fleet(engine=EngineKind.SLURM, shards=1))
    list(Slurm(options, gpus, cpus=2).submit(tmp_path, [1]))
    words = (tmp_path / "sbatch.given").read_text().splitlines()
    assert words[-1 - len(given) : -1] == given


def test_a_folder_with_a_percent_sign_gets_the_logs_of_its_shards(tmp_path, commands):
    folder = tmp_path / "5 %a"
    folder.mkdir()
    fleets.write(folder, Fleet(engine=EngineKind.SLURM, shards=2))
    assert list(Slurm().submit(folder, [1, 2])) == [(1, "7_1"), (2, "7_2")]
    given = (tmp_path / "sbatch.given").read_text().splitlines()
    (pattern,) = (word.partition("=")[2] for word in given if word.startswith("--output="))
    # as Slurm does for task 2
    named = re.sub("%([%a])", lambda sign: {"%": "%", "a": "2"}[sign[1]], pattern)
    assert named == str(fleets.log(folder, 2))


def test_a_shard_that_is_in_the_queue_already_is_not_submitted_again(tmp_path, commands):
    name = fleets.job_name(tmp_path / "a, sweep")
    assert re.fullmatch(r"attnbench-a--sweep-[0-9a-f]{8}", name)
    fleets.write(tmp_path, Fleet(engine=EngineKind.SLURM, shards=3, name=name))
    (tmp_path / "squeue.answer").write_text("6_1|PENDING\n6_2|RUNNING\n")
    assert list(Slurm().submit(tmp_path, [1, 3])) == [(1, "6_1"), (3, "7_3")]
    assert f"--name={name}" in (tmp_path / "squeue.given").read_text().splitlines()
    given = (tmp_path / "sbatch.given").read_text().splitlines()
    assert {"--array=3", f"--job-name={name}"} < {*given}
    (tmp_path / "sbatch.given").unlink()
    assert list(Slurm().submit(tmp_path, [2])) == [(2, "6_2")]
    assert not (tmp_path / "sbatch.given").exists()


def test_what_has_ended_or_is_no_task_of_an_array_is_not_taken_for_a_shard(tmp_path, commands):
    fleets.write(tmp_path, Fleet(engine=EngineKind.SLURM, shards=3, name="a"))
    (tmp_path / "squeue.answer").write_text(
        "6_1|FAILED\n6_2|CANCELLED\n6_3|COMPLETING\n6_[1-3]|PENDING\n8|RUNNING\n"
    )
    assert list(Slurm().submit(tmp_path, [1, 2, 3])) == [(3, "6_3"), (1, "7_1"), (2, "7_2")]
    given = (tmp_path / "squeue.given").read_text().splitlines()
    assert given[given.index("-t") + 1] == "all"
    assert given[-1] == "%i|%T"
