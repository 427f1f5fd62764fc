from dataclasses import replace

from attnbench.analysis.compare import Comparison, compare
from attnbench.analysis.report import analyse
from attnbench.records import Cause, Outcome, Part, Run, Sweep
from attnbench.render import comparison
from tests.sweeps import changed, environment, sweep


def compared(first: Sweep, second: Sweep, against: str | None = None, **how: bool) -> Comparison:
    return compare(analyse(first, against), analyse(second), **how)


QUIET = sweep(restart=0.005, noise=0.002)


def test_equal_sweeps_give_an_empty_table_with_a_tally():
    table = comparison.changes(compared(QUIET, QUIET))
    assert table.rows == ()
    assert "Time: 57 same, 3 missing." in table.note
    assert len(comparison.all_cases(compared(QUIET, QUIET)).rows) > 200


def test_what_became_slower_comes_first_as_a_curve_then_case_by_case():
    table = comparison.changes(compared(QUIET, changed(QUIET, "linformer", 1.5)))
    first = table.rows[0]
    assert first[0].text == "linformer:eager, training, mean of 10 lengths"
    assert (first[4].text[:5], first[5].text) == ("1.50×", "slower")
    cases = [row for row in table.rows if "/model/" in row[0].text]
    assert len(cases) == 20
    assert all(row[4].low < 1.5 < row[4].high for row in cases)
    assert "20 slower" in table.note


def test_counts_that_grew_are_larger_in_one_row_per_series():
    plan = tuple(
        replace(planned, core_flops=4 * planned.core_flops)
        if planned.case.mechanism == "linformer"
        else planned
        for planned in QUIET.plan
    )
    table = comparison.changes(compared(QUIET, replace(QUIET, plan=plan)))
    (row,) = table.rows
    assert row[0].text.startswith("linformer:eager, 20 cases, largest change at")
    assert (row[1].text, row[5].text) == ("FLOPs", "larger")
    assert row[4].low is None


def test_what_one_sweep_lacks_is_one_row_with_its_lengths():
    table = comparison.changes(compared(QUIET, sweep(("fastformer", "transformer"))))
    rows = [row for row in table.rows if row[5].text == "missing"]
    assert [row[0].text.split(",")[:2] for row in rows] == [
        ["linformer:eager", " training"],
        ["linformer:eager", " inference"],
    ]
    assert rows[0][6].text == "not in the second sweep"
    assert "32K, 64K" in rows[0][0].text


def test_skipped_cases_share_one_row_whatever_was_predicted_for_each_length():
    def skipped(run: Run) -> Run:
        if '"transformer"' not in run.case or run.part is not Part.TIME:
            return run
        reason = f"would exceed --budget (0 s left): predicted {len(reasons)} s per iteration"
        reasons.append(reason)
        return replace(run, samples=(), outcome=Outcome.SKIPPED, cause=Cause.BUDGET, reason=reason)

    reasons: list[str] = []
    runs = tuple(map(skipped, QUIET.runs))
    table = comparison.changes(compared(QUIET, replace(QUIET, runs=runs)))
    rows = [row for row in table.rows if row[5].text == "missing"]
    assert len(reasons) > 2
    assert {row[6].text for row in rows} == {"skipped in the second: over budget"}
    assert [row[0].text.split(",")[1] for row in rows] == [" training", " inference"]


def test_a_note_says_why_times_are_not_comparable_even_where_they_are_compared():
    other = sweep(("fastformer",), machine=environment(threads=1))
    refused = comparison.changes(compared(QUIET, other))
    assert "Times were not compared, since the sweeps differ in threads: 2 and 1." in refused.note
    anyway = comparison.changes(compared(QUIET, other, anyway=True))
    assert "Times were compared although the sweeps differ in threads: 2 and 1." in anyway.note


def test_crossovers_that_moved_become_a_table():
    moved = compared(QUIET, changed(QUIET, "transformer", 0.7), "transformer")
    table = comparison.moved_crossovers(moved)
    assert table.rows
    for faster, than, _, first, second in table.rows:
        assert (faster.text, than.text) == ("linformer:eager", "transformer:eager") or (
            faster.text == "fastformer:eager"
        )
        if first.is_number and second.is_number:
            assert first.high < second.low
