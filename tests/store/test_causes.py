"""Journals that name the cause in prose only are read as those that store it."""

from dataclasses import replace

import pytest

from attnbench.records import Cause, Outcome, Part, Run
from attnbench.store.schema import with_cause

NOT_STARTED = Run(case="c", part=Part.TIME, round=0, outcome=Outcome.SKIPPED)


@pytest.mark.parametrize(
    ("outcome", "reason", "cause"),
    [
        ("skipped", "over budget; predicted 1 s an iteration, 2 s in all, 1 s left", "budget"),
        ("skipped", "would exceed --budget (2.00 s left): predicted 3.00 s", "budget"),
        ("skipped", "not finished when --budget ended", "budget"),
        ("skipped", "longer than out of memory at 4096", "oom"),
        ("skipped", "not run: already ran out of memory at N = 4,096", "oom"),
        ("skipped", "longer than over the time at 4096", "timeout"),
        ("skipped", "not run: already timed out at N = 4,096", "timeout"),
        ("skipped", "would exceed --case-timeout (20.0 min): predicted", "case timeout"),
        ("timeout", "over the case limit of 9 s; predicted 8 s; not run", "case timeout"),
        ("skipped", "would exceed the memory limit (2.000 GiB): predicted", "memory limit"),
        ("oom", "predicted to need 8.0 GiB of 2.0 GiB; not run", "memory limit"),
        ("skipped", "because", None),
    ],
)
def test_a_reason_in_prose_becomes_a_cause(outcome: str, reason: str, cause: str | None):
    read = with_cause(replace(NOT_STARTED, outcome=Outcome(outcome), reason=reason))
    assert (read.outcome, read.cause) == (Outcome.SKIPPED, cause and Cause(cause))


@pytest.mark.parametrize("outcome", [*Outcome])
def test_what_ran_and_what_names_its_cause_stay(outcome: Outcome):
    ran = replace(NOT_STARTED, outcome=outcome, reason="no answer within the budget; killed")
    if outcome is not Outcome.SKIPPED:
        assert with_cause(ran) == ran
    named = replace(ran, cause=Cause.OOM)
    assert with_cause(named) == named
