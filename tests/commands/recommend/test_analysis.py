"""Series ranked at a length of the sweep: measured, predicted, or excluded with a reason."""

from dataclasses import replace

import numpy as np
import pytest

from attnbench.analysis.conclusions import Answer, Basis
from attnbench.analysis.report import analyse
from attnbench.analysis.summary import summary
from attnbench.analysis.suspects import SHOWS_LAUNCHES
from attnbench.commands.recommend.analysis import fitting, recommendations
from attnbench.commands.recommend.page import STACKS, ranking
from attnbench.records import Cause, Outcome, units
from attnbench.report.answers import sentences
from tests import sweeps
from tests.commands.recommend.advised import (
    LONGEST,
    MEASURED,
    QUIET,
    SHORT,
    advised,
    ended,
    text,
)
from tests.sweeps import LENGTHS, altered, decoded, lost, seconds, slowed, sweep


def test_a_measured_length_is_ranked_by_measured_times():
    found = advised(sweep(("longformer", "a", "b", "fastformer"), **QUIET), 512)
    assert set(found["excluded"]) == {""}
    assert list(found["rank"]) == [1, 2, 2, 4]
    first, last = found.iloc[0], found.iloc[-1]
    assert (first["series"], last["series"]) == ("fastformer:eager", "longformer:eager")
    assert first["time_s"] == pytest.approx(1.1e-6 * sweeps.TOKENS, rel=0.02)
    assert first["time_lo_s"] < first["time_s"] < first["time_hi_s"]
    assert list(first[["ratio", "low", "high"]]) == [1, 1, 1]
    assert last["ratio"] == pytest.approx(4 / 1.1, rel=0.02)
    assert 1 < last["low"] < last["ratio"] < last["high"]


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [(Outcome.OOM, None), (Outcome.SKIPPED, Cause.MEMORY_LIMIT), (Outcome.FAILED, None)],
)
def test_what_does_not_run_is_excluded_with_the_reason(outcome, cause):
    def end(case):
        gone = case.mechanism == "linformer" and case.workload.seq_len == 2048
        return lost(case, outcome, cause, "no room") if gone else None

    whole = sweep(("linformer", "fastformer"), end=end, **QUIET)
    last = advised(whole, 2048).iloc[-1]
    assert tuple(last[["series", "excluded"]]) == ("linformer:eager", "no room")
    assert set(advised(whole, 512)["excluded"]) == {""}


def test_a_time_that_includes_launches_has_no_rank():
    whole = sweep(("linformer", "fastformer"), **QUIET)
    keys = {p.case.key for p in whole.plan if p.case.mechanism == "fastformer"}
    shown = altered(
        whole, lambda run: replace(run, notes={"launches": "seen"} if run.case in keys else {})
    )
    found = advised(shown, 512).set_index("series")
    assert found["rank"].fillna(0).to_dict() == {"linformer:eager": 1, "fastformer:eager": 0}
    assert found["excluded"]["fastformer:eager"] == SHOWS_LAUNCHES


def test_memory_limits_the_choice():
    whole = sweep(("transformer", "fastformer", "linformer"), **QUIET)
    everything = advised(whole, 2048).set_index("series")
    limit = everything.loc["transformer:eager", "allocated_peak_bytes"] - 1
    found = advised(whole, 2048, limit).set_index("series")
    assert set(found.index) == set(everything.index), "shown, not dropped"
    assert found.index[-1] == "transformer:eager"
    needs = f"needs {units.size(limit + 1)}, over {units.size(limit)}"
    assert found["excluded"].iloc[-1] == needs
    assert found["time_s"].iloc[-1] == everything.loc["transformer:eager", "time_s"]
    assert found["rank"].isna().tolist() == [False, False, True]
    assert set(advised(whole, 2048, limit + 1)["excluded"]) == {""}
    assert advised(whole, 2048, 1.0)["excluded"].all()


def test_the_last_round_does_not_reverse_a_ranking():
    """Fastformer takes 1.1 µs a token and Linformer 1.5, in all rounds but the last: then 2.2."""
    whole = ended("fastformer", "linformer")
    keys = {(p.case.mechanism, p.case.workload.seq_len): p.case.key for p in whole.plan}
    last = (keys["fastformer", MEASURED], 2)
    whole = altered(whole, lambda run: slowed(run, 2.0) if (run.case, run.round) == last else run)
    cases = summary(whole).set_index("key")
    fast, slow = (cases.loc[keys[name, LONGEST]] for name in ("fastformer", "linformer"))
    assert fast["predicted_s"] < slow["predicted_s"]
    longest = cases.loc[keys["fastformer", MEASURED], "time_s"]
    assert fast["predicted_s"] / longest == pytest.approx(8.0, rel=1e-2)


@pytest.mark.parametrize("lengths", [LENGTHS, (4096, 8192, 16_384), (1000, 1001, 1002, 65_536)])
def test_predictions_are_near_what_would_have_been_measured(lengths):
    """Also from two lengths alone, and from lengths too close to tell the growth."""
    whole = ended("fastformer", "linformer", lengths=lengths)
    cases = summary(whole)
    truth = [seconds(line.case.mechanism, line.case.workload) for line in whole.plan]
    far = cases["seq_len"] > MEASURED
    assert [*cases["predicted_s"].notna()] == [*far]
    assert cases["predicted_s"][far].to_numpy() == pytest.approx(np.array(truth)[far], rel=0.2)


def test_whether_a_series_fits_is_known_from_a_peak_that_was_measured_in_full():
    """A peak that misses memory outside of torch can only show that a series is too large."""

    def end(case):
        gone = case.mechanism == "linformer"
        return lost(case, cause=Cause.BUDGET, reason="late") if gone else None

    whole = sweep(("transformer", "fastformer", "linformer"), **QUIET, end=end)
    keys = {p.case.key for p in whole.plan if p.case.mechanism == "fastformer"}
    notes = {"uncounted": "what numpy allocated"}
    missed = analyse(
        altered(whole, lambda run: replace(run, notes=notes) if run.case in keys else run)
    )
    found = {one.series[0]: one for one in fitting(missed, 2048, 1e12)}
    assert [(one.answer, one.basis, one.scope.lengths) for one in found.values()] == [
        (Answer.FITS, Basis.COUNTED, (2048,)),
        (Answer.NOT_KNOWN, Basis.COUNTED, (2048,)),
        (Answer.FITS, Basis.PREDICTED, ()),
    ]
    unknown = found["fastformer:eager"].reason
    assert unknown.endswith(": its peak misses what numpy allocated")
    assert found["linformer:eager"].decided_by == "--budget 10m"
    assert {one.answer for one in fitting(missed, 2048, 1.0)} == {Answer.TOO_LARGE}
    reasons = {one.series[0]: one.reason for one in fitting(missed, 2048, 1.0)}
    assert reasons["linformer:eager"].startswith("predicted to need ")
    assert reasons["transformer:eager"].startswith("needs ")


def test_a_limit_is_held_against_the_peak_of_the_whole_stack():
    """Its costs are compared per layer, which no machine holds alone."""
    whole = decoded(dict.fromkeys(("fastformer", "linformer"), lambda n: 4096), lengths=SHORT)
    plan = [
        replace(line, layers=("fastformer:eager",) * 4)
        if line.case.mechanism == "fastformer"
        else line
        for line in whole.plan
    ]
    stacked = replace(whole, plan=tuple(plan))
    peaks = advised(whole, 512).set_index("series")["allocated_peak_bytes"]
    assert peaks["fastformer:eager"] == peaks["linformer:eager"]
    peak = float(peaks["fastformer:eager"])
    over = {one.series[0]: one for one in fitting(analyse(stacked), 512, peak / 2)}
    assert {one.answer for one in over.values()} == {Answer.TOO_LARGE}
    stack = over["fastformer:eager"]
    assert stack.value.point == pytest.approx(peak)
    assert stack.reason == f"needs {units.size(peak)}, over {units.size(peak / 2)}"
    assert {one.answer for one in fitting(analyse(stacked), 512, 2 * peak)} == {Answer.FITS}
    assert STACKS in ranking(advised(stacked, 512)).note
    assert STACKS not in ranking(advised(whole, 512)).note


def test_after_one_round_one_series_is_the_lowest_and_none_has_a_rank():
    once = sweep(("longformer", "linformer", "fastformer"), **QUIET, rounds=1)
    rows = advised(once, 512)
    assert rows["rank"].isna().all()
    assert list(rows["series"]) == ["fastformer:eager", "linformer:eager", "longformer:eager"]
    assert {row[2].text for row in ranking(rows).rows} == {units.NOTHING}
    analysis = analyse(once)
    ((found, _),) = recommendations(analysis, rows)
    assert (found.answer, found.series) == (Answer.NOT_KNOWN, ("fastformer:eager",))
    assert found.against == ("linformer:eager", "longformer:eager")
    said = "inference at 512: no winner after one round, lowest so far Fastformer; "
    assert text(once, 512).startswith(said)
    assert "no winner after one round" in sentences(analysis)["Fastest in inference"]
