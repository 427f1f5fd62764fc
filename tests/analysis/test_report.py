"""The analysis of a sweep: what it compares with, and warnings as data."""

from dataclasses import replace

import pytest

from attnbench.analysis.report import Analysis, analyse
from attnbench.errors import UnknownMechanism
from attnbench.records import Clock, Mode, Part, Run, Sample
from attnbench.render.conditions import conditions, warnings
from tests.sweeps import LENGTHS, altered, decoded, environment, on_gpu, sweep


def test_a_series_is_selected_by_its_name_or_its_mechanism():
    whole = sweep(("longformer", "transformer"), lengths=(128,))
    for name in ("transformer", "transformer:eager"):
        assert analyse(whole, name).against == ("transformer:eager",)
    with pytest.raises(UnknownMechanism, match=r"no mechanism 'x' .* longformer, transformer"):
        analyse(whole, "x")


def warned(found: Analysis) -> str:
    """All warnings, a line each."""
    return "\n".join(found.warnings)


def test_causal_and_full_attention_in_one_sweep_is_a_warning():
    whole = sweep(("fastformer", "mamba2"), lengths=(128,))
    plan = [
        replace(p, case=replace(p.case, workload=replace(p.case.workload, causal=True)))
        if p.case.mechanism == "mamba2"
        else p
        for p in whole.plan
    ]
    found = analyse(replace(whole, plan=tuple(plan)))
    assert warnings(found)[0] == (
        "always causal, while the others attend to all tokens: mamba2:eager; --causal makes all"
        " causal"
    )
    mine = next(p.case.key for p in whole.plan if p.case.mechanism == "mamba2")
    notes = {"causal": "it sees no later token"}  # which only a test could tell
    tested = altered(whole, lambda run: replace(run, notes=notes) if run.case == mine else run)
    assert warnings(analyse(tested))[0] == warnings(found)[0]
    alone = replace(whole, plan=tuple(p for p in plan if p.case.mechanism == "mamba2"))
    assert "always causal" not in warned(analyse(alone))


def test_warnings_are_data_with_the_most_serious_first():
    assert analyse(sweep(("fastformer",))).warnings == ()
    whole = sweep(("fastformer",), rounds=1, lengths=(128,), modes=(Mode.INFERENCE,))
    sessions = (environment(load=3.5), environment(torch="2.12.0", load=None))
    whole = replace(whole, finished=False, warnings=("line 7 was set aside",), sessions=sessions)
    more = {"kept_bytes": 3e6}
    odd = altered(whole, lambda r: replace(r, notes={"changed": "the dtype"}, values=more))
    found = warned(analyse(odd))
    said = (
        "line 7 was set aside",
        "the sweep did not finish",
        "times come from sessions on different machines",
        "fastformer:eager keeps 2.861 MiB with each iteration: it is shown, and not ranked",
        "fastformer:eager changed the dtype; times and results",
        "the machine was busy: load 3.5 on 2 cores",
        "one round only",
    )
    lines = found.split("\n")
    assert all(line.startswith(start) for line, start in zip(lines, said, strict=True))


def test_warnings_name_a_curve_of_several_forms_as_the_tables_do_and_what_departs():
    whole = sweep(("fastformer",), form=lambda _, w: "eager" if w.seq_len < 512 else "other")
    long = {planned.case.key for planned in whole.plan if planned.case.form == "other"}

    def change(run: Run) -> Run:
        share = 0.5 if run.case in long else 1.0
        samples = (
            s._replace(clock=Clock.CPU, cpu_s=share * s.wall_s, waited_s=0.0) for s in run.samples
        )
        notes = {"package": "mine 1.0", "departs": "heads share their keys"}
        return replace(run, samples=tuple(samples), notes=notes if run.case in long else {})

    found = analyse(altered(whole, change))
    assert set(found.cases["series"]) == {"fastformer"}
    sentence = "fastformer (mine 1.0) departs from the equations: heads share their keys"
    assert warnings(found).count(sentence) == 1
    assert "fastformer sleeps or lets other processes compute" in warned(found)
    assert "Packages: mine 1.0." in conditions(found)


def test_launches_and_clocks_of_a_gpu_are_warned_of():
    sample = Sample(4, 1.0, 1.0, 0.2, 0.2, 0.0, 0.0, enqueue_s=0.4)
    notes = {"throttle": "power cap", "clock": "below 75 %"}
    found = warned(analyse(on_gpu(sample, **notes)))
    said = (
        "1 of 1 cases are launch-bound: ",
        "throttled: power cap in 2 runs; a clock far below its maximum in 2 runs;",
    )
    assert all(part in found for part in said)
    assert "not ranked" not in found
    found = warned(analyse(on_gpu(sample, launches="not hidden")))
    assert "the GPU's times of 1 case include launches that could not be hidden" in found
    assert not warned(analyse(on_gpu(sample._replace(enqueue_s=0.1))))


@pytest.mark.parametrize("cold", [False, True])
def test_states_that_a_gpu_keeps_in_its_cache_are_warned_of_unless_it_is_flushed(cold):
    whole = decoded({"transformer": lambda n: n << 10, "mamba2": lambda n: 1 << 20})
    notes = {"L2 cache": "10240 KiB"}
    settings = replace(whole.request.settings, cold=cold)
    whole = replace(
        whole,
        request=replace(whole.request, settings=settings),
        sessions=(environment(cuda="13.0", notes=notes),),
    )
    small = sum((n << 10) < 20 << 20 for n in LENGTHS) + len(LENGTHS)
    said = f"the states of {small} cases are smaller than 2 of the GPU's L2 caches (10.00 MiB)"
    assert (said in warned(analyse(whole))) is not cold


def test_a_fused_form_that_stored_all_scores_is_warned_of():
    notes = {"attention_kernel": "scaled_dot_product_attention_math"}
    whole = sweep(("transformer", "fastformer"), lengths=(128,), rounds=2)
    keys = {p.case.key for p in whole.plan if p.case.mechanism == "transformer"}
    found = altered(whole, lambda r: replace(r, notes=notes) if r.case in keys else r, Part.MEMORY)
    assert "transformer:eager stored all scores in 2 cases: " in warned(analyse(found))
    assert "stored all scores" not in warned(analyse(whole))


def test_the_baseline_is_softmax_attention_unless_another_series_is_chosen():
    assert analyse(sweep(("fastformer", "transformer"))).baselines == ("transformer:eager",)
    assert analyse(sweep(("fastformer", "linformer"))).baselines == ("fastformer:eager",)
    found = analyse(sweep(), "linformer")
    assert found.baselines == found.against == ("linformer:eager",)
    assert "linformer:eager" not in set(found.speedups["series"])
    assert analyse(sweep(("fastformer",))).speedups is None
