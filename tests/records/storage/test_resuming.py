"""What a resumed sweep still has to do, and what makes it another sweep."""

from dataclasses import replace

import pytest

from attnbench.errors import DifferentSweep
from attnbench.records import Cause, Outcome
from attnbench.records.storage.resuming import (
    completed_runs,
    differences,
    has_smaller_limits,
    machine_differences,
    refuse_other,
    refuse_other_request,
)
from attnbench.records.storage.schema import Start
from tests.records.storage.recorded import SWEEP


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


def test_what_was_skipped_or_killed_is_not_done():
    request = SWEEP.request
    assert completed_runs(SWEEP, request) == [
        run for run in SWEEP.runs if run.outcome is not Outcome.SKIPPED
    ]
    ran = next(run for run in SWEEP.runs if run.outcome is Outcome.OK)
    crashed = replace(ran, outcome=Outcome.CRASHED)
    killed = replace(crashed, cause=Cause.KILLED)
    limit_s = request.case_timeout_s
    timed_out = replace(crashed, outcome=Outcome.TIMEOUT, elapsed_s=limit_s)
    overtime = replace(timed_out, cause=Cause.OVERTIME)
    runs = (crashed, killed, timed_out, overtime)
    sweep = replace(SWEEP, runs=runs)
    assert completed_runs(sweep, request) == [crashed, timed_out]
    for more_s in (None, 2 * limit_s):
        assert completed_runs(sweep, replace(request, case_timeout_s=more_s)) == [crashed]
    less = replace(request, case_timeout_s=limit_s / 2)
    assert completed_runs(sweep, less) == [crashed, timed_out]


def test_what_ran_out_of_memory_is_tried_again_where_there_is_more():
    ran = next(run for run in SWEEP.runs if run.outcome is Outcome.OK)
    full = replace(ran, outcome=Outcome.OOM)

    def limited(limit_bytes):
        settings = replace(SWEEP.request.settings, memory_limit_bytes=limit_bytes)
        return replace(SWEEP.request, settings=settings)

    sweep = replace(SWEEP, runs=(full,), request=limited(1 << 30), asked={})
    for kept in (1 << 29, 1 << 30, (1 << 30) + (1 << 26)):  # free memory varies a little
        assert completed_runs(sweep, limited(kept)) == [full]
    for more in (1 << 31, None):
        assert completed_runs(sweep, limited(more)) == []
    assert completed_runs(replace(sweep, request=limited(None)), limited(1 << 31)) == [full]
    later = replace(sweep, request=limited(1 << 31), asked={full.origin: limited(1 << 30)})
    assert completed_runs(later) == [], "it had less when it ran"


def test_machines_differ_in_what_is_told_of_both():
    here = SWEEP.sessions[0]
    assert machine_differences(here, replace(here, load=9.0)) == []
    assert machine_differences(here, replace(here, threads=7, attnbench="9")) == [
        f"attnbench: {here.attnbench} there, 9 here",
        f"threads: {here.threads} there, 7 here",
    ]


def test_lists_are_compared_regardless_of_their_order():
    assert differences({"a": (1, 2), "b": 1}, {"a": (2, 1), "b": 1}) == []
    assert differences({"a": (1, 2)}, {"a": (1, 2, 2)}) == ["a: 1,2 there, 1,2,2 here"]


def test_another_request_alone_is_told_without_a_machine():
    asked = SWEEP.request
    refuse_other_request("a", asked, replace(asked, rounds=99, budget_s=1.0, device="cuda"))
    with pytest.raises(
        DifferentSweep, match=r"cannot resume 'a' .*\(causal: False there, True here\)"
    ):
        refuse_other_request("a", asked, replace(asked, causal=True))
    with pytest.raises(DifferentSweep, match=r"\(device: cpu there, cuda here\)"):
        refuse_other_request("a", asked, replace(asked, device="cuda"), same_device=True)


@pytest.mark.parametrize(
    ("limits", "smaller"),
    [
        ({}, False),
        ({"budget_s": 60.0, "rounds": 3, "case_timeout_s": 9.0, "precision": 0.02}, False),
        ({"budget_s": 61.0}, True),
        ({"budget_s": None}, True),
        ({"budget_s": 59.0}, False),
        ({"rounds": 4}, True),
        ({"rounds": 2}, False),
        ({"case_timeout_s": 10.0}, True),
        ({"precision": 0.01}, True),
        ({"precision": None}, True),
        ({"precision": 0.05}, False),
        ({"tokens": 1 << 20}, False),
    ],
)
def test_limits_are_smaller_than_those_that_leave_more_to_do(limits, smaller):
    limited = {"budget_s": 60.0, "rounds": 3, "case_timeout_s": 9.0, "precision": 0.02}
    assert has_smaller_limits(replace(SWEEP.request, **limited), limits) is smaller
    endless = dict.fromkeys(("budget_s", "case_timeout_s", "precision"))
    limits = {name: limit for name, limit in limits.items() if name in endless}
    assert not has_smaller_limits(replace(SWEEP.request, **endless), limits)
