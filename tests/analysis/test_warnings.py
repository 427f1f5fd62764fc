"""Reasons to trust a sweep less: each is said once, with what to do, and only where it holds."""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import pytest

from attnbench.analysis.report import analyse
from attnbench.records import Clock, Disturbance, Mode, Part, Run, Sample, Sweep
from attnbench.report.conditions import conditions
from tests.sweeps import LENGTHS, altered, changed, decoded, environment, on_gpu, sweep

DEPENDS = "; times and results may depend on it"


def warned(whole: Sweep) -> str:
    """All warnings, a line each."""
    return "\n".join(analyse(whole).warnings)


@pytest.mark.parametrize(
    ("kind", "note", "said"),
    [
        ("suspect", "ignored it", "fastformer:eager ignored it: it is shown, and not ranked"),
        ("changed", "number of threads", "fastformer:eager changed number of threads" + DEPENDS),
        ("odd", "returned its input", "fastformer:eager returned its input" + DEPENDS),
        ("processes", "started 40", "fastformer:eager started 40" + DEPENDS),
        ("later", "oom in a later race", "fastformer:eager oom in a later race" + DEPENDS),
        ("unexamined", "was not examined", "fastformer:eager was not examined"),
        ("garbage", "leaves garbage", "fastformer:eager leaves garbage"),
        ("energy", "Permission denied", "energy was not measured: Permission denied"),
        ("arithmetic", "3xTF32",
         "fastformer:eager multiplies float32 on tensor cores (3xTF32: each number is split in"
         " two), and other forms do not; --dtype bf16 compares both on the same units"),
        ("attention_kernel", "scaled_dot_product_attention_math",
         "fastformer:eager stored all scores in 4 cases: torch has no fused kernel for its number"
         " type, mask and width here"),
    ],
)  # fmt: skip
def test_what_runs_note_is_said_once(kind, note, said):
    whole = sweep(("fastformer",), lengths=(128, 512), rounds=2)
    assert warned(whole) == ""
    assert warned(altered(whole, lambda run: replace(run, notes={kind: note}))) == said


def test_what_could_be_examined_in_some_run_is_not_called_unexamined():
    notes = iter([{"examined": "yes"}, *[{"unexamined": "was not examined"}] * 99])
    whole = sweep(("fastformer",), lengths=(128,), rounds=2)
    assert warned(altered(whole, lambda run: replace(run, notes=next(notes)))) == ""


def test_causal_and_full_attention_in_one_sweep_is_a_warning():
    whole = sweep(("fastformer", "mamba2"), lengths=(128,))
    plan = [
        replace(p, case=replace(p.case, workload=replace(p.case.workload, causal=True)))
        if p.case.mechanism == "mamba2"
        else p
        for p in whole.plan
    ]
    causal = warned(replace(whole, plan=tuple(plan)))
    assert causal == (
        "always causal, while tokens of the others see later ones: mamba2:eager; --causal makes all"
        " causal"
    )
    mine = next(p.case.key for p in whole.plan if p.case.mechanism == "mamba2")
    notes = {"causal": "it sees no later token"}  # which only a test could tell
    tested = altered(whole, lambda run: replace(run, notes=notes) if run.case == mine else run)
    assert warned(tested) == causal
    alone = replace(whole, plan=tuple(p for p in plan if p.case.mechanism == "mamba2"))
    assert "always causal" not in warned(alone)


def test_the_most_serious_come_first():
    whole = sweep(("fastformer",), rounds=1, lengths=(128,), modes=(Mode.INFERENCE,))
    sessions = (environment(load=3.5), environment(torch="2.12.0", load=None))
    whole = replace(whole, finished=False, warnings=("line 7 was set aside",), sessions=sessions)
    more = {"kept_bytes": 3e6}
    odd = altered(whole, lambda r: replace(r, notes={"changed": "the dtype"}, values=more))
    said = (
        "line 7 was set aside",
        "the sweep did not finish",
        "times come from sessions on different machines",
        "fastformer:eager keeps 2.861 MiB with each iteration: it is shown, and not ranked",
        "fastformer:eager changed the dtype; times and results",
        "the machine was busy: load 3.5 on 2 cores",
        "one round only",
    )
    lines = warned(odd).split("\n")
    assert all(line.startswith(start) for line, start in zip(lines, said, strict=True))


def test_a_time_below_that_of_reading_the_input_is_named():
    faster = changed(sweep(("fastformer",), rounds=2), "fastformer", 1e-9)
    assert "less time than reading its input takes" in warned(faster)


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
    assert found.warnings.count(sentence) == 1
    assert "fastformer sleeps or lets other processes compute" in "\n".join(found.warnings)
    assert "Packages: mine 1.0." in conditions(found)


def test_launches_clocks_and_other_users_of_a_gpu_are_warned_of():
    sample = Sample(4, 1.0, 1.0, 0.2, 0.2, 0.0, 0.0, enqueue_s=0.4)
    found = warned(on_gpu(sample, throttle="power cap", clock="below 75 %"))
    assert "1 of 1 cases are launch-bound: " in found
    assert "throttled: power cap in 2 runs; a clock far below its maximum in 2 runs; cool" in found
    assert "not ranked" not in found
    found = warned(on_gpu(sample, launches="not hidden"))
    assert "the GPU's times of 1 case include launches that could not be hidden" in found
    quiet = on_gpu(sample._replace(enqueue_s=0.1))
    assert warned(quiet) == ""
    other = environment(cuda="13.0", notes={"other processes": "busy 31 % of the time"})
    said = "other processes used the GPU when the sweep began: busy 31 % of the time"
    assert warned(replace(quiet, sessions=(other,))) == said


def test_a_clock_that_is_lower_than_that_of_others_is_named():
    whole = sweep(("fastformer", "transformer"), lengths=(128,), modes=(Mode.TRAINING,))
    fast, slow = (planned.case.key for planned in whole.plan)
    clocks = {fast: {"sm_clock_hz": 1.9e9}, slow: {"sm_clock_hz": 1.3e9}}
    uneven = altered(whole, lambda run: replace(run, values=run.values | clocks[run.case]))
    said = (
        "transformer:eager ran at 68 % of the clock that the GPU had for others in the comparison"
    )
    assert warned(uneven) == said


@pytest.mark.parametrize("cold", [False, True])
def test_states_that_a_gpu_keeps_in_its_cache_are_warned_of_unless_it_is_flushed(cold):
    whole = decoded({"transformer": lambda n: n << 10, "mamba2": lambda n: 1 << 20})
    notes = {"L2 cache": "10240 KiB"}
    settings = replace(whole.request.settings, cold=cold)
    session = environment(cuda="13.0", notes=notes)
    whole = replace(whole, request=replace(whole.request, settings=settings), sessions=(session,))
    small = sum((n << 10) < 20 << 20 for n in LENGTHS) + len(LENGTHS)
    said = f"the states of {small} cases are smaller than 2 of the GPU's L2 caches (10.00 MiB)"
    assert (said in warned(whole)) is not cold


def disturbed(whole: Sweep, load: float, throttle: str, every: int) -> Sweep:
    """The sweep with one in `every` runs under a load, on a throttled GPU."""
    runs = list(whole.runs)
    for i in range(0, len(runs), every):
        if runs[i].part is Part.TIME:
            values = {**runs[i].values, "load_before": load}
            runs[i] = replace(runs[i], values=values, notes={"throttle": throttle})
    return replace(whole, runs=tuple(runs))


def test_warnings_name_load_and_throttling_of_single_runs_and_what_to_do():
    whole = disturbed(sweep(("fastformer",)), 5.5, "SwThermalSlowdown", 2)
    said = "the machine was busy: load 3.5 on 2 cores by other programs; measure again when it is"
    assert said in warned(whole), "its own two threads are not meant"
    assert "throttled: SwThermalSlowdown in" in warned(whole)
    assert warned(disturbed(sweep(("fastformer",)), 2.4, "", 2)) == ""


def on_one_core(whole: Sweep, away: float = 0.0, waited: float = 0.5) -> Sweep:
    """The sweep by CPU time: of each sample's wall time shares were spent `waited` and `away`."""
    settings = replace(whole.request.settings, clock=Clock.CPU, threads=1)

    def sampled(s: Sample) -> Sample:
        cpu_s, waited_s = (1 - away - waited) * s.wall_s, waited * s.wall_s
        return s._replace(clock=Clock.CPU, cpu_s=cpu_s, waited_s=waited_s)

    return replace(resampled(whole, sampled), request=replace(whole.request, settings=settings))


def resampled(whole: Sweep, change: Callable[[Sample], Sample]) -> Sweep:
    """The sweep with each of its samples changed."""
    return altered(whole, lambda run: replace(run, samples=tuple(map(change, run.samples))))


def measured(whole: Sweep) -> str:
    """The line that says how the sweep was measured."""
    (line,) = [line for line in conditions(analyse(whole)) if line.startswith("Measured: ")]
    return line


def test_load_alone_is_no_reason_to_doubt_cpu_time():
    busy = disturbed(sweep(("fastformer",), machine=environment(load=9.0)), 9.0, "", 2)
    assert len(warned(busy).split("\n")) == 1
    assert warned(on_one_core(busy)) == ""


def test_the_clock_is_said():
    line = measured(on_one_core(sweep(("fastformer",))))
    assert line.startswith("Measured: CPU time on one core, 3 rounds")
    threads = measured(sweep(("fastformer",)))
    assert threads.startswith("Measured: wall time on 2 threads, 3 rounds")


def test_a_mechanism_that_cpu_time_does_not_see_is_named_and_gains_nothing():
    asleep = on_one_core(sweep(("fastformer",)), away=0.3)
    assert warned(asleep) == (
        "fastformer:eager sleeps or lets other processes compute for 30 % of its time, which CPU"
        " time does not see; its times are wall time without waiting for a core"
    )
    awake = on_one_core(sweep(("fastformer",)), waited=0.5)
    times = [analyse(whole).cases["time_s"] for whole in (asleep, awake)]
    assert times[0].to_numpy() == pytest.approx(times[1].to_numpy(), nan_ok=True)


@pytest.mark.parametrize(("every", "counted"), [(4, True), (160, False)])
def test_disturbed_laps_are_counted_and_ask_for_nothing(every, counted):
    whole = on_one_core(sweep(("fastformer",)))
    kinds = cycle([Disturbance.SLOW_CORE, *[None] * (every - 1)])
    disturbed_ = resampled(whole, lambda s: s._replace(disturbed=next(kinds)))
    said = "; page faults or a slow core disturbed 25 % of laps"
    assert (said in measured(disturbed_)) is counted
    assert warned(disturbed_) == ""


@pytest.mark.parametrize(
    ("dtype", "types", "others"),
    [
        ("float32", "float32", ""),
        ("float32", "bfloat16, float32", "bfloat16"),
        ("float32", "float16, float32, float8_e4m3fn", "float16, float8_e4m3fn"),
        ("float32", "float32, float64", ""),
        ("bfloat16", "bfloat16, float32", ""),
        ("bfloat16", "bfloat16, float16", "float16"),
    ],
)
def test_another_number_type_is_a_warning_unless_it_is_wider(dtype, types, others):
    notes = {"number_types": types, "attention_kernel": "flash"}
    whole = sweep(("fastformer",), lengths=(128, 512, 2048))
    analysis = analyse(altered(whole, lambda run: replace(run, notes=notes), Part.MEMORY))
    assert {*analysis.cases["attention_kernel"]} == {"flash"}
    cases = analysis.cases.assign(dtype=dtype)
    said = [line for line in replace(analysis, cases=cases).warnings if "autocast" in line]
    assert len(said) == bool(others)
    assert not said or said[0].startswith(f"fastformer computed in {others}, through autocast")
