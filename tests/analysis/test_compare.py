from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis import compare as compared
from attnbench.analysis.compare import PORTABLE, Comparison, refusals
from attnbench.analysis.report import analyse
from attnbench.gate.finding import counts
from attnbench.metrics import COUNTED
from attnbench.records import Clock, Mode, Part, Run, Sweep
from attnbench.statistics.verdict import Verdict, discoveries, judge
from tests.sweeps import altered, changed, environment, sweep


def compare(first: Sweep, second: Sweep, **how: bool) -> Comparison:
    return compared.compare(analyse(first), analyse(second), **how)


def verdicts(first: Sweep, second: Sweep, mechanism: str = "") -> set[str]:
    rows = compare(first, second).rows
    chosen = rows[(rows["metric"] == "time_s") & rows["series"].str.startswith(mechanism)]
    return set(chosen["verdict"])


def test_a_quiet_sweep_is_the_same_as_itself():
    whole = sweep(restart=0.002, noise=0.001)
    found = compare(whole, whole)
    assert found.refusals == ()
    assert set(found.rows["verdict"]) == {"same", "missing"}
    gone = found.rows[found.rows["verdict"] == "missing"]
    assert set(gone["seq_len"]) == {32_768, 65_536}
    assert (gone["reason"] != "").all()


def test_only_what_became_slower_is_called_slower():
    first = sweep(restart=0.01, seed=1)
    second = changed(sweep(restart=0.01, seed=2), "fastformer", 1.2)
    assert verdicts(first, second, "fastformer") == {"slower"}
    assert verdicts(second, first, "fastformer") == {"faster"}
    assert not verdicts(first, second, "linformer") & {"slower", "faster"}


def test_noise_alone_raises_few_false_alarms():
    few = {"series": ("linformer",), "lengths": (128, 512, 2048, 8192), "samples": 2}
    alarms = [
        bool(verdicts(sweep(**few, seed=s), sweep(**few, seed=s + 100)) & {"slower", "faster"})
        for s in range(20)
    ]
    assert np.mean(alarms) < 0.15


def test_times_of_other_machines_are_refused_with_a_reason_but_counts_compared():
    first, second = sweep(), sweep(machine=environment(torch="2.12.0", threads=1))
    found = compare(first, second)
    assert found.refusals == ("threads: 2 and 1", "torch: 2.13.0 and 2.12.0")

    assert "time_s" not in set(found.rows["metric"])
    assert {"flops", "allocated_peak_bytes"} <= set(found.rows["metric"])
    told = compare(first, second, anyway=True)
    assert "time_s" in set(told.rows["metric"])
    assert told.refusals == found.refusals


def test_times_of_different_clocks_are_not_compared():
    wall = sweep()
    by_core = replace(wall.request.settings, clock=Clock.CPU)
    core = replace(wall, request=replace(wall.request, settings=by_core))
    assert compare(wall, core).refusals == ("clock: wall time and CPU time",)


def test_a_sweep_of_two_machines_is_refused_even_against_itself():
    mixed = replace(sweep(), sessions=(environment(), environment(cores=4)))
    assert refusals(mixed, mixed) == ("cores: 2 or 4 and 2 or 4",)


def test_a_case_of_one_sweep_is_missing_and_its_reason_names_the_sweep():
    rows = compare(sweep(("fastformer", "linformer")), sweep(("fastformer",))).rows
    gone = rows[rows["series"] == "linformer:eager"]
    assert set(gone["verdict"]) == {"missing"}
    assert set(gone["reason"]) == {"not in the second sweep"}


@pytest.mark.parametrize("key", COUNTED)
@pytest.mark.parametrize("head", [900, 991, 1000, 1009, 1100])
def test_a_check_and_a_comparison_agree_on_counts(key: str, head: int):
    whole = sweep(("fastformer",), lengths=(128,), modes=(Mode.INFERENCE,))
    planned = {"parameters": 0, "projection_flops": 0, "core_flops": 0, "shell_flops": 0}

    def having(number: int) -> Sweep:
        plan = [
            replace(line, **{**planned, **({"parameters": number} if key == "parameters" else {}),
                             **({"core_flops": number} if key == "flops" else {})})
            for line in whole.plan
        ]  # fmt: skip
        counted = altered(whole, lambda run: replace(run, values={key: number}), Part.MEMORY)
        return replace(counted, plan=tuple(plan))

    rows = compare(having(1000), having(head)).rows
    (checked,) = counts("m", "c", {key: 1000}, {key: head})
    assert set(rows.loc[rows["metric"] == key, "verdict"]) == {checked.verdict}


@pytest.mark.parametrize(("change", "verdict"), [(0, "same"), (0.005, "slower")])
def test_flops_are_exact(change: float, verdict: str):
    first = sweep(("fastformer",))
    grown = [replace(p, projection_flops=round(p.projection_flops * (1 + 1.6 * change)))
             for p in first.plan]  # fmt: skip
    rows = compare(first, replace(first, plan=tuple(grown))).rows
    assert set(rows.loc[rows["metric"] == "flops", "verdict"]) == {verdict}


def test_one_round_in_either_sweep_gives_no_verdict_of_change():
    once = changed(sweep(rounds=1, restart=0.01), "fastformer", 6.0)
    often = sweep(restart=0.01, seed=1)
    for pair in ((once, often), (often, once), (once, sweep(rounds=1, seed=2))):
        found = compare(*pair).rows
        times = found[found["metric"] == "time_s"]
        assert set(times["verdict"]) == {Verdict.UNSURE, Verdict.MISSING}
        assert times["reason"].ne("").all()
        assert compare(*pair).curves.empty


def test_without_a_number_in_either_sweep_there_is_nothing_to_compare():
    whole = sweep(("mine",), lengths=(128,))
    plan = tuple(replace(planned, declared=False) for planned in whole.plan)
    lost = replace(whole, plan=plan, runs=())
    assert compare(lost, replace(lost, sessions=(environment(cores=4),))).rows.empty


def test_a_verdict_needs_size_and_certainty():
    assert judge(np.nan, np.nan, np.nan, False) is Verdict.MISSING
    assert judge(0.2, 0.1, 0.3, True) is Verdict.SLOWER
    assert judge(-0.2, -0.3, -0.1, True) is Verdict.FASTER
    assert judge(0.2, -0.1, 0.5, False) is Verdict.UNSURE
    assert judge(0.01, 0.005, 0.015, True) is Verdict.SAME
    assert judge(0.2, np.nan, np.nan, False) is Verdict.UNSURE


def test_discoveries_follow_the_rule():
    # the example of Benjamini and Hochberg (1995), section 3.2: the four smallest of fifteen
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    p += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.000]
    assert discoveries(p).tolist() == [True] * 4 + [False] * 11


@given(st.lists(st.floats(0, 1) | st.just(float("nan")), max_size=30))
def test_discoveries_are_the_smallest_p_values(p_values: list[float]):
    called = discoveries(p_values)
    p = np.array(p_values, float)
    if called.any():
        assert p[called].max() <= np.nanmin(np.where(called, np.inf, p), initial=np.inf)


def with_dtype(whole: Sweep, dtype: str) -> Sweep:
    """The sweep in another dtype."""
    keys = {}
    plan = []
    for line in whole.plan:
        case = replace(line.case, workload=replace(line.case.workload, dtype=dtype))
        keys[line.case.key] = case.key
        plan.append(replace(line, case=case))
    renamed = altered(whole, lambda run: replace(run, case=keys[run.case]))
    return replace(renamed, request=replace(whole.request, dtype=dtype), plan=tuple(plan))


@pytest.mark.parametrize("name", ["cold", "cuda_graphs"])
def test_times_that_were_measured_in_another_way_are_refused(name):
    first = sweep()
    settings = replace(first.request.settings, **{name: True})
    second = replace(first, request=replace(first.request, settings=settings))
    option = "--" + name.replace("_", "-")
    assert compare(first, second).refusals == (f"{option}: in one of them only",)


def test_times_in_another_dtype_are_refused_but_flops_are_compared():
    first, second = sweep(), with_dtype(sweep(), "bfloat16")
    found = compare(first, second)
    assert found.refusals == ("dtype: float32 and bfloat16",)
    assert set(found.rows["metric"]) == set(PORTABLE)
    assert set(found.rows["verdict"]) == {"same"}
    anyway = compare(first, second, anyway=True).rows
    assert {"time_s", "allocated_peak_bytes"} <= set(anyway["metric"])
    assert set(anyway["verdict"]) <= {"same", "unsure", "missing"}


def test_a_change_that_all_lengths_share_is_called_where_no_single_length_can_be():
    first = sweep(rounds=2, restart=0.15, seed=1)
    second = changed(sweep(rounds=2, restart=0.15, seed=2), "fastformer", 1.5)
    curves = compare(first, second).curves.set_index(["series", "mode"])
    assert set(curves.loc["fastformer:eager", "verdict"]) == {"slower"}
    assert not set(curves.loc["linformer:eager", "verdict"]) & {"slower", "faster"}
    assert curves.loc[("fastformer:eager", "training"), "lengths"] == 10


def test_whole_curves_raise_few_false_alarms():
    called = 0
    small = {"lengths": (128, 256, 512, 1024), "modes": (Mode.INFERENCE,), "restart": 0.1}
    for seed in range(20):
        found = compare(sweep(seed=seed, **small), sweep(seed=seed + 50, **small))
        called += found.curves["verdict"].isin(["slower", "faster"]).sum()
    # 20 families of 3 curves; the rule allows one false family in twenty
    assert called <= 2


@pytest.mark.parametrize(("change", "verdict"), [(0.005, "same"), (0.02, "slower")])
def test_peaks_are_judged_to_one_percent(change: float, verdict: str):
    """The tolerance of a check: workspaces of kernels depend on the processor."""
    first = sweep(("fastformer",), lengths=(128,), modes=(Mode.INFERENCE,))

    def grown(run: Run) -> Run:
        return replace(run, values={key: (1 + change) * n for key, n in run.values.items()})

    rows = compare(first, altered(first, grown)).rows
    assert set(rows.loc[rows["metric"] == "allocated_peak_bytes", "verdict"]) == {verdict}
