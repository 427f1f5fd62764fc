import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnbench.analysis.scaling import scaling
from attnbench.analysis.summary import summary
from attnbench.records import MISSING, Clock, Mode, Outcome, Part, Sample, Workload
from attnbench.records.storage.journal import load
from tests.sweeps import LENGTHS, altered, censored, decoded, lost, on_gpu, seconds, sweep


def test_a_row_per_case_of_the_plan_has_the_times_of_its_samples():
    whole = sweep(restart=0.0, noise=0.0)
    found = summary(whole)
    assert list(found["key"]) == [line.case.key for line in whole.plan]
    assert list(found["case"]) == [str(line.case) for line in whole.plan]
    measured = found[found["outcome"] == "ok"]
    truth = [seconds(line.case.mechanism, line.case.workload) for line in whole.plan]
    np.testing.assert_allclose(measured["time_s"], np.array(truth)[measured.index])
    assert (measured["time_lo_s"] <= measured["time_s"] * 1.0000001).all()
    assert np.allclose(measured["token_s"] * measured["tokens"], measured["time_s"])
    assert np.allclose(
        measured["forward_s"] + measured["backward_s"] + measured["step_s"], measured["wall_s"]
    )
    assert (measured.loc[measured["mode"] == "inference", "backward_s"] == 0).all()


def test_intervals_over_rounds_cover_most_true_times_and_every_cost_has_one():
    whole = sweep(seed=5)
    found = summary(whole)
    truth = np.array([seconds(line.case.mechanism, line.case.workload) for line in whole.plan])
    timed = found["time_s"].notna()
    held = (found["time_lo_s"] <= truth) & (truth <= found["time_hi_s"])
    assert held[timed].mean() > 0.85
    assert set(found.loc[timed, "interval_kind"]) == {"rounds"}
    ok = found[timed & (found["mode"] == "training")]
    for name in ("time", "wall", "cpu", "forward", "backward", "step", "token", "tokens_per"):
        assert (ok[f"{name}_lo_s"] < ok[f"{name}_s"]).all()
        assert (ok[f"{name}_s"] < ok[f"{name}_hi_s"]).all()
        assert ok[[f"{name}_log_se", f"{name}_df"]].gt(0).all(axis=None)
    assert found[["device_s", "device_lo_s", "energy_j", "energy_lo_j"]].isna().all(axis=None)
    idle = found[timed & (found["mode"] == "inference")]
    assert set(idle["backward_s"]) == {0}
    assert idle["backward_lo_s"].isna().all()


def test_one_round_has_an_interval_within_one_process():
    found = summary(sweep(rounds=1))
    assert set(found.loc[found["time_s"].notna(), "interval_kind"]) == {"within one process"}
    few = summary(sweep(rounds=1, samples=1))
    assert set(few["interval_kind"]) == {"too few samples"}
    assert few["time_lo_s"].isna().all()
    assert few["time_s"].notna().any()


def test_a_row_says_how_a_case_ended_and_why():
    found = summary(sweep()).set_index(["mechanism", "mode", "seq_len"])
    assert found.loc[("transformer", "training", 32_768), "outcome"] == "oom"
    end = found.loc[("transformer", "inference", 65_536)]
    assert end["outcome"] == "skipped"
    assert end["reason"] == "over the budget: predicted 370 s"
    assert math.isnan(end["time_s"])
    assert end["predicted_s"] > 0


def test_a_case_without_runs_is_missing_or_refused():
    whole = sweep(("fastformer",), lengths=(128,))
    refused = replace(whole.plan[1], refusal="it has no causal form")
    found = summary(replace(whole, runs=(), plan=(whole.plan[0], refused)))
    assert list(found["outcome"]) == [MISSING, "unsupported"]
    assert list(found["reason"]) == ["not run", "it has no causal form"]


def test_a_failed_memory_pass_is_reported_and_leaves_the_time():
    whole = sweep(("fastformer",), lengths=(128,), modes=(Mode.INFERENCE,))
    crashed = {"outcome": Outcome.CRASHED, "reason": "signal 9", "values": {}}
    broken = altered(whole, lambda run: replace(run, **crashed), Part.MEMORY)
    row = summary(broken).iloc[0]
    assert row["time_s"] > 0
    assert (row["outcome"], row["reason"]) == ("crashed", "memory: signal 9")
    assert math.isnan(row["allocated_peak_bytes"])


def test_a_repeated_run_replaces_the_earlier_one():
    whole = sweep(("fastformer",), lengths=(128,), modes=(Mode.INFERENCE,), rounds=1)
    lost = replace(whole.runs[0], outcome=Outcome.CRASHED, reason="killed", samples=())
    row = summary(replace(whole, runs=(lost, *whole.runs))).iloc[0]
    assert row["outcome"] == "ok"
    assert row["rounds"] == 1


@pytest.mark.parametrize("name", ["cpu-fig2", "cpu-decode", "cpu-root"])
def test_stored_sweeps_keep_the_times_with_which_they_were_reported(name):
    folder = Path(__file__).parents[2] / "reports" / name
    reported = pd.read_csv(folder / "cases.csv", index_col="case")["time_s"]
    found = summary(load(folder)).set_index("case")["time_s"]
    assert found.notna().any()
    pd.testing.assert_series_equal(found, reported[found.index], rtol=1e-4)


def test_the_clock_of_the_times_is_said():
    wall = sweep(("fastformer",), lengths=(128,))
    settings = replace(wall.request.settings, clock=Clock.CPU, threads=1)
    core = replace(wall, request=replace(wall.request, settings=settings))
    gpu = on_gpu(Sample(4, 1.0, 1.0, 0.2, 1.0, 0.0, 0.0))
    for one, clock, threads in (
        (wall, "wall time", 2),
        (core, "CPU time", 1),
        (gpu, "device time", 2),
        (replace(core, runs=()), "CPU time", 1),
    ):
        found = summary(one)
        assert ({*found["clock"]}, {*found["threads"]}) == ({clock}, {threads})


def test_the_time_of_a_gpu_is_its_own_and_its_wall_time_is_without_holds():
    plain = Sample(4, 1.0, 1.0, 0.2, 1.0, 0.0, 0.0)
    held = Sample(4, 1.0, 1.0, 0.2, 0.2, 0.0, 0.0, enqueue_s=0.4, unheld_s=0.11)
    names = ["time_s", "wall_s", "enqueue_s"]
    for sample, times in ((plain, (0.05, 0.25, math.nan)), (held, (0.05, 0.11, 0.1))):
        row = summary(on_gpu(sample)).iloc[0][names]
        assert tuple(row) == pytest.approx(times, nan_ok=True)


@pytest.mark.parametrize(
    ("enqueue_s", "notes", "bound"),
    [
        (0.4, {}, True),
        (0.1, {}, False),
        (0.1, {"launches": "not hidden: the host waits"}, True),
        (None, {}, False),
    ],
)
def test_a_case_is_launch_bound_if_the_host_is_slower_or_waits(enqueue_s, notes, bound):
    sample = Sample(4, 1.0, 1.0, 0.2, 0.2, 0.0, 0.0, enqueue_s=enqueue_s)
    (row,) = summary(on_gpu(sample, **notes)).to_dict("records")
    assert row["launch_bound"] is bound


def test_memory_is_the_largest_of_the_passes():
    whole = sweep(("fastformer",), lengths=(128,), modes=(Mode.INFERENCE,), rounds=1)
    values = {"reserved_peak_bytes": 5.0, "allocated_peak_bytes": 1.0}
    weighed = next(run for run in whole.runs if run.part is Part.MEMORY)
    row = summary(replace(whole, runs=(*whole.runs, replace(weighed, round=1, values=values))))
    assert row["reserved_peak_bytes"].item() == 5.0
    assert row["allocated_peak_bytes"].item() > 1e6


def test_forms_of_one_workload_are_curves_and_a_default_that_changes_with_length_is_one():
    def best(mechanism: str, workload: Workload) -> str:
        return "folded" if mechanism == "fastformer" and workload.seq_len > 256 else "eager"

    found = summary(sweep(("fastformer", "transformer"), form=best))
    assert list(dict.fromkeys(found["series"])) == ["fastformer", "transformer:eager"]
    assert set(found.loc[found["series"] == "fastformer", "form"]) == {"eager", "folded"}
    found = summary(sweep(("fastformer:eager", "fastformer:folded"), lengths=LENGTHS[:2]))
    assert list(dict.fromkeys(found["series"])) == ["fastformer:eager", "fastformer:folded"]


def test_an_empty_sweep_and_nothing_but_failures_are_tables():
    whole = sweep(end=lambda case: censored(case) or lost(case, Outcome.TIMEOUT))
    assert summary(replace(whole, plan=(), runs=())).empty
    found = summary(whole)
    assert found["time_s"].isna().all()
    assert (found["outcome"] != "ok").all()


def test_counts_of_a_run_replace_guesses():
    whole = sweep(("fastformer",), rounds=1)
    own = {"parameters": 7, "flops": 11}
    counted = altered(whole, lambda run: replace(run, values=own), Part.MEMORY)
    guessed, found = summary(whole), summary(counted)
    assert (found["parameters"] == 7).all()
    assert (found["flops"] == 11).all()
    assert found["core_flops"].isna().all()
    assert guessed["core_flops"].notna().all()


def test_what_a_module_without_a_card_was_not_counted_for_is_unknown():
    whole = sweep(("fastformer", "mine"), lengths=(128, 512), end=lambda case: None)
    plan = (replace(p, declared=p.case.mechanism == "fastformer") for p in whole.plan)
    found = summary(replace(whole, plan=tuple(plan))).groupby("mechanism")
    assert found[["parameters", "flops"]].count().to_numpy().tolist() == [[4, 4], [0, 0]]


def test_neither_a_fixed_batch_nor_a_step_is_scaled_to_the_tokens_of_the_sweep():
    whole = sweep(("fastformer",), lengths=(128,))
    fixed = replace(whole, request=replace(whole.request, batch=4))
    step = sweep(("fastformer",), lengths=(128,), modes=(Mode.DECODE,))
    scales = [set(summary(each)["batch_scale"]) for each in (fixed, step)]
    assert scales == [{1.0}, {1.0}]


def test_a_step_gives_one_token_of_each_sequence():
    whole = decoded({"transformer": lambda n: 2048 * n, "fastformer": lambda n: 4096})
    for found, tokens in (
        (summary(whole), "batch"),
        (summary(sweep(("fastformer",), lengths=(128,), modes=(Mode.INFERENCE,))), "tokens"),
    ):
        np.testing.assert_allclose(found["tokens_per_s"] * found["time_s"], found[tokens])
    times = scaling(summary(whole), ("time_s",)).set_index("mechanism")
    assert times.loc["fastformer", "exponent"] == pytest.approx(0, abs=0.05)
