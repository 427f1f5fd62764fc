"""What a sweep keeps beside its runs."""

import pytest

from attnbench.api import measuring
from attnbench.store import schema
from attnbench.store.journal import FILE
from attnbench.workloads import requests
from attnbench.workloads.reading import Plan
from tests import sweeps
from tests.fleet.shards import FACTS
from tests.run.sessions import PLAN, REQUEST


def test_an_interrupted_sweep_says_so_and_keeps_the_options_that_it_began_with(
    tmp_path, monkeypatch
):
    def stop(*what, **how):
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "environment", lambda *about: sweeps.environment())
    monkeypatch.setattr(measuring, "make_visits", stop)
    for options in (b"rounds = 3", b"rounds = 4"):
        plan = Plan(cases=PLAN, cards=FACTS)
        with pytest.raises(KeyboardInterrupt):
            measuring.measure(REQUEST, plan, None, tmp_path, options_file=options)
    assert (tmp_path / requests.FILE).read_bytes() == b"rounds = 3"
    *_, last = (tmp_path / FILE).read_bytes().splitlines()
    entry = schema.unseal(last)
    assert (entry.kind, entry.data["outcome"]) == ("end", "interrupted")
