"""Cases that end badly on a GPU cost themselves, and no other case."""

from pathlib import Path

import pytest
import torch

import attnbench as package
from attnbench.records import Cause, Outcome
from tests.commands.commands import attnbench
from tests.commands.sweeping.cluster.cluster import until
from tests.gpu.rough import LENGTH, SHARE

pytestmark = pytest.mark.gpu

FILE = Path(__file__).with_name("rough.py")
LENGTHS = (LENGTH // 4, LENGTH // 2, LENGTH, 2 * LENGTH)


def swept(folder, models, *more):
    """The cases of a small sweep on the device, by series and length."""
    done = attnbench(
        *("sweep", "--models", models, "--lengths", ",".join(map(str, LENGTHS))),
        *("--tokens", "4096", "--level", "attention", "--mode", "inference", "--quick"),
        *("--device", "cuda", "--out", folder, *more),
    )
    assert done.returncode == 0, done.stderr
    return package.load(folder).cases.set_index(["mechanism", "seq_len"])


def of(cases, mechanism, column="outcome"):
    return [cases.loc[(mechanism, seq_len), column] for seq_len in LENGTHS]


def test_running_out_of_memory_is_an_outcome_and_ends_one_curve(tmp_path):
    """What a process holds when its memory runs out would be missing for the others."""
    fills = f"{FILE}:Fills"
    cases = swept(tmp_path / "s", f"{fills},fastformer,{FILE}:Usual")
    ok, skipped = Outcome.OK, Outcome.SKIPPED
    assert of(cases, fills) == [ok, ok, Outcome.OOM, skipped]
    assert of(cases, fills, "cause")[-1] == Cause.OOM
    for mechanism in ("fastformer", f"{FILE}:Usual"):
        assert of(cases, mechanism) == [ok] * len(LENGTHS)


@pytest.mark.parametrize(
    ("name", "outcome", "more"),
    [("Dies", Outcome.CRASHED, ()), ("Spins", Outcome.TIMEOUT, ("--case-timeout", "20s"))],
)
def test_a_worker_that_is_killed_gives_the_device_back(tmp_path, name, outcome, more):
    """Other tests may take half of what it held, or more for a while."""
    free_before, total = torch.cuda.mem_get_info()
    least = free_before - total // SHARE // 2
    cases = swept(tmp_path / "s", f"{FILE}:{name},fastformer", *more)
    assert of(cases, f"{FILE}:{name}")[:3] == [Outcome.OK, Outcome.OK, outcome]
    assert of(cases, "fastformer") == [Outcome.OK] * len(LENGTHS)
    until(lambda: torch.cuda.mem_get_info()[0] > least, "its memory given back")
