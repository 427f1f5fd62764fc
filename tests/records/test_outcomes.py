"""What outcomes mean: one row for each."""

from attnbench.records import MISSING, Cause, Outcome
from attnbench.records.outcomes import OUTCOMES, ending


def test_every_outcome_and_cause_has_a_row():
    assert {*OUTCOMES} == {*Outcome, *Cause, MISSING}
    assert all(row.phrase for row in OUTCOMES.values())
    limits = {name for name, row in OUTCOMES.items() if row.limit}
    assert limits == {"oom", "timeout", "memory limit", "case timeout"}
    assert ending("skipped", "budget").phrase == "over budget"
    assert ending("skipped", "").phrase == "skipped"
    assert ending("of a later version", "").phrase == "not run"


def test_what_ends_a_curve_says_so_of_longer_cases():
    assert {name: row.beyond for name, row in OUTCOMES.items() if row.beyond} == {
        Outcome.OOM: Cause.OOM,
        Outcome.TIMEOUT: Cause.TIMEOUT,
        Cause.OVERTIME: Cause.OVERTIME,
    }
    assert all(bool(row.already) == (row.beyond is not None) for row in OUTCOMES.values())
