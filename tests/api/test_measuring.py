"""Whether a shard fits to those of other nodes, and what a sweep keeps beside its runs."""

import pytest

from attnbench.api import measuring
from attnbench.store import schema
from attnbench.store.journal import FILE
from attnbench.workloads import requests
from attnbench.workloads.reading import Plan
from tests import sweeps
from tests.fleet.shards import FACTS
from tests.run.sessions import PLAN, REQUEST


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
    assert (folder / requests.FILE).read_bytes() == b"rounds = 3"


def test_the_journal_says_that_a_session_was_interrupted(interrupted):
    *_, last = (interrupted(b"") / FILE).read_bytes().splitlines()
    entry = schema.unseal(last)
    assert (entry.kind, entry.data["outcome"]) == ("end", "interrupted")
