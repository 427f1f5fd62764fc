"""What is decided before a shard is measured: whether it fits to those of the other nodes."""

from dataclasses import replace

import pytest

from attnbench.api import measuring
from attnbench.errors import DifferentSweep
from attnbench.fleet import folder as fleets
from attnbench.fleet.engine import EngineKind
from attnbench.fleet.folder import Fleet
from attnbench.records import Shard
from attnbench.store.merging import merge
from attnbench.workloads.reading import Plan
from tests import sweeps
from tests.fleet.shards import FACTS
from tests.run.test_session import PLAN, REQUEST

REFUSED = (replace(PLAN[0], refusal="needs a compiler"), *PLAN[1:])


class Begun(Exception):
    """A session is about to measure."""


def begun(here, journal):
    raise Begun


@pytest.fixture
def shard(tmp_path, monkeypatch):
    """Measures shard I of 2 of a plan on a node of its own, up to the first case."""

    def measure(number, plan=PLAN, resume=False):
        here = sweeps.environment(host=f"n{number}")
        monkeypatch.setattr(measuring, "environment", lambda *about: here)
        folder = tmp_path / f"shard-{number}"
        with pytest.raises(Begun):
            measuring.measure(
                REQUEST,
                Plan(cases=plan, cards=FACTS),
                None,
                folder,
                resume,
                shard=Shard(number, 2),
                announce=begun,
            )
        return folder

    return measure


def test_a_node_without_one_of_the_forms_measures_no_shard_of_a_fleet(shard, tmp_path):
    fleets.prepare(tmp_path, Fleet(engine=EngineKind.SLURM, shards=2), ("true",))
    shard(1)
    with pytest.raises(DifferentSweep, match="not the same forms run there and here"):
        shard(2, REFUSED)
    assert not (tmp_path / "shard-2").exists()
    shard(2)


def test_shards_of_nodes_with_other_forms_are_not_merged(shard, tmp_path):
    with pytest.raises(DifferentSweep, match="not the same forms run there and here"):
        merge([shard(1), shard(2, REFUSED)], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_shard_does_not_go_on_where_other_forms_run(shard):
    shard(1)
    with pytest.raises(DifferentSweep, match="not the same forms run there and here"):
        shard(1, REFUSED, resume=True)
    shard(1, resume=True)
