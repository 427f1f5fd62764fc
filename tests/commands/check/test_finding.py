"""Findings from counts and outcomes, and the exit code of a report."""

from dataclasses import replace

import pytest

from attnbench.commands.check.cases import CheckedCase, Counted
from attnbench.commands.check.finding import (
    VERDICTS,
    CheckAnswer,
    CheckReport,
    Finding,
    count_findings,
    excuse_counts,
    run_finding,
)
from attnbench.records import Selection

OK, MISSING, FAILED, UNSUPPORTED = (
    Counted(outcome=outcome, reason=f"because {outcome}")
    for outcome in ("ok", "missing", "failed", "unsupported")
)


def counts(base, head):
    """Findings on these counts of a case."""
    base, head = (Counted(outcome="ok", values=values) for values in (base, head))
    return count_findings(CheckedCase(selection=Selection(name="m")), base, head)


def test_counts_gate_exactly_and_bytes_within_a_hundredth():
    base = {"operators": 100, "allocated_peak_bytes": 1000, "parameters": 5, "moved_bytes": 1}
    head = {"operators": 101, "allocated_peak_bytes": 1010, "parameters": 5, "moved_bytes": 9}
    found = {f.metric: f for f in counts(base, head)}
    assert found["operators"].fails
    assert found["operators"].ratio == 1.01
    assert not found["allocated_peak_bytes"].fails
    assert found["parameters"].verdict == "same"
    assert "moved_bytes" not in found


@pytest.mark.parametrize(
    ("base", "head", "answer", "words"),
    [
        (OK, FAILED, CheckAnswer.BREAKS, "failed on head only"),
        (OK, UNSUPPORTED, CheckAnswer.BREAKS, "unsupported on head only"),
        (FAILED, OK, CheckAnswer.LOST, "failed on base only"),
        (MISSING, OK, CheckAnswer.ADDED, "added"),
        (MISSING, FAILED, CheckAnswer.BREAKS, "added, but failed"),
        (OK, MISSING, CheckAnswer.GONE, "gone from head"),
        (FAILED, MISSING, CheckAnswer.GONE, "gone from head"),
        (MISSING, MISSING, CheckAnswer.NEITHER, "on neither side"),
        (FAILED, FAILED, CheckAnswer.NEITHER, "failed on base, failed on head"),
        (UNSUPPORTED, UNSUPPORTED, CheckAnswer.UNSUPPORTED, "unsupported on both"),
    ],
)
def test_cases_that_did_not_run_on_both_sides(base, head, answer, words):
    found = run_finding("m", "c", base, head)
    assert found.answer is answer
    assert found.verdict == "missing"
    assert found.fails == (answer is CheckAnswer.BREAKS)
    assert words in found.reason


def test_every_answer_has_a_verdict():
    assert VERDICTS.keys() == {*CheckAnswer}
    assert {answer.verdict for answer in CheckAnswer} == {*VERDICTS.values()}


def test_a_case_that_ran_on_both_sides_has_no_finding_of_runs():
    assert run_finding("m", "c", OK, OK) is None


@pytest.mark.parametrize(
    ("answer", "codes"),
    [
        ("same", (0, 0)),
        ("faster", (0, 0)),
        ("slower", (1, 1)),
        ("not known", (0, 3)),
        ("added", (0, 0)),
    ],
)
def test_exit_codes(answer, codes):
    found = one(answer=answer, ratio=1.1)
    counted = replace(found, metric="operators", answer=CheckAnswer.SAME)
    assert ended(found, counted) == codes


def test_changed_code_that_nothing_loaded_ends_a_strict_check_alone():
    found = one(answer="same", ratio=1.0)
    report = CheckReport(
        base="a", head="b", findings=(found,), uncovered=("code.py", "tests/test_x.py")
    )
    assert [report.exit_code(strict) for strict in (False, True)] == [0, 3]
    report = replace(report, uncovered=("tests/test_x.py",))
    assert [report.exit_code(strict) for strict in (False, True)] == [0, 0]


def ended(*findings):
    """The exit codes of a report, as it is and if strict."""
    report = CheckReport(base="a", head="b", findings=findings)
    return report.exit_code(strict=False), report.exit_code(strict=True)


def test_a_check_that_compared_nothing_does_not_pass():
    """Whatever else it found, and however certain it should be."""
    neither = run_finding("m", "c", MISSING, MISSING)
    same = Finding(mechanism="m", case="d", metric="operators", answer=CheckAnswer.SAME)
    unsure = replace(same, metric="time_s", answer=CheckAnswer.NOT_KNOWN, ratio=None)
    failed, cannot = (
        run_finding("m", "c", FAILED, FAILED),
        run_finding("m", "c", UNSUPPORTED, UNSUPPORTED),
    )
    for findings in ((neither, same), (failed, same), (unsure,), (unsure, same), (cannot,)):
        assert ended(*findings) == (2, 2)
        assert CheckReport(base="a", head="b", findings=findings).unchecked_findings == findings[:1]
    assert ended(cannot, same) == ended(run_finding("m", "c", MISSING, OK)) == (0, 0)
    lost, gone = run_finding("m", "c", FAILED, OK), run_finding("m", "c", OK, MISSING)
    shared = run_finding("m", "c", OK, OK, "both sides ran head's code")
    for finding, codes in ((lost, (2, 2)), (shared, (2, 2)), (gone, (0, 0))):
        assert ended(finding) == codes
        assert ended(finding, same) == ((0, 0) if finding is gone else (0, 3))
    assert shared.reason == "both sides ran head's code"
    named = CheckReport(base="a", head="b", findings=(gone,), named=True)
    assert [named.exit_code(strict) for strict in (False, True)] == [2, 2]
    named = replace(named, findings=(gone, same))
    assert [named.exit_code(strict) for strict in (False, True)] == [0, 3]
    assert (named.compared_cases, named.uncompared_findings) == (("d",), (gone,))
    added = replace(named, findings=(run_finding("m", "c", MISSING, OK),))
    assert added.exit_code(strict=False) == 2
    assert ended(neither, run_finding("m", "e", OK, FAILED)) == (1, 1)


def test_what_was_measured_was_checked_and_what_was_killed_was_not():
    suspect = one(answer="suspected", ratio=1.1)
    assert ended(suspect, replace(suspect, case="d")) == (0, 3)
    killed = run_finding(
        "m", "c", OK, Counted(outcome="oom", reason="memory ran out").excused_if_killed("head")
    )
    assert killed.reason == "could not be measured on head: memory ran out"
    assert (ended(killed), ended(killed, LARGER)) == ((3, 3), (1, 1))
    assert ended(killed, one()) == (3, 3)


def one(metric="time_s", answer="faster", case="c", **more):
    return Finding(mechanism="m", case=case, metric=metric, answer=CheckAnswer(answer), **more)


LARGER = one("operators", "slower", base=22.0, head=23.0)


@pytest.mark.parametrize(
    ("beside", "fails"),
    [
        (one(), False),
        (one(case="another"), True),
        (one(answer="same"), True),
        (one(answer="not known"), True),
        (one("flops"), True),
    ],
    ids=["faster", "another case", "same", "unsure", "fewer FLOPs"],
)
def test_a_count_that_grew_fails_unless_the_time_of_its_case_fell(beside, fails):
    report = CheckReport(base="a", head="b", findings=(LARGER, beside))
    assert report.exit_code(strict=False) == 1
    assert excuse_counts(report).exit_code(strict=False) == int(fails)


def test_a_mechanism_that_fails_is_not_traded_for_time():
    broken = one("runs", "breaks")
    slower = one("time_s", "slower", case="d")
    report = CheckReport(base="a", head="b", findings=(broken, slower, one()))
    assert excuse_counts(report) == report
