"""Series ranked at a length of the sweep: measured, predicted, or excluded with a reason."""

from dataclasses import replace

import pytest

from attnbench.analysis.recommend import recommend
from attnbench.analysis.report import analyse
from attnbench.analysis.suspects import SHOWS_LAUNCHES
from attnbench.errors import UsageError
from attnbench.records import Cause, Mode, Outcome, Part, Run
from tests import sweeps
from tests.sweeps import altered, sweep

SHORT = (128, 512, 2048)
QUIET = {"restart": 0.002, "noise": 0.002, "lengths": SHORT, "modes": (Mode.INFERENCE,)}


def ranking(whole, seq_len, memory=None):
    found = recommend(analyse(whole), seq_len, memory)
    return found[found["mode"] == "inference"].reset_index(drop=True)


def test_a_measured_length_is_ranked_by_measured_times():
    found = ranking(sweep(("longformer", "a", "b", "fastformer"), **QUIET), 512)
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
        run = Run(case=case.key, part=Part.TIME, round=0, outcome=outcome, cause=cause)
        gone = case.mechanism == "linformer" and case.workload.seq_len == 2048
        return replace(run, reason="no room") if gone else None

    whole = sweep(("linformer", "fastformer"), end=end, **QUIET)
    last = ranking(whole, 2048).iloc[-1]
    assert tuple(last[["series", "excluded"]]) == ("linformer:eager", "no room")
    assert set(ranking(whole, 512)["excluded"]) == {""}


def test_a_time_that_includes_launches_has_no_rank():
    whole = sweep(("linformer", "fastformer"), **QUIET)
    keys = {p.case.key for p in whole.plan if p.case.mechanism == "fastformer"}
    shown = altered(
        whole, lambda run: replace(run, notes={"launches": "seen"} if run.case in keys else {})
    )
    found = ranking(shown, 512).set_index("series")
    assert found["rank"].fillna(0).to_dict() == {"linformer:eager": 1, "fastformer:eager": 0}
    assert found["excluded"]["fastformer:eager"] == SHOWS_LAUNCHES


def test_memory_limits_the_choice():
    whole = sweep(("transformer", "fastformer", "linformer"), **QUIET)
    everything = ranking(whole, 2048).set_index("series")
    limit = everything.loc["transformer:eager", "allocated_peak_bytes"] - 1
    found = ranking(whole, 2048, limit).set_index("series")
    assert set(found.index) == set(everything.index), "shown, not dropped"
    assert found.index[-1] == "transformer:eager"
    assert found["excluded"].iloc[-1].startswith("not known to fit into ")
    assert found["time_s"].iloc[-1] == everything.loc["transformer:eager", "time_s"]
    assert found["rank"].isna().tolist() == [False, False, True]
    assert set(ranking(whole, 2048, limit + 1)["excluded"]) == {""}
    assert ranking(whole, 2048, 1.0)["excluded"].all()


def test_a_length_of_another_sweep_is_refused_with_those_of_this_one():
    with pytest.raises(UsageError, match="the sweep has no length 1024; it has 128, 512, 2048"):
        ranking(sweep(("fastformer",), **QUIET), 1024)
