"""The loop of a sweep against workers that answer by rule and a clock that moves only by them."""

import math
import re
from collections import Counter
from dataclasses import asdict, replace

import msgspec
import pytest

from attnbench.analysis.costs import MARGIN, CostKind, Costs
from attnbench.devices.finding import find
from attnbench.records import Case, Cause, Outcome, Part, Run
from attnbench.records.storage.resuming import completed_runs
from attnbench.records.storage.schema import read_run
from tests import sweeps
from tests.doubles.machine import Machine
from tests.running.sessions import GIB, PLAN, REQUEST, laps, outcomes, planned, slow_is, sweep


def unweighed(case, do):
    """The fate of measurements of memory that fail."""
    return {"outcome": "failed", "reason": ""} if do == "measure_memory" else None


def test_every_case_is_visited_in_every_round_and_weighed_once_in_a_process_of_its_own():
    machine, started = Machine(), []

    def start(series, *, round_, measures_memory=False):
        started.append((series, None if measures_memory else round_))
        return machine.start(series)

    sweep(machine, start=start)
    parts = [(Part.MEMORY, 0), *((Part.TIME, round_) for round_ in range(3))]
    assert set(outcomes(machine)) == {(p.case.key, *part) for p in PLAN for part in parts}
    assert len(machine.stored) == len(PLAN) * 4
    # each round has its memory layout, and begins twice, as the first block is repeated at once; a
    # profiler that has run slows a process
    each = {(f"{name}:eager", r): 2 for name in ("slow", "fast") for r in range(3)}
    assert Counter(started) == each | {("slow:eager", None): 3, ("fast:eager", None): 3}
    pids = {do: {pid for d, _, pid in machine.asked if d == do} for do in ("lap", "measure_memory")}
    assert not pids["lap"] & pids["measure_memory"]


def test_workers_are_told_which_states_to_fill():
    plan = [replace(line, filled=line.case.workload.seq_len > 128) for line in PLAN]
    machine = Machine()
    sweep(machine, plan=tuple(plan))
    told = {asked.workload.seq_len: asked.filled for asked in machine.builds}
    assert told == {128: False, 256: True, 512: True}


def test_a_block_is_reported_as_soon_as_its_series_were_timed():
    seen = []
    machine = Machine(slow_is(0.2))
    agenda = sweep(machine, watch={"observe_block": lambda *what: seen.append(what)})
    assert len(seen) == 3 * len({line.block for line in PLAN})
    visits = Counter()
    for block, series, runs_of in seen:
        visits[block] += 1
        assert set(series) == {"slow:eager", "fast:eager"}
        for name, seconds in (("slow:eager", 0.2), ("fast:eager", 0.1)):
            runs = runs_of[name]
            assert [run.round for run in runs] == list(range(visits[block]))
            assert runs[-1].samples[0].seconds == pytest.approx(seconds)
    assert runs_of == {str(series): runs for series, runs in agenda.runs_of(block).items()}


def test_the_first_round_goes_from_short_to_long_and_the_others_in_random_order():
    machine = Machine()
    plan = tuple(planned(name, n, 10**8) for name in ("a", "b") for n in (2**k for k in range(9)))
    sweep(machine, plan)
    orders = [
        [
            msgspec.json.decode(run.case, type=Case).workload.seq_len
            for run in machine.stored
            if (run.part, run.round) == (Part.TIME, round_)
        ][::2]
        for round_ in range(3)
    ]
    assert orders[0] == sorted(orders[0])
    assert sorted(orders[1]) == sorted(orders[2]) == orders[0]
    assert len({tuple(order) for order in orders}) == 3


@pytest.mark.parametrize(("tunes", "outcome"), [(False, Outcome.TIMEOUT), (True, Outcome.OK)])
def test_kernels_that_try_configurations_at_first_have_time_for_them(tunes, outcome):
    machine = Machine(overhead_s=200.0)
    sweep(machine, (replace(PLAN[0], tunes=tunes),), replace(REQUEST, rounds=1))
    assert outcomes(machine)[PLAN[0].case.key, Part.TIME, 0].outcome is outcome


def test_after_memory_ran_out_longer_ones_are_not_tried_and_others_go_on():
    def fate(case, do):
        if (case.mechanism, case.workload.seq_len, do) == ("slow", 256, "build"):
            return {"outcome": "oom", "reason": "cannot allocate"}
        return None

    machine = Machine(fate=fate)
    sweep(machine)
    found = outcomes(machine)
    at = {p.case.workload.seq_len: found[p.case.key, Part.TIME, 0] for p in PLAN[:3]}
    assert [at[n].outcome for n in (128, 256, 512)] == [Outcome.OK, Outcome.OOM, Outcome.SKIPPED]
    assert (PLAN[1].case.key, Part.MEMORY, 0) not in found
    assert all(
        found[p.case.key, Part.TIME, r].outcome is Outcome.OK for p in PLAN[3:] for r in range(3)
    )


@pytest.mark.parametrize("limit_s", [None, 30.0, 3600.0])
def test_what_took_far_longer_than_predicted_is_no_limit_of_its_length(limit_s):
    """The machine may have been slow just then; a limit that somebody set is another matter."""
    hangs = PLAN[1].case  # 256 tokens

    def seconds(case):
        return 1000.0 if case == hangs else 0.1

    machine = Machine(seconds)
    request = replace(REQUEST, rounds=1, case_timeout_s=limit_s)
    sweep(machine, PLAN[:3], request)
    found = outcomes(machine)
    ended, longer = (found[p.case.key, Part.TIME, 0] for p in PLAN[1:3])
    by_limit = limit_s == 30.0
    assert ended.outcome is Outcome.TIMEOUT
    assert ended.cause is (None if by_limit else Cause.OVERTIME)
    assert bool(re.search(r"killed, as [\d.]+ m?s were predicted", ended.reason)) != by_limit
    assert (longer.outcome, longer.cause) == (Outcome.SKIPPED, ended.cause or Cause.TIMEOUT)
    again = Machine(lambda case: 0.1)
    stored = replace(sweeps.sweep(), runs=tuple(machine.stored), request=request)
    earlier = completed_runs(stored, request)
    sweep(again, PLAN[:3], request, earlier=earlier)
    timed = {case for (case, part, _), run in outcomes(again).items() if run.samples}
    assert timed == (set() if by_limit else {p.case.key for p in PLAN[1:3]})
    if by_limit:  # which somebody raises
        more = replace(request, case_timeout_s=3600.0)
        again = Machine(lambda case: 0.1)
        sweep(again, PLAN[:3], more, earlier=completed_runs(stored, more))
        timed = {case for (case, part, _), run in outcomes(again).items() if run.samples}
        assert timed == {p.case.key for p in PLAN[1:3]}


@pytest.mark.parametrize(
    ("budget_s", "overhead_s", "outcome"),
    [(None, 900.0, Outcome.OK), (3600.0, 800.0, Outcome.OK), (3600.0, 950.0, Outcome.TIMEOUT)],
)
def test_a_case_of_which_nothing_is_known_has_a_share_of_the_budget(budget_s, overhead_s, outcome):
    unknown = tuple(replace(line, declared=False) for line in PLAN[:1])
    machine = Machine(overhead_s=overhead_s)
    sweep(machine, unknown, replace(REQUEST, rounds=1, budget_s=budget_s))
    found = outcomes(machine)[unknown[0].case.key, Part.TIME, 0]
    assert found.outcome is outcome
    if outcome is Outcome.TIMEOUT:
        assert "nothing is known of its costs; a larger --budget gives it more" in found.reason


def test_memory_that_took_far_longer_than_predicted_is_measured_again():
    slow = Machine(fate=lambda case, do: None)
    slow.besides_s = lambda case, do: 1000.0 if do == "measure_memory" else 0.1
    request = replace(REQUEST, rounds=1)
    sweep(slow, PLAN[:1], request)
    ended = outcomes(slow)[PLAN[0].case.key, Part.MEMORY, 0]
    assert (ended.outcome, ended.cause) == (Outcome.TIMEOUT, Cause.OVERTIME)
    stored = replace(sweeps.sweep(), runs=tuple(slow.stored), request=request)
    again = Machine()
    sweep(again, PLAN[:1], request, earlier=completed_runs(stored, request))
    assert outcomes(again)[PLAN[0].case.key, Part.MEMORY, 0].outcome is Outcome.OK


def test_looking_for_odd_behaviour_has_its_time_though_nobody_knows_yet_how_long_it_takes():
    own = (replace(PLAN[0], own=False),)

    class Examining(Machine):
        """Looks for odd behaviour for as long as so many iterations take."""

        def worker(self, pid):
            worker = super().worker(pid)
            usual = worker.usual

            def slower(question, do):
                answer = usual(question, do)
                if do == "finish":
                    worker.left_s = 50 * 5.0
                return answer

            worker.usual = slower
            return worker

    machine = Examining(lambda case: 5.0)
    sweep(machine, own, replace(REQUEST, rounds=1))
    assert outcomes(machine)[own[0].case.key, Part.TIME, 0].outcome is Outcome.OK


def test_a_process_that_dies_costs_its_case_and_is_replaced():
    def fate(case, do):
        if (case.mechanism, case.workload.seq_len, do) == ("slow", 128, "lap"):
            return {"outcome": "crashed", "reason": "signal 11"}
        return None

    machine = Machine(fate=fate)
    sweep(machine, request=replace(REQUEST, rounds=2))
    found = outcomes(machine)
    assert found[PLAN[0].case.key, Part.TIME, 0].outcome is Outcome.CRASHED
    assert (PLAN[0].case.key, Part.TIME, 1) not in found, "it is not tried again"
    assert found[PLAN[1].case.key, Part.TIME, 0].outcome is Outcome.OK
    assert machine.started.count(("slow:eager", False)) == 3, "two rounds and one replacement"
    assert machine.started.count(("fast:eager", False)) == 2


def test_a_process_whose_state_was_changed_is_replaced():
    notes = {"changed": "threads"}
    changed = {"outcome": "ok", "values": {}, "notes": notes, "needs_new_process": True}
    machine = Machine(fate=lambda case, do: changed if do == "finish" else None)
    sweep(machine, PLAN[:3], replace(REQUEST, rounds=1))
    assert machine.started.count(("slow:eager", False)) == 3


def test_the_context_of_each_process_on_a_gpu_counts_until_it_is_measured_and_after():
    case = planned("fast", 128, 10**8, size=GIB)
    assumed = find("cuda").context_bytes
    costs = Costs([case], context_bytes=assumed)
    assert costs.needed_bytes(case) == MARGIN * (GIB + assumed)
    values = {"allocated_peak_bytes": GIB, "context_bytes": 300e6}
    run = Run(case=case.case.key, part=Part.MEMORY, round=0, outcome=Outcome.OK, values=values)
    costs.learn(case, run)
    assert costs.needed_bytes(case) == MARGIN * (GIB + 300e6)


def test_a_process_on_a_gpu_starts_once_for_all_that_it_times_and_for_each_memory():
    plan = [planned("fast", n, 10**8) for n in (128, 256, 512, 1024)]
    start_s = find("cuda").start_s
    costs, free = (Costs(plan, start_s=s) for s in (start_s, 0.0))
    kinds = CostKind.TIMING, CostKind.WEIGHING
    later = [costs.guess(kind, plan[0]) - free.guess(kind, plan[0]) for kind in kinds]
    assert later == pytest.approx([start_s / 4, start_s])


# two need 0.4 of memory each: each runs with the small one
SIZES = {"small": 1000, "big": 4 * GIB // 10, "bigger": 41 * GIB // 100}


TWO_RACES = tuple(planned(name, 128, 10**8, size=size) for name, size in SIZES.items())


def test_where_memory_forbids_one_race_the_races_share_a_case():
    def weighed(case, do):
        values = {"allocated_peak_bytes": SIZES[case.mechanism]}
        return {"outcome": "ok", "values": values, "notes": {}} if do == "measure_memory" else None

    machine = Machine(fate=weighed)
    sweep(machine, TWO_RACES)
    for round_ in range(3):
        runs = [outcomes(machine)[p.case.key, Part.TIME, round_] for p in TWO_RACES]
        small, big, bigger = (set(laps(run)) for run in runs)
        assert not big & bigger
        assert small == big | bigger, "its laps link them"
        assert runs[0].elapsed_s >= sum(sample.wall_s for sample in runs[0].samples)


def test_what_dies_in_a_later_race_of_its_round_keeps_its_laps_and_that_is_reported():
    builds = []

    def fate(case, do):
        if case.mechanism == "small" and do == "build":
            builds.append(case)
            if len(builds) == 2:
                return {"outcome": "crashed", "reason": "signal 11"}
        return None

    machine = Machine(fate=fate)
    sweep(machine, TWO_RACES, replace(REQUEST, rounds=1))
    assert len(builds) == 2, "the block has two races"
    small, big, bigger = (outcomes(machine)[p.case.key, Part.TIME, 0] for p in TWO_RACES)
    assert {small.outcome, big.outcome, bigger.outcome} == {Outcome.OK}
    assert set(laps(small)) == set(laps(big))
    assert small.notes["later"] == "crashed in a later race of its round: signal 11"
    assert not set(laps(big)) & set(laps(bigger))


def test_a_resumed_sweep_does_only_what_is_missing_beside_what_links_it_to_the_rest():
    machine = Machine()
    sweep(machine)
    earlier = tuple(machine.stored)
    missing = [r for r in earlier if r.round == 2 and r.case == PLAN[0].case.key]
    again = Machine()
    sweep(again, earlier=[run for run in earlier if run not in missing])
    assert {(r.case, r.round) for r in again.stored} == {
        (PLAN[0].case.key, 2),
        (PLAN[3].case.key, 2),
    }
    both = outcomes(again)
    new = laps(both[PLAN[0].case.key, Part.TIME, 2])
    link = laps(both[PLAN[3].case.key, Part.TIME, 2])
    assert set(new) <= set(link), "the fast one ran beside it"
    assert len(link) == len(set(link)) > len(new), "and keeps its earlier laps"


def test_processes_end_after_a_race_that_leaves_heaps_too_large_to_keep():
    sizes = {"slow": GIB // 4, "fast": 1000}
    plan = [planned(name, n, 10**8, size=size) for n in (128, 256) for name, size in sizes.items()]
    machine = Machine(fate=unweighed)
    sweep(machine, plan, replace(REQUEST, rounds=1))
    assert machine.started[:2] == machine.started[4:6], "before the second block"


def test_no_process_is_idle_while_the_memory_of_a_large_case_is_measured():
    living = []

    def fate(case, do):
        living.extend(w.alive for w in workers if do == "measure_memory")
        return unweighed(case, do)

    workers, machine = [], Machine(fate=fate)

    def start(series, measures_memory=False, **how):
        workers.extend([] if measures_memory else [machine.start(series)])
        return machine.start(series, measures_memory=True) if measures_memory else workers[-1]

    request = replace(REQUEST, rounds=1, device="cuda")
    large = planned("slow", 128, 10**8, size=6 * GIB)
    sweep(machine, (large,), request, memory=8 * GIB, start=start)
    assert living == [False]


@pytest.mark.parametrize(("do", "part"), [("finish", Part.TIME), ("measure_memory", Part.MEMORY)])
def test_what_would_be_refused_on_reading_is_a_failure_that_names_it(do, part):
    answer = {"outcome": "ok", "values": {"setup_s": -1.0}, "notes": {}, "needs_new_process": False}
    machine = Machine(fate=lambda case, asked: answer if asked == do else None)
    sweep(machine)
    runs = [run for run in machine.stored if run.part == part]
    assert {(run.outcome, run.reason) for run in runs} == {
        (Outcome.FAILED, "its process gave an impossible answer: `$.values.setup_s` is below 0")
    }
    assert [read_run(asdict(run)) for run in machine.stored] == machine.stored


def test_a_value_that_is_not_a_number_costs_nothing_but_itself():
    values = {"error": math.nan, "flops": math.inf, "operators": 3.0}
    answer = {"outcome": "ok", "values": values, "notes": {}}
    machine = Machine(fate=lambda case, asked: answer if asked == "measure_memory" else None)
    sweep(machine)
    weighed = [run.values for run in machine.stored if run.part is Part.MEMORY]
    assert weighed == [{"operators": 3.0}] * len(PLAN)


def test_what_was_killed_twice_is_stored_with_that_cause():
    killed = {"outcome": "crashed", "cause": Cause.KILLED, "reason": "signal 9"}
    machine = Machine(fate=lambda case, do: killed if case.mechanism == "slow" else None)
    sweep(machine)
    for run in machine.stored:
        slow = "slow" in run.case
        assert (run.outcome, run.cause) == (
            (Outcome.CRASHED, Cause.KILLED) if slow else (Outcome.OK, None)
        )


def test_what_cannot_run_is_stored_before_anything_is_measured_and_what_is_left_at_the_end():
    plan = (replace(PLAN[0], refusal="heads cannot share keys"), *PLAN[1:])
    machine = Machine(slow_is(9.0))
    agenda = sweep(machine, plan, replace(REQUEST, budget_s=30.0))
    first, *_, last = machine.stored
    assert (first.case, first.outcome) == (plan[0].case.key, Outcome.UNSUPPORTED)
    assert first.reason == "heads cannot share keys"
    assert (last.outcome, last.cause) == (Outcome.SKIPPED, Cause.BUDGET)
    assert {run.case for run in machine.stored} == {line.case.key for line in plan}
    assert not {line.case.key for line in agenda.plan} - {run.case for run in machine.stored}


def test_progress_names_the_series_whose_turn_it_is_and_counts_what_was_timed():
    shown = []
    sweep(Machine(), request=replace(REQUEST, rounds=1), watch={"observe": shown.append})
    series = {"slow:eager", "fast:eager"}
    assert {each.running for each in shown} == series | {f"{name}, memory" for name in series}
    assert [each.done for each in shown] == sorted(each.done for each in shown)
    assert {(each.mode, each.round) for each in shown} == {("inference", 0)}
    assert {each.seq_len for each in shown} == {128, 256, 512}
