from dataclasses import replace

import pytest

from attnbench.errors import DifferentSweep
from attnbench.records import Cause, Outcome
from attnbench.store.journal import FILE, Journal, load
from attnbench.store.resuming import done, refuse_other
from attnbench.store.schema import Start
from tests.store.recorded import SWEEP, opened


def test_another_request_or_machine_is_refused(tmp_path):
    opened(tmp_path).close()
    request = replace(
        SWEEP.request, lengths=(512,), settings=replace(SWEEP.request.settings, seed=4)
    )
    machine = replace(SWEEP.sessions[0], torch="1.0", attnbench="0.0.9")
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(DifferentSweep) as caught:
        Journal(tmp_path, Start(request, machine))
    texts = "lengths: 512,2048,8192 there, 512 here; seed: 0 there, 4 here; attnbench: 0.1.0 there,"
    for text in (texts, "; torch: 2.13.0+cpu there"):
        assert text in str(caught.value)
    assert (tmp_path / FILE).read_bytes() == before


def test_limits_and_order_make_no_other_request():
    asked = SWEEP.request
    roomier = replace(asked.settings, memory_limit_bytes=1 << 30)
    models = tuple(reversed(asked.models))
    here = replace(
        asked, budget_s=None, rounds=9, case_timeout_s=1.0, settings=roomier, models=models
    )
    refuse_other(SWEEP, Start(here, SWEEP.sessions[0]))
    with pytest.raises(DifferentSweep, match=r"\(tokens: 8192 there, 1 here\)"):
        refuse_other(SWEEP, Start(replace(asked, tokens=1), SWEEP.sessions[0]))


def test_what_is_not_the_machine_may_change():
    here = SWEEP.sessions[0]
    refuse_other(SWEEP, Start(SWEEP.request, replace(here, load=9.0, memory_bytes=1, notes={})))
    with pytest.raises(DifferentSweep, match=r"\(threads: 2 there, 1 here\)"):
        refuse_other(SWEEP, Start(SWEEP.request, replace(here, threads=1)))


def test_what_ran_is_not_replaced_by_why_it_was_left_out(tmp_path):
    ran = next(run for run in SWEEP.runs if run.outcome is Outcome.OK)
    left_out = replace(ran, outcome=Outcome.SKIPPED, samples=(), elapsed_s=0.0)
    with opened(tmp_path) as journal:
        journal.append(*SWEEP.plan, left_out, ran, left_out)
    assert [run.outcome for run in load(tmp_path).runs] == [Outcome.OK]


def test_what_was_skipped_or_killed_is_not_done():
    assert done(SWEEP) == [run for run in SWEEP.runs if run.outcome is not Outcome.SKIPPED]
    ran = next(run for run in SWEEP.runs if run.outcome is Outcome.OK)
    crashed = replace(ran, outcome=Outcome.CRASHED)
    killed = replace(crashed, cause=Cause.KILLED)
    assert done(replace(SWEEP, runs=(crashed, killed))) == [crashed]
