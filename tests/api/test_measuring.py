"""Whether a shard fits to those of other nodes, and what a sweep keeps beside its runs."""

from dataclasses import replace

import pytest

from attnbench.api import measuring
from attnbench.errors import DifferentSweep
from attnbench.fleet import folder as fleets
from attnbench.fleet.folder import Fleet
from attnbench.records import EngineKind, Shard
from attnbench.store import schema
from attnbench.store.journal import FILE
from attnbench.store.merging import merge
from attnbench.workloads import config
from attnbench.workloads.reading import Plan
from tests import sweeps
from tests.fleet.shards import FACTS
from tests.run.sessions import PLAN, REQUEST

REFUSED = (replace(PLAN[0], refusal="needs a compiler"), *PLAN[1:])


class Begun(Exception):
    """A session is about to measure."""


def begun(here, journal):
    raise Begun


@pytest.fixture
def shard(tmp_path, monkeypatch):
    """Measures shard I of 2 of a plan on a node of its own, up to the first case."""

    def measure(number, plan=PLAN):
        here = sweeps.environment(host=f"n{number}")
        monkeypatch.setattr(measuring, "environment", lambda *about: here)
        folder = tmp_path / f"shard-{number}"
        with pytest.raises(Begun):
            measuring.measure(
                REQUEST,
                Plan(cases=plan, cards=FACTS),
                None,
                folder,
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
    assert not list((tmp_path / "shard-2").iterdir())
    shard(2)


def test_shards_of_nodes_with_other_forms_are_not_merged(shard, tmp_path):
    with pytest.raises(DifferentSweep, match="not the same forms run there and here"):
        merge([shard(1), shard(2, REFUSED)], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_shard_does_not_go_on_where_other_forms_run(shard):
    shard(1)
    with pytest.raises(DifferentSweep, match="not the same forms run there and here"):
        shard(1, REFUSED)
    shard(1)


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """Begins a sweep, or resumes it, and is stopped by Ctrl-C at its first case."""

    def stop(*what, **how):
        raise KeyboardInterrupt

    def measure(options_file):
        here = sweeps.environment()
        monkeypatch.setattr(measuring, "environment", lambda *about: here)
        monkeypatch.setattr(measuring, "sweep", stop)
        plan, folder = Plan(cases=PLAN, cards=FACTS), tmp_path / "sweep"
        with pytest.raises(KeyboardInterrupt):
            measuring.measure(REQUEST, plan, None, folder, options_file=options_file)
        return folder

    return measure


def test_a_resumed_sweep_keeps_the_options_that_it_began_with(interrupted):
    interrupted(b"rounds = 3")
    folder = interrupted(b"rounds = 4")
    assert (folder / config.FILE).read_bytes() == b"rounds = 3"


def test_the_journal_says_that_a_session_was_interrupted(interrupted):
    *_, last = (interrupted(b"") / FILE).read_bytes().splitlines()
    entry = schema.unseal(last)
    assert (entry.kind, entry.data["outcome"]) == ("end", "interrupted")
