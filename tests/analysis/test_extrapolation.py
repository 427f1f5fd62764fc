"""Predictions of lengths that were not measured: from all rounds, with a band."""

from dataclasses import replace

import numpy as np
import pytest

from attnbench.analysis.recommend import recommend
from attnbench.analysis.report import analyse
from attnbench.analysis.summary import summary
from attnbench.records import Cause, Mode, Outcome, Part, Run
from attnbench.render.recommendation import ranking, recommended
from tests.sweeps import altered, seconds, slowed, sweep

MEASURED = 8192  # up to here
MODES = (Mode.INFERENCE,)


def over_budget(case):
    if case.workload.seq_len <= MEASURED:
        return None
    run = Run(case=case.key, part=Part.TIME, round=0, outcome=Outcome.SKIPPED)
    return replace(run, cause=Cause.BUDGET, reason="over the budget")


def ended(*series, **how):
    return sweep(series, modes=MODES, end=over_budget, **{"restart": 0.01, "noise": 0.01} | how)


def chosen(whole, seq_len=65_536):
    return recommend(analyse(whole), seq_len)


def test_the_last_round_does_not_reverse_a_ranking():
    """Fastformer takes 1.1 µs a token and Linformer 1.5, in all rounds but the last: then 2.2."""
    whole = ended("fastformer", "linformer")
    keys = {(p.case.mechanism, p.case.workload.seq_len): p.case.key for p in whole.plan}
    last = (keys["fastformer", MEASURED], 2)
    whole = altered(whole, lambda run: slowed(run, 2.0) if (run.case, run.round) == last else run)
    cases = summary(whole).set_index("key")
    fast, slow = (cases.loc[keys[name, 65_536]] for name in ("fastformer", "linformer"))
    assert fast["predicted_s"] < slow["predicted_s"]
    longest = cases.loc[keys["fastformer", MEASURED], "time_s"]
    assert fast["predicted_s"] / longest == pytest.approx(8.0, rel=1e-2)


def test_bands_hold_what_would_have_been_measured_and_widen_with_the_distance():
    held = []
    for seed in range(20):
        whole = ended("transformer", "fastformer", "linformer", seed=seed)
        cases = summary(whole)
        far = cases[cases["seq_len"] > MEASURED]
        truths = [seconds(line.case.mechanism, line.case.workload) for line in whole.plan]
        truth = np.array(truths)[far.index]
        held += list((far["predicted_lo_s"] < truth) & (truth < far["predicted_hi_s"]))
        for _, own in far.groupby("series"):
            widths = own["predicted_hi_s"] / own["predicted_lo_s"]
            assert list(widths) == sorted(widths)
    assert sum(held) >= 0.9 * len(held)
    assert cases.loc[cases["time_s"].notna(), "predicted_lo_s"].isna().all()


def test_with_two_lengths_alone_and_with_lengths_too_close_to_tell_the_growth_there_is_no_band():
    """The error of an exponent over a thousandth of the length would make e ** 800 of a band."""
    few = ended("fastformer", lengths=(4096, 8192, 16_384))
    near = {"lengths": (1000, 1001, 1002, 65_536), "restart": 0.05}
    for whole in (few, *(ended("fastformer", "linformer", seed=seed, **near) for seed in range(4))):
        last = summary(whole).iloc[-1]
        assert last["predicted_s"] == pytest.approx(1.5e-6 * last["seq_len"], rel=0.35)
        assert np.isnan(last[["predicted_lo_s", "predicted_hi_s"]].astype(float)).all()


def test_where_nothing_was_measured_it_says_so_and_what_is_predicted():
    whole = ended("fastformer", "linformer", "transformer")
    found = chosen(whole)
    assert found["rank"].isna().all()
    text = recommended(found)
    said = "inference: nothing that fits was measured; not measured, but predicted: Fastformer "
    assert text.startswith(said)
    largest = found["allocated_peak_bytes"].max()
    _, fitting = recommended(recommend(analyse(whole), 65_536, largest - 1)).split("predicted: ")
    assert "Fastformer " in fitting
    assert "Transformer" not in fitting
    nothing = recommended(recommend(analyse(whole), 65_536, 1.0))
    assert nothing == "inference: nothing that fits was measured."
    table = ranking(found)
    times = [row[table.columns.index("Time, ms")] for row in table.rows]
    assert all(time.low < time.value < time.high for time in times)
    assert all(time.text.endswith(" predicted") for time in times)


def test_what_was_not_measured_and_may_be_faster_is_named_beside_what_was():
    def end(case):
        return over_budget(case) if case.mechanism == "fastformer" else None

    found = chosen(sweep(("fastformer", "linformer"), modes=MODES, end=end))
    assert found["rank"].isna().tolist() == [False, True]
    assert list(found["excluded"]) == ["", ""]
    said = "inference: Linformer; not measured, but predicted: Fastformer "
    assert recommended(found).startswith(said)
