from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import pytest

from attnbench.analysis.report import analyse
from attnbench.records import Clock, Disturbance, Part, Sample, Sweep
from attnbench.render.conditions import conditions, warnings
from tests.sweeps import altered, environment, sweep


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
    lines = list(warnings(analyse(whole)))
    said = "the machine was busy: load 3.5 on 2 cores by other programs; measure again when it is"
    assert any(line.startswith(said) for line in lines), "its own two threads are not meant"
    assert any("throttled: SwThermalSlowdown in" in line for line in lines)
    assert not list(warnings(analyse(disturbed(sweep(("fastformer",)), 2.4, "", 2))))


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
    assert len(list(warnings(analyse(busy)))) == 1
    assert not list(warnings(analyse(on_one_core(busy))))


def test_the_clock_and_what_wall_time_was_beside_it_are_said():
    line = measured(on_one_core(sweep(("fastformer",))))
    assert line.startswith("Measured: CPU time on one core, 3 rounds")
    assert "wall time was 2.0 times as long in the median" in line
    assert "wall time" not in measured(on_one_core(sweep(("fastformer",)), waited=0.0))
    threads = measured(sweep(("fastformer",)))
    assert threads.startswith("Measured: wall time on 2 threads, 3 rounds")


def test_a_mechanism_that_cpu_time_does_not_see_is_named_and_gains_nothing():
    asleep = on_one_core(sweep(("fastformer",)), away=0.3)
    (line,) = warnings(analyse(asleep))
    assert line == (
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
    assert not warnings(analyse(disturbed_))
