"""Memory measured beside races: what runs when, what fails there, and what is then stored."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.records import Cause, Clock, Outcome, Part
from attnbench.records.messages import Failure
from attnbench.running import weighing as measurements
from attnbench.running.session import cores_beside
from tests.doubles.machine import Machine
from tests.running.sessions import GIB, PLAN, REQUEST, outcomes, planned, slow_is, sweep

SPARE = {"spare": {5}}
OOM = Failure(outcome="oom", reason="no memory")
KILLED = Failure(outcome="crashed", cause=Cause.KILLED, reason="signal 9")
LATE = Failure(outcome="timeout", reason="late")
FAILED = Failure(outcome="failed", reason="no")
PARTS = {(p.case.key, Part.TIME, r) for p in PLAN for r in range(3)} | {
    (p.case.key, Part.MEMORY, 0) for p in PLAN
}


def weighers(machine):
    """The processes that were asked for memory, in order, each with its case."""
    return [(case, pid) for do, case, pid in machine.asked if do == "measure_memory"]


def weighing(machine):
    """Whether a process that measures memory is alive."""
    pids = {pid for _, pid in weighers(machine)}
    return any(worker.alive and worker.pid in pids for worker in machine.workers)


class Watched(Machine):
    """Keeps every worker, and what happened to it."""

    def __init__(self, **how):
        super().__init__(**how)
        self.all, self.events = [], []

    def worker(self, pid):
        worker = super().worker(pid)
        self.all.append(worker)
        for name in ("stop", "go_on", "end"):
            setattr(worker, name, self.noted(worker, name))
        return worker

    def noted(self, worker, name):
        does = getattr(worker, name)

        def noting():
            self.events.append((name, worker.pid))
            return does()

        return noting


def test_memory_is_measured_beside_races_and_rests_while_laps_run():
    machine, alone = Watched(overhead_s=1.0), Machine(overhead_s=1.0)
    sweep(machine, watch=SPARE)
    sweep(alone)
    assert outcomes(machine).keys() == outcomes(alone).keys() == PARTS
    assert len(machine.stored) == len(alone.stored)
    assert {run.outcome for run in machine.stored} == {Outcome.OK}
    assert set(machine.beside_laps) == {0}, "nothing runs beside a lap"
    pids = {pid for _, pid in weighers(machine)}
    assert [worker.cores for worker in machine.all if worker.pid in pids] == [{5}] * len(PLAN)
    assert len(pids) == len(PLAN), "each in a process of its own"
    assert machine.now <= alone.now - 0.9 * len(PLAN), "it took no time from the races"
    stops = [pid for name, pid in machine.events if name == "stop"]
    assert stops, "some outlast the building of a race"
    assert stops == [pid for name, pid in machine.events if name == "go_on"]
    assert {*stops} <= pids
    assert not any(worker.alive for worker in machine.all)


def test_the_time_of_a_measurement_is_that_in_which_it_ran():
    """It takes 1.1 s, while each race has laps of 10 s."""
    machine = Machine(lambda case: 1.1, overhead_s=0.01, fate=lambda case, do: None)
    request = replace(REQUEST, settings=replace(REQUEST.settings, sample_s=10.0))
    sweep(machine, request=request, watch=SPARE)
    weighed = [run.elapsed_s for run in machine.stored if run.part is Part.MEMORY]
    assert weighed == pytest.approx([1.13] * len(PLAN), abs=0.03)


def test_what_cannot_be_stopped_is_ended_and_measured_alone():
    machine = Machine(overhead_s=1.0, stops=lambda pid: False)
    sweep(machine, watch=SPARE)
    assert outcomes(machine).keys() == PARTS
    assert {run.outcome for run in machine.stored} == {Outcome.OK}
    assert set(machine.beside_laps) == {0}
    assert max(Counter(case for case, _ in weighers(machine)).values()) == 2


@pytest.mark.parametrize("failure", [OOM, KILLED, LATE, FAILED])
def test_what_fails_beside_others_is_measured_once_more_alone(failure):
    def fate(case, do):
        return failure if do == "measure_memory" and machine.working() else None

    machine = Machine(fate=fate)
    # a case is built while memory is measured
    machine.besides_s = lambda case, do: 0.1 if do == "measure_memory" else 1.0
    sweep(machine, watch=SPARE)
    assert outcomes(machine).keys() == PARTS
    assert {run.outcome for run in machine.stored} == {Outcome.OK}


@pytest.mark.parametrize("do", ["build", "lap", "finish"])
@pytest.mark.parametrize("failure", [OOM, KILLED])
def test_a_race_that_fails_beside_a_measurement_is_made_again_without_it(do, failure):
    """Whatever held the memory: afterwards both are measured."""

    def fate(case, asked):
        return failure if asked == do and weighing(machine) else None

    machine = Machine(fate=fate, overhead_s=3.0)
    sweep(machine, watch=SPARE)
    assert outcomes(machine).keys() == PARTS
    assert {run.outcome for run in machine.stored} == {Outcome.OK}
    assert set(machine.beside_laps) == {0}


FATES = st.sampled_from([None, None, OOM, KILLED, LATE, FAILED])


@settings(max_examples=20)
@given(
    st.dictionaries(
        st.tuples(
            st.sampled_from([p.case for p in PLAN]),
            st.sampled_from(["build", "lap", "finish", "measure_memory"]),
        ),
        FATES,
        max_size=6,
    ),
    st.lists(st.sampled_from([None, None, OOM, KILLED, LATE, FAILED]), max_size=12),
    st.booleans(),
    st.floats(0.05, 4.0),
)
def test_every_case_gets_the_runs_that_it_gets_where_memory_is_measured_alone(
    always, beside, can_stop, weighing_s
):
    """Some cases always fail at something, and others fail only beside a measurement of memory."""
    alone = Machine(fate=lambda case, do: always.get((case, do)))
    sweep(alone, request=replace(REQUEST, rounds=2))
    fates = iter(beside)

    def fate(case, do):
        if failure := always.get((case, do)):
            return failure
        is_beside = do == "measure_memory" and machine.all[-1].cores
        return next(fates, None) if is_beside else None

    machine = Watched(fate=fate, stops=lambda pid: can_stop)
    machine.besides_s = lambda case, do: weighing_s if do == "measure_memory" else 0.5
    sweep(machine, request=replace(REQUEST, rounds=2), watch=SPARE)
    found, expected = outcomes(machine), outcomes(alone)
    assert found.keys() == expected.keys()
    assert len(machine.stored) == len(alone.stored)
    for key, run in expected.items():
        assert (found[key].outcome, found[key].cause) == (run.outcome, run.cause)
        assert len(found[key].samples) == len(run.samples)
    assert set(machine.beside_laps) <= {0}
    assert not any(worker.alive for worker in machine.all)


@settings(max_examples=12)
@given(st.floats(1.0, 40.0), st.floats(0.05, 5.0))
def test_a_budget_holds_and_a_resumed_sweep_measures_the_rest(budget_s, weighing_s):
    machine = Watched()
    machine.besides_s = lambda case, do: weighing_s if do == "measure_memory" else 0.5
    agenda = sweep(machine, request=replace(REQUEST, budget_s=budget_s), watch=SPARE)
    assert machine.now - 50.0 <= budget_s + 3.0
    assert not any(worker.alive for worker in machine.all)
    assert set(machine.beside_laps) <= {0}
    found = outcomes(machine)
    assert {key for key, part, _ in found if part is Part.TIME} == {p.case.key for p in PLAN}
    weighed = {key for key, part, _ in found if part is Part.MEMORY}
    timed = {key for (key, _, _), run in found.items() if run.samples}
    assert weighed <= timed
    assert weighed == timed or agenda.over_budget
    again = Machine()
    sweep(again, earlier=[run for run in machine.stored if run.elapsed_s], watch=SPARE)
    rest = {key for key, run in outcomes(again).items()}
    assert rest | {key for key, run in found.items() if run.elapsed_s} == PARTS


def test_a_peak_is_not_what_a_budget_leaves_out():
    """Races leave little time for measurements, so that what is timed leaves time for them."""
    machine = Machine(slow_is(0.2))
    machine.besides_s = lambda case, do: 0.5 if do == "measure_memory" else 0.01
    agenda = sweep(machine, request=replace(REQUEST, budget_s=9.0), watch=SPARE)
    assert agenda.over_budget
    timed = {key for (key, part, _), run in outcomes(machine).items() if run.samples}
    weighed = {key for (key, part, _), run in outcomes(machine).items() if part is Part.MEMORY}
    assert weighed == timed


def test_what_does_not_fit_beside_a_race_waits():
    """Each race needs half of the memory, and so does each measurement."""
    sizes = {"a": 4 * GIB // 10, "b": 1000}
    plan = [planned(name, n, 10**8, size=size) for n in (128, 256) for name, size in sizes.items()]
    together = []

    def fate(case, do):
        if do == "build" and weighing(machine):
            together.append((case.mechanism, [c.mechanism for c, _ in weighers(machine)][-1]))
        return

    machine = Machine(fate=fate, overhead_s=2.0, peak_bytes=lambda case: sizes[case.mechanism])
    sweep(machine, plan, replace(REQUEST, rounds=2), watch=SPARE)
    assert together
    assert {of for _, of in together} == {"b"}
    weighed = [run for run in machine.stored if run.part is Part.MEMORY]
    assert len(weighed) == len(plan)


def test_a_sweep_that_is_interrupted_leaves_no_process():
    machine = Watched(overhead_s=3.0)

    def fate(case, do):
        if do == "lap" and weighing(machine):
            raise KeyboardInterrupt

    machine.fate = fate
    with pytest.raises(KeyboardInterrupt):
        sweep(machine, watch=SPARE)
    assert not any(worker.alive for worker in machine.all)


ON_GPU = replace(REQUEST, device="cuda")


def cores_for(device, threads, clock):
    timing = replace(REQUEST.settings, threads=threads, clock=clock)
    return replace(REQUEST, device=device, settings=timing)


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.parametrize("clock", Clock)
def test_on_a_gpu_no_memory_is_measured_beside_races_on_however_many_cores(device, clock):
    request = cores_for(device, 1, clock)
    assert not measurements.is_possible(request, 64)
    assert cores_beside(request, None) == ()


def test_on_a_cpu_it_is_where_a_core_is_left(monkeypatch):
    monkeypatch.setattr(measurements.stopping, "is_possible", lambda: True)
    for clock, threads, cores, expected in (
        (Clock.CPU, 1, 1, False),
        (Clock.CPU, 1, 2, True),
        (Clock.WALL, 2, 2, False),
        (Clock.WALL, 2, 3, True),
    ):
        assert measurements.is_possible(cores_for("cpu", threads, clock), cores) == expected


def test_on_a_gpu_memory_is_measured_while_nothing_else_works_and_nothing_is_stopped():
    beside = []

    def fate(case, do):
        if do == "measure_memory":
            beside.append(len(machine.working()))

    machine = Watched(fate=fate, hold_s=0.01)
    request = replace(ON_GPU, rounds=2)
    sweep(machine, request=request, memory=80 * GIB, watch={"spare": cores_beside(request, None)})
    weighed = {pid for _, pid in weighers(machine)}
    assert beside == [0] * len(PLAN)
    assert set(machine.beside_laps) == {0}
    assert {name for name, _ in machine.events} == {"end"}
    assert {do for do, _, pid in machine.asked if pid in weighed} == {"measure_memory"}
    assert {run.outcome for run in machine.stored} == {Outcome.OK}


def idling(machine):
    """Whether a process of a race is alive."""
    pids = {pid for _, pid in weighers(machine)}
    return any(worker.alive and worker.pid not in pids for worker in machine.workers)


@pytest.mark.parametrize("request_", [REQUEST, ON_GPU], ids=["cpu", "gpu"])
def test_memory_that_processes_hold_while_they_idle_is_no_limit_of_a_measurement(request_):
    """Each has a context, however little its case needs."""

    def fate(case, do):
        return OOM if do == "measure_memory" and idling(machine) else None

    machine = Machine(fate=fate)
    sweep(machine, request=request_, memory=80 * GIB)
    assert outcomes(machine).keys() == PARTS
    assert {run.outcome for run in machine.stored} == {Outcome.OK}


def test_what_needs_too_much_memory_alone_is_said_to_after_a_second_try():
    machine = Machine(fate=lambda case, do: OOM if do == "measure_memory" else None)
    sweep(machine, request=ON_GPU, memory=80 * GIB)
    weighed = [run for run in machine.stored if run.part is Part.MEMORY]
    assert {run.outcome for run in weighed} == {Outcome.OOM}
    assert max(Counter(case for case, _ in weighers(machine)).values()) == 2
