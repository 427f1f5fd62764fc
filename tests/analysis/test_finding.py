"""What follows from counts and outcomes, and the exit code of it all."""

import pytest

from attnbench.analysis.finding import Finding, Report, change, counted, runs
from attnbench.analysis.verdict import Verdict

OK, MISSING, FAILED, UNSUPPORTED = (
    {"outcome": outcome, "reason": f"because {outcome}"}
    for outcome in ("ok", "missing", "failed", "unsupported")
)


def test_counts_gate_exactly_and_bytes_within_a_hundredth():
    base = {"operators": 100, "allocated_peak_bytes": 1000, "parameters": 5, "moved_bytes": 1}
    head = {"operators": 101, "allocated_peak_bytes": 1010, "parameters": 5, "moved_bytes": 9}
    found = {f.metric: f for f in counted("m", "c", base, head)}
    assert found["operators"].fails
    assert found["operators"].ratio == 1.01
    assert not found["allocated_peak_bytes"].fails
    assert found["parameters"].verdict == "same"
    assert "moved_bytes" not in found
    assert change(1000, 1011, 0.01) == "slower"


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        (0, 0, "same"),
        (0, 1, "slower"),
        (1, 0, "faster"),
        (None, 1, "missing"),
        (1, None, "missing"),
    ],
)
def test_edges_of_a_count(base, head, verdict):
    assert change(base, head, 0.01) == verdict


@pytest.mark.parametrize(
    ("base", "head", "verdict", "fails", "words"),
    [
        (OK, FAILED, "missing", True, "failed on head only"),
        (OK, UNSUPPORTED, "missing", True, "unsupported on head only"),
        (FAILED, OK, "missing", False, "failed on base only"),
        (MISSING, OK, "missing", False, "added"),
        (MISSING, FAILED, "missing", True, "added, but failed"),
        (OK, MISSING, "missing", False, "removed"),
        (FAILED, MISSING, "missing", False, "removed"),
        (MISSING, MISSING, "missing", False, "in neither"),
        (FAILED, FAILED, "unsure", False, "failed on base, failed on head"),
        (UNSUPPORTED, UNSUPPORTED, "missing", False, "unsupported on both"),
    ],
)
def test_what_did_not_run(base, head, verdict, fails, words):
    found = runs("m", "c", base, head)
    assert (found.verdict, found.fails) == (verdict, fails)
    assert words in found.reason


def test_what_ran_on_both_sides_needs_no_word():
    assert runs("m", "c", OK, OK) is None


@pytest.mark.parametrize(
    ("verdict", "fails", "contaminated", "codes"),
    [
        ("same", False, (), (0, 0)),
        ("faster", False, (), (0, 0)),
        ("slower", True, (), (1, 1)),
        ("slower", True, ("x",), (1, 1)),
        ("slower", False, ("x",), (0, 3)),
        ("unsure", False, (), (0, 3)),
        ("missing", False, (), (0, 0)),
    ],
)
def test_exit_codes(verdict, fails, contaminated, codes):
    found = Finding(mechanism="m", case="c", metric="time", verdict=Verdict(verdict), fails=fails)
    report = Report(base="a", head="b", findings=(found,), contaminated=contaminated)
    assert (report.exit_code(strict=False), report.exit_code(strict=True)) == codes
