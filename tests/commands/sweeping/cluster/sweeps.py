"""Small sweeps on a cluster, each driven by a process of the real command line."""

import os
import subprocess
import sys
from pathlib import Path

from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.records import Shard
from attnbench.records.storage import schema
from attnbench.records.storage.journal import FILE, load
from tests.faults.real import listening

ROOT = Path(__file__).parents[4]
SMALL = (
    *("--models", "fastformer,linformer", "--lengths", "16,32", "--tokens", "64", "--width", "16"),
    *("--heads", "2", "--level", "attention", "--threads", "1", "--quick", "--rounds", "3"),
)
PATIENCE_S = 900.0  # a limit, never a wait
# long enough to go on until its driver was interrupted and another one has started
LONGER = ("--lengths", "16,32,48,64,80,96,112,128")
LONG = (*LONGER, "--mode", "inference")  # long enough to be killed in the middle


def start(out, *arguments, device="cpu", cwd=ROOT, env=os.environ):
    """A driver that has not ended yet, of a new sweep or of one that goes on."""
    command = [sys.executable, "-m", "attnbench", "sweep", *SMALL, "--device", device]
    into = "--resume" if fleets.begun(out) else "--out"
    return subprocess.Popen(
        [*command, into, str(out), *arguments],
        cwd=cwd,
        env={**env, "NO_COLOR": "1", "PYTHONPATH": str(cwd)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=listening,
    )


def ended(driver, code=0):
    """What a driver printed, once it has ended with this code."""
    out, err = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == code, err
    assert "Traceback" not in err
    return out, err


def whole(out, shards, rounds=3):
    """The merged sweep, which must be complete, with nothing measured twice."""
    sweep = load(out)
    assert sweep.finished
    assert sweep.warnings == ()
    assert sweep.shards == tuple(Shard(i, shards) for i in range(1, shards + 1))
    assert len(sweep.runs) == len(sweep.plan) * (rounds + 1)
    assert {run.outcome for run in sweep.runs} == {"ok"}
    for number in range(1, shards + 1):
        lines = (fleets.shard_folder(out, number) / FILE).read_bytes().splitlines()
        entries = [schema.unseal(line).data for line in lines if b'"kind":"run"' in line]
        keys = [(run["case"], run["part"], run["round"]) for run in entries]
        assert len(keys) == len(set(keys))
    return sweep


def stored(out, number):
    """How many runs a shard has stored."""
    sweep = fleets.stored(out, number)
    return len(sweep.runs) if sweep else 0
