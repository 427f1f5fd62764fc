"""The loop of a sweep against workers that answer by rule and a clock that moves only by them."""

from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from attnbench import units
from attnbench.api.servers import own_server
from attnbench.devices.finding import find
from attnbench.records import (
    Case,
    Cause,
    Clock,
    Level,
    Mode,
    Outcome,
    Part,
    Planned,
    Request,
    Run,
    Sample,
    Settings,
    Workload,
)
from attnbench.run import predict, schedule
from attnbench.run.history import History
from attnbench.run.predict import predicted_costs
from attnbench.run.session import Session
from attnbench.statistics.curves import series_names
from attnbench.store.schema import wrong
from attnbench.workloads import reading
from attnbench.workloads.options import Options
from attnbench.workloads.requests import request
from tests.run.machine import Machine

GIB = 1 << 30
REQUEST = Request(
    models=("slow", "fast"),
    lengths=(128, 256, 512),
    tokens=512,
    preset="mind-classification",
    level=Level.ATTENTION,
    modes=(Mode.INFERENCE,),
    dtype="float32",
    device="cpu",
    width=16,
    heads=4,
    layers=1,
    padding=0.0,
    causal=False,
    rounds=3,
    budget_s=None,
    case_timeout_s=1000.0,
    settings=Settings(sample_s=1.0, warmup_s=0.0),
)


def planned(mechanism, seq_len, flops, refusal="", size=1000, mode=Mode.INFERENCE, form="eager"):
    workload = Workload(
        batch=max(1, 512 // seq_len), seq_len=seq_len, level=Level.ATTENTION, mode=mode
    )
    return Planned(
        case=Case(mechanism=mechanism, form=form, workload=workload),
        parameters=1,
        projection_flops=flops,
        core_flops=0,
        shell_flops=0,
        predicted_bytes=size,
        predicted_s=flops / 1e9,
        refusal=refusal,
    )


PLAN = tuple(
    planned(name, n, flops)
    for name, flops in (("slow", 10**9), ("fast", 10**8))
    for n in (128, 256, 512)
)


def sweep(machine, plan=PLAN, request=REQUEST, memory=GIB, **more):
    session = Session(
        request=request,
        plan=plan,
        store=machine,
        start=machine.start,
        memory_bytes=memory,
        clock=machine.clock,
        **more,
    )
    session.run()
    return session


def outcomes(machine):
    """The last run of each case, part and round, as a journal is read."""
    return {(run.case, run.part, run.round): run for run in machine.stored}


def laps(run):
    return [sample.lap for sample in run.samples]


def unweighed(case, do):
    """The fate of measurements of memory that fail."""
    return {"outcome": "failed", "reason": ""} if do == "weigh" else None


def slow_is(seconds):
    return lambda case: seconds if case.mechanism == "slow" else 0.1


def test_every_case_is_visited_in_every_round_and_measured_once():
    machine = Machine()
    sweep(machine)
    assert set(outcomes(machine)) == {
        (line.case.key, part, round_)
        for line in PLAN
        for part, rounds in ((Part.TIME, 3), (Part.MEMORY, 1))
        for round_ in range(rounds)
    }
    assert len(machine.stored) == len(PLAN) * 4


def test_workers_are_told_which_states_to_fill_and_to_compare():
    plan = [replace(line, filled=line.case.workload.seq_len > 128) for line in PLAN]
    plan[0] = replace(plan[0], compared_s=3.0)
    machine = Machine()
    sweep(machine, plan=tuple(plan))
    told = {asked["workload"]["seq_len"]: asked["filled"] for asked in machine.builds}
    assert told == {128: False, 256: True, 512: True}
    compared = [asked["compared"] for asked in machine.builds]
    assert compared.count(True) == 1
    assert not any(compared[: len(PLAN)]), "every case comes first"
    hurried = Machine()
    sweep(hurried, plan=tuple(plan), request=replace(REQUEST, budget_s=19.0))
    assert not any(asked["compared"] for asked in hurried.builds), "it is too much of the budget"


def test_odd_behaviour_is_looked_for_until_there_was_time_for_it():
    ends = iter(["was not examined"] * 2 + [""] * 99)

    def fate(case, do):
        notes = {"unexamined": next(ends)} if do == "finish" else {}
        notes = {name: note for name, note in notes.items() if note}
        return {"outcome": "ok", "spoiled": False, "notes": notes} if do == "finish" else None

    machine = Machine(fate=fate)
    sweep(machine, (PLAN[0],))
    assert [asked["suspicious"] for asked in machine.builds] == [True, True, True]
    ends = iter([""] * 99)
    machine = Machine(fate=fate)
    sweep(machine, (PLAN[0],))
    assert [asked["suspicious"] for asked in machine.builds] == [True, False, False]


def test_steps_are_sampled_for_longer_where_processes_take_long():
    sampled = []
    for mode in (Mode.INFERENCE, Mode.DECODE):
        machine = Machine(lambda case: 0.1, other_s=3.0)
        sweep(machine, [planned("a", 128, 10**8, mode=mode), planned("b", 128, 10**8, mode=mode)])
        runs = [run for run in machine.stored if run.part is Part.TIME]
        sampled += [[sum(s.iterations for s in run.samples) for run in runs if run.round == 2]]
    assert sampled[1][0] > 2 * sampled[0][0]


@pytest.mark.parametrize(("afresh", "weighing"), [(True, 3), (False, 1)])
def test_memory_takes_a_process_for_each_case_or_where_the_device_allows_it_each_series(
    afresh, weighing
):
    machine = Machine(weighs_afresh=afresh)
    sweep(machine)
    assert Counter(machine.started) == {
        ("slow:eager", False): 3,
        ("fast:eager", False): 3,
        ("slow:eager", True): weighing,
        ("fast:eager", True): weighing,
    }
    pids = {do: {pid for d, _, pid in machine.asked if d == do} for do in ("lap", "weigh")}
    assert not pids["lap"] & pids["weigh"], "a profiler that has run makes a process slower"
    weighed = [case for do, case, _ in machine.asked if do == "weigh"]
    assert len(weighed) == len(PLAN)


def test_a_process_that_failed_to_measure_memory_measures_no_other():
    oom = {"outcome": "oom", "reason": ""}
    machine = Machine(
        fate=lambda case, do: oom if (do, case.workload.seq_len) == ("weigh", 256) else None,
        weighs_afresh=False,
    )
    sweep(machine)
    assert Counter(machine.started)["fast:eager", True] == 3  # one that was new for this case


@pytest.mark.parametrize(
    ("size", "context", "most"), [(1000, 0, 9), (GIB * 7 // 10, 0, 1), (1000, GIB / 10, 5)]
)
def test_processes_are_kept_to_measure_memory_only_where_it_has_room_for_them(size, context, most):
    """Those of nine series; they end for one another only where memory is short."""
    workers, alive = [], []

    def look(case, do):
        if do == "weigh":
            alive.append(sum(worker.alive for worker in workers))

    def start(series, **how):
        workers.append(machine.start(series, **how))
        return workers[-1]

    machine = Machine(fate=look, weighs_afresh=False)
    plan = tuple(planned(f"m{i}", 128, 10**8, size=size) for i in range(9))
    session = Session(
        request=REQUEST, plan=plan, store=machine, start=start, memory_bytes=GIB, begun=0.0
    )
    session.clock, session.history.context_bytes = machine.clock, context
    session.run()
    assert max(alive) == most


H100_BYTES = 84 * 10**9


def test_the_first_round_of_the_figure_on_a_gpu_starts_each_process_once():
    """Starting one there takes a second or two, and most of its memory is never full."""
    options = Options.of({"device": "cuda", "rounds": 1})
    asked = request(options, elsewhere=True)
    assert asked.tokens == 131_072
    with own_server(1) as server:
        plan = reading.plan(asked, server).cases
    predicted = {planned.case: planned for planned in plan}
    machine = Machine(
        seconds=lambda case: predicted[case].predicted_s,
        peak_bytes=lambda case: predicted[case].predicted_bytes,
        weighs_afresh=False,
    )
    sweep(machine, plan, asked, memory=H100_BYTES)
    assert Counter(weighs for _, weighs in machine.started) == {False: 8, True: 8}
    assert len({series for series, _ in machine.started}) == 8
    assert sum(bool(run.samples) for run in machine.stored) > 140


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


def test_the_series_of_a_block_take_turns_in_mirrored_laps():
    machine = Machine(slow_is(0.2))
    sweep(machine, request=replace(REQUEST, rounds=1))
    turns = [(case, pid) for do, case, pid in machine.asked if do == "lap"]
    order = [c.mechanism for c, _ in turns if c.workload.seq_len == 128]
    runs = outcomes(machine)
    shared = [set(laps(runs[PLAN[i].case.key, Part.TIME, 0])) for i in (0, 3)]
    for lap in range(0, max(shared[1]), 2):
        racing = {name for name, own in zip(("slow", "fast"), shared, strict=True) if lap in own}
        pair, order = order[: 2 * len(racing)], order[2 * len(racing) :]
        assert set(pair) == racing
        assert pair == pair[::-1]
    assert not order
    assert shared[0] <= shared[1], "the slower runs in some of the laps of the faster"
    assert all({lap, lap ^ 1} <= shared[0] for lap in shared[0]), "in whole pairs"


def test_a_refused_case_is_written_with_its_reason_and_not_run():
    machine = Machine()
    refused = planned("odd", 128, 1, refusal="it has no causal form")
    sweep(machine, (*PLAN, refused))
    run = outcomes(machine)[refused.case.key, Part.TIME, 0]
    assert (run.outcome, run.reason) == (Outcome.UNSUPPORTED, "it has no causal form")
    assert refused.case not in [case for _, case, _ in machine.asked]


@pytest.mark.parametrize("slow_s", [0.5, 3.0, 9.0])
def test_a_budget_covers_every_cheap_block_before_it_repeats_one(slow_s):
    machine = Machine(slow_is(slow_s))
    session = sweep(machine, request=replace(REQUEST, budget_s=60.0))
    assert machine.now - 50.0 <= 60.0
    found = outcomes(machine)
    assert {line.case.key for line in PLAN} == {key for key, _, _ in found}
    for line in PLAN:
        run = found[line.case.key, Part.TIME, 0]
        if line.case.mechanism == "fast":
            assert run.outcome is Outcome.OK
        if run.outcome is not Outcome.OK:
            assert run.outcome is Outcome.SKIPPED
            assert "would exceed --budget" in run.reason
    for n in (128, 256, 512):
        rounds = {
            name: {r for key, part, r in found if part is Part.TIME and key == line.case.key}
            for name, line in ((p.case.mechanism, p) for p in PLAN if p.case.workload.seq_len == n)
        }
        assert rounds["slow"] <= rounds["fast"], "no series is repeated without its rival"
    assert session.over_budget == (slow_s > 1)


def test_a_case_is_left_out_where_the_budget_is_enough_for_the_others_of_its_block_alone():
    """A visit takes 6.15 s: two laps and a warm-up of 2 s each, and 0.15 s besides."""
    plan = tuple(planned(name, 128, 2 * 10**9) for name in ("first", "second"))
    machine = Machine(seconds=lambda case: 2.0)
    sweep(machine, plan, replace(REQUEST, rounds=1, budget_s=10.0))
    first, second = (outcomes(machine)[p.case.key, Part.TIME, 0] for p in plan)
    assert first.outcome is Outcome.OK
    assert (second.outcome, second.cause) == (Outcome.SKIPPED, Cause.BUDGET)
    assert second.reason.startswith("would exceed --budget")
    assert second.case not in {case.key for _, case, _ in machine.asked}


def test_what_is_left_of_the_budget_goes_to_the_widest_ratio():
    """At 256 one series jitters; when only one block fits a round, it is that one."""
    shake = {}

    def seconds(case):
        wide = case.mechanism == "slow" and case.workload.seq_len == 256
        shake[case] = shake.get(case, 0) + 1
        return 0.5 * (1.5 if wide and shake[case] // 6 % 2 else 1.0)

    machine = Machine(seconds)
    sweep(machine, request=replace(REQUEST, rounds=100, budget_s=120.0))
    later = Counter(
        msgspec.json.decode(run.case, type=Case).workload.seq_len
        for run in machine.stored
        if run.part is Part.TIME and run.round >= 3
    )
    assert later[256] >= max(later[128], later[512])


def test_predictions_learn_from_what_was_measured():
    """By the first guess all fit; the first takes 20 s in place of 1, so the second would not."""
    plan = tuple(planned("slow", n, n * 10**9 // 128) for n in (128, 256, 512))
    machine = Machine(seconds=lambda case: 20.0 * case.workload.seq_len / 128)
    sweep(machine, plan, replace(REQUEST, case_timeout_s=100.0))
    first, second, third = (outcomes(machine)[p.case.key, Part.TIME, 0] for p in plan)
    assert first.outcome is Outcome.OK
    assert second.outcome is Outcome.SKIPPED
    assert second.reason.startswith(
        "would exceed --case-timeout (100 s): predicted 40.0 s per iteration"
    )
    assert third.outcome is Outcome.SKIPPED


@pytest.mark.parametrize(("tunes", "outcome"), [(False, Outcome.TIMEOUT), (True, Outcome.OK)])
def test_kernels_that_try_configurations_at_first_have_time_for_them(tunes, outcome):
    machine = Machine(other_s=100.0)
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
    spoiled = {"outcome": "ok", "values": {}, "notes": {"changed": "threads"}, "spoiled": True}
    machine = Machine(fate=lambda case, do: spoiled if do == "finish" else None)
    sweep(machine, PLAN[:3], replace(REQUEST, rounds=1))
    assert machine.started.count(("slow:eager", False)) == 3


@pytest.mark.parametrize("gib", [1.9, 8])
def test_what_would_not_fit_is_predicted_not_tried(gib):
    machine = Machine()
    big = planned("big", 128, 1, size=int(gib * GIB))
    sweep(machine, (big,), memory=2 * GIB)
    (run,) = machine.stored
    assert run.outcome is Outcome.SKIPPED
    assert run.reason == (
        f"would exceed the memory limit (2.000 GiB): predicted {gib:.3f} GiB and 10 % to spare"
    )
    assert not machine.asked


def test_the_context_of_each_process_on_a_gpu_counts_until_it_is_measured_and_after():
    case = planned("fast", 128, 10**8, size=GIB)
    assumed = find("cuda").context_bytes
    history = History(plan=(case,), context_bytes=assumed)
    assert history.needed_bytes(case) == schedule.MARGIN * (GIB + assumed)
    values = {"allocated_peak_bytes": GIB, "context_bytes": 300e6}
    run = Run(case=case.case.key, part=Part.MEMORY, round=0, outcome=Outcome.OK, values=values)
    history.learn(case, run)
    assert history.needed_bytes(case) == schedule.MARGIN * (GIB + 300e6)


# two need 0.4 of memory each: each runs with the small one
SIZES = {"small": 1000, "big": 4 * GIB // 10, "bigger": 41 * GIB // 100}
TWO_RACES = tuple(planned(name, 128, 10**8, size=size) for name, size in SIZES.items())


def test_the_numerical_error_is_computed_once_for_all_longer_sequences():
    def errors(machine):
        runs = outcomes(machine).values()
        return [run.values["error"] for run in runs if run.part is Part.MEMORY]

    machine = Machine()
    sweep(machine, (planned("a", 64, 10**8), *(planned("a", n, 10**8) for n in (128, 256, 512))))
    assert machine.errors == [64, 128]
    assert sorted(errors(machine)) == pytest.approx([64e-9, 128e-9, 128e-9, 128e-9])
    later = Machine()
    longer = (planned("a", 128, 10**8), planned("a", 1024, 10**8))
    sweep(later, longer, earlier=tuple(machine.stored), finished=frozenset(outcomes(machine)))
    assert errors(later) == pytest.approx([128e-9])
    assert not later.errors, "an earlier session has computed it"


def test_where_memory_forbids_one_race_groups_share_an_anchor():
    def weighed(case, do):
        values = {"allocated_peak_bytes": SIZES[case.mechanism]}
        return {"outcome": "ok", "values": values, "notes": {}} if do == "weigh" else None

    machine = Machine(fate=weighed)
    sweep(machine, TWO_RACES)
    for round_ in range(3):
        runs = [outcomes(machine)[p.case.key, Part.TIME, round_] for p in TWO_RACES]
        small, big, bigger = (set(laps(run)) for run in runs)
        assert not big & bigger
        assert small == big | bigger, "its laps link them"
        assert runs[0].elapsed_s >= sum(sample.wall_s for sample in runs[0].samples)


def test_an_anchor_that_dies_in_a_later_race_keeps_its_laps_and_that_is_reported():
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


def test_laps_of_an_anchor_that_cannot_be_are_not_added_to_those_of_earlier_races():
    laps_of = Counter()

    def fate(case, do):
        laps_of[case.mechanism] += do == "lap"
        if case.mechanism == "small" and do == "lap" and laps_of["bigger"]:
            return {"outcome": "ok", "sample": [1, 50.0, 0.1, None, 0.1, 0, 0]}
        return None

    machine = Machine(fate=fate)
    sweep(machine, TWO_RACES, replace(REQUEST, rounds=1))
    small = outcomes(machine)[TWO_RACES[0].case.key, Part.TIME, 0]
    assert "which its parent waited" in small.notes["later"]
    assert max(sample.wall_s for sample in small.samples) < 1


def test_the_number_of_a_lap_without_its_second_is_not_given_again():
    history, run = History(plan=PLAN), timed(PLAN[0], 3, {})
    samples = tuple(sample._replace(lap=lap) for lap, sample in enumerate(run.samples))
    history.learn(PLAN[0], replace(run, samples=samples))
    assert history.next_lap(PLAN[0].block, 0) == 4
    assert history.next_lap(PLAN[0].block, 1) == 0


def test_what_the_end_of_the_budget_cut_off_has_no_outcome_and_is_done_when_resumed():
    """Iterations take 50 times as long as was predicted, so the budget ends in the first block."""
    machine = Machine(seconds=lambda case: 5.0)
    session = sweep(machine, request=replace(REQUEST, budget_s=9.0))
    assert session.over_budget
    found = outcomes(machine)
    assert {run.outcome for run in found.values()} <= {Outcome.OK, Outcome.SKIPPED}
    cut = [run for run in found.values() if run.reason == "not finished when --budget ended"]
    assert cut
    assert not any(run.elapsed_s for run in cut)
    again = Machine(seconds=lambda case: 5.0)
    finished = frozenset(key for key, run in found.items() if run.elapsed_s)
    sweep(again, earlier=tuple(machine.stored), finished=finished)
    assert {run.outcome for run in outcomes(again).values()} == {Outcome.OK}


def test_a_repeat_that_the_end_of_the_budget_cut_off_is_as_if_not_begun():
    """Each round is slower than the one before: predictions are too low every time."""
    machine = Machine()
    machine.seconds = lambda case: 0.05 * 1.02 ** len(machine.asked)
    sweep(machine, request=replace(REQUEST, rounds=50, budget_s=120.0))
    assert {run.outcome for run in machine.stored} == {Outcome.OK}
    assert max(run.round for run in machine.stored) >= 2


def test_a_resumed_sweep_does_only_what_is_missing_next_to_its_anchor():
    machine = Machine()
    sweep(machine)
    earlier = tuple(machine.stored)
    missing = [r for r in earlier if r.round == 2 and r.case == PLAN[0].case.key]
    finished = frozenset((r.case, r.part, r.round) for r in earlier if r not in missing)
    again = Machine()
    kept = tuple(run for run in earlier if run not in missing)
    sweep(again, earlier=kept, finished=finished)
    assert {(r.case, r.round) for r in again.stored} == {
        (PLAN[0].case.key, 2),
        (PLAN[3].case.key, 2),
    }
    both = outcomes(again)
    new = laps(both[PLAN[0].case.key, Part.TIME, 2])
    anchor = laps(both[PLAN[3].case.key, Part.TIME, 2])
    assert set(new) <= set(anchor), "the anchor ran next to it"
    assert len(anchor) == len(set(anchor)) > len(new), "and keeps its earlier laps"


def test_what_is_done_takes_nothing_from_the_budget_of_a_resumed_sweep():
    machine = Machine(seconds=lambda case: 3.0)
    sweep(machine, PLAN[:3])
    earlier = tuple(machine.stored)
    finished = frozenset((r.case, r.part, r.round) for r in earlier)
    again = Machine(seconds=lambda case: 3.0)
    sweep(again, PLAN[:4], replace(REQUEST, budget_s=90.0), earlier=earlier, finished=finished)
    assert {r.outcome for r in again.stored} == {Outcome.OK}
    assert {(r.case, r.part, r.round) for r in again.stored} >= {
        (PLAN[3].case.key, part, r)
        for part, r in [(Part.TIME, 0), (Part.TIME, 2), (Part.MEMORY, 0)]
    }


def test_the_seconds_left_stay_within_the_budget_and_fall():
    machine, shown = Machine(slow_is(1.0)), []
    watch = lambda progress: shown.append((machine.now, progress.left_s))  # noqa: E731
    sweep(machine, request=replace(REQUEST, budget_s=60.0), observe=watch)
    assert all(left <= 60.0 - (now - 50.0) + 1e-6 for now, left in shown)
    assert shown[-1][1] < shown[0][1]


def test_without_a_budget_the_seconds_left_are_about_what_passes():
    machine, shown = Machine(slow_is(1.0)), []
    watch = lambda progress: shown.append((machine.now, progress.left_s))  # noqa: E731
    sweep(machine, observe=watch)
    late = shown[len(shown) // 3 :]
    for now, left in late:
        assert 0.5 * (machine.now - now) - 4 < left < 1.5 * (machine.now - now) + 4


def test_the_visits_to_come_are_counted_from_the_start():
    machine, shown = Machine(slow_is(1.0)), []
    session = sweep(machine, observe=shown.append)
    assert {progress.total for progress in shown} == {session.visits} == {3 * len(PLAN)}
    assert all(progress.done < progress.total for progress in shown)


def test_a_budget_limits_the_visits_that_are_promised():
    machine, shown = Machine(slow_is(1.0)), []
    session = sweep(machine, request=replace(REQUEST, budget_s=30.0), observe=shown.append)
    assert session.visits < 3 * len(PLAN)
    assert all(p.done <= p.total <= 3 * len(PLAN) for p in shown)
    assert abs(shown[-1].total - session.visits) <= 2


@pytest.mark.parametrize("limits", [{"budget_s": 20.0}, {"case_timeout_s": 4.0}])
def test_the_reason_and_the_report_name_one_prediction(limits):
    # two forms of one mechanism do the same work, at their own speeds
    costs = {("slow", "eager"): 0.008, ("fast", "eager"): 0.0008, ("slow", "sdpa"): 0.004}
    plan = tuple(
        planned(name, n, round(8e6 * n), form=form) for name, form in costs for n in (128, 256, 512)
    )
    machine = Machine(lambda case: costs[case.mechanism, case.form] * case.workload.seq_len)
    sweep(machine, plan, replace(REQUEST, **limits))
    foreseen = predicted_costs(plan, machine.stored)
    skipped = [run for run in machine.stored if run.outcome is Outcome.SKIPPED]
    assert skipped
    for run in skipped:
        assert f"predicted {units.seconds(foreseen[run.case][0])} per iteration" in run.reason


def test_a_repeat_that_the_budget_cuts_off_takes_nothing_from_its_case():
    """A machine that comes to a standstill in the second round."""
    stuck = []

    def seconds(case):
        return 1000.0 if stuck else 0.1

    machine = Machine(seconds)
    watch = lambda progress: stuck.append(1) if progress.round else None  # noqa: E731
    session = sweep(machine, request=replace(REQUEST, budget_s=60.0), observe=watch)
    assert session.over_budget
    assert machine.now - 50.0 <= 62.0  # each process has a second to answer
    assert {run.outcome for run in machine.stored} == {Outcome.OK}
    assert {run.round for run in machine.stored} == {0}


def test_a_further_form_of_a_mechanism_waits_for_the_repeats_of_the_others():
    """The expensive form alone would fit; with the repeats of the others it does not."""
    eager, fused = planned("a", 128, 9 * 10**9), planned("a", 128, 10**9, form="sdpa")
    costs = {"eager": 9.0, "sdpa": 1.0}
    machine = Machine(lambda case: costs[case.form])
    sweep(machine, (fused, eager), replace(REQUEST, budget_s=45.0))
    assert outcomes(machine)[eager.case.key, Part.TIME, 0].outcome is Outcome.OK
    machine = Machine(lambda case: costs[case.form])
    sweep(machine, (fused, eager), replace(REQUEST, budget_s=36.0))
    assert outcomes(machine)[eager.case.key, Part.TIME, 0].outcome is Outcome.SKIPPED
    assert outcomes(machine)[fused.case.key, Part.TIME, 2].outcome is Outcome.OK


def test_lengths_beyond_the_tokens_of_a_batch_wait_for_the_repeats_of_the_others():
    """They are measured after them, as far as the budget goes, and not skipped before."""
    costs = {256: 1, 1024: 4, 2048: 4}
    plan = tuple(planned(name, n, costs[n] * 10**9) for name in ("a", "b") for n in costs)
    machine = Machine(lambda case: float(costs[case.workload.seq_len]))
    sweep(machine, plan, replace(REQUEST, budget_s=55.0))
    rounds = [(outcomes(machine).get((p.case.key, Part.TIME, 2)) is not None) for p in plan]
    assert rounds == [True, False, False] * 2
    ends = [outcomes(machine)[p.case.key, Part.TIME, 0].outcome for p in plan]
    assert ends == [Outcome.OK, Outcome.OK, Outcome.SKIPPED] * 2
    order = [(run.round, "1024" in run.case) for run in machine.stored if run.samples]
    assert order.index((2, False)) < order.index((0, True))


def test_a_further_form_that_was_left_out_and_then_must_wait_does_so_once():
    """It is guessed to exceed the limit of a case, until that of its mechanism proves fast."""
    costs = {("a", "eager"): (10, 5.0), ("a", "sdpa"): (100, 50.0), ("b", "eager"): (10, 49.0)}
    plan = [planned(name, 128, c * 10**9, form=form) for (name, form), (c, _) in costs.items()]
    machine = Machine(
        lambda case: costs[case.mechanism, case.form][1] * case.workload.seq_len / 128
    )
    look, looks = machine.clock, []

    def clock():
        looks.append(1)
        assert len(looks) < 10_000, "it goes round in circles"
        return look()

    machine.clock = clock
    request = replace(REQUEST, budget_s=1500.0, case_timeout_s=250.0)
    sweep(machine, (*plan, planned("b", 256, 20 * 10**9)), request)
    assert outcomes(machine)[plan[1].case.key, Part.TIME, 0].outcome is Outcome.OK


def test_without_a_budget_nothing_waits():
    plan = tuple(planned(name, n, 10**9) for name in ("a", "b") for n in (256, 1024))
    machine = Machine(lambda case: 1.0)
    sweep(machine, plan)
    rounds = [run.round for run in machine.stored if run.samples]
    assert rounds == sorted(rounds)


def test_predictions_learn_from_the_clock_of_the_device_and_visits_from_that_of_the_wall():
    machine = Machine(lambda case: 0.1, hold_s=0.5)
    session = sweep(machine)
    for line in PLAN:
        assert session.history.iteration_s(line) == pytest.approx(0.1)
    predicted, _ = predicted_costs(PLAN, machine.stored)[PLAN[-1].case.key]
    assert predicted == pytest.approx(0.1)
    assert session.history.wall_s(PLAN[0]) == pytest.approx(0.6)
    expected = schedule.visit_s(0.6, REQUEST.settings, session.history.other_s(Part.TIME))
    assert session.visit_s(PLAN[0]) == pytest.approx(expected)


def test_what_processes_take_besides_iterations_is_learnt():
    """A process takes 3 s to start, so that only some repeats fit into the budget."""
    machine = Machine(other_s=3.0)
    session = sweep(machine, request=replace(REQUEST, budget_s=100.0))
    assert session.history.other_s(Part.TIME) == pytest.approx(3.0)
    assert session.history.other_s(Part.MEMORY) == pytest.approx(3.0, abs=0.1)
    assert 80.0 < machine.now - 50.0 <= 100.0
    assert not session.over_budget


def test_large_tensors_go_back_only_where_a_heap_that_keeps_them_would_not_fit():
    sizes = {"slow": GIB // 2, "fast": GIB // 4}
    plan = tuple(planned(name, 128, 10**8, size=size) for name, size in sizes.items())
    machine = Machine(fate=unweighed)
    sweep(machine, plan)
    sparing = {(build["mechanism"], build["sparing"]) for build in machine.builds}
    assert sparing == {("slow", True), ("fast", False)}


def test_processes_that_do_not_race_end_where_their_memory_is_needed():
    plan = (
        *(planned(name, 128, 10**8, size=1000) for name in ("slow", "fast")),
        planned("slow", 256, 10**8, size=GIB // 3),
        planned("slow", 512, 10**8, size=1000),
        planned("fast", 512, 10**8, size=1000),
    )
    machine = Machine(fate=unweighed)
    sweep(machine, plan, replace(REQUEST, rounds=1))
    timing = Counter(series for series, weighs in machine.started if not weighs)
    assert timing == {"slow:eager": 1, "fast:eager": 2}


def compiled(seq_len, flops=10**8):
    return replace(planned("fast", seq_len, flops, form="compiled"), compiles=True)


def test_compiling_counts_against_the_time_limit_of_a_case_and_is_expected():
    """Far longer than its iterations, and than the guess before anything was compiled."""
    plan = (PLAN[3], *(compiled(n) for n in (128, 256, 512)))
    slow = {128: 280.0, 256: 130.0, 512: 130.0}
    machine = Machine(
        lambda case: 0.1,
        compile_s=lambda case: slow[case.workload.seq_len] if case.form == "compiled" else 0.0,
    )
    sweep(machine, plan, replace(REQUEST, rounds=1))
    found = outcomes(machine)
    assert {run.outcome for run in found.values()} == {Outcome.OK}
    slow[128] = 1000.0
    machine = Machine(lambda case: 0.1, compile_s=machine.compile_s)
    sweep(machine, plan, replace(REQUEST, rounds=1, case_timeout_s=300.0))
    ends = [outcomes(machine)[p.case.key, Part.TIME, 0].outcome for p in plan]
    assert ends == [Outcome.OK, Outcome.TIMEOUT, Outcome.SKIPPED, Outcome.SKIPPED]


def test_the_budget_reserves_what_compiling_took_before():
    """Iterations alone would fit many times; after the first, two more compilations do not."""
    plan = (PLAN[3], *(compiled(n) for n in (128, 256, 512)))
    machine = Machine(
        lambda case: 0.01, compile_s=lambda case: 30.0 if case.form == "compiled" else 0.0
    )
    sweep(machine, plan, replace(REQUEST, rounds=1, budget_s=80.0))
    assert machine.now - 50.0 <= 80.0
    runs = [outcomes(machine)[p.case.key, Part.TIME, 0] for p in plan]
    assert [run.outcome for run in runs] == [Outcome.OK, Outcome.OK, Outcome.OK, Outcome.SKIPPED]
    assert "would exceed --budget" in runs[-1].reason


def measured(machine):
    """In how many rounds each case was timed."""
    return Counter(run.case for run in machine.stored if run.part is Part.TIME and run.samples)


MANY = tuple(
    planned(name, n, 10**9, mode=mode)
    for name in ("a", "b", "c", "d")
    for n in (128, 256, 512)
    for mode in (Mode.INFERENCE, Mode.TRAINING)
)


def test_guesses_that_are_far_too_long_leave_nothing_out_that_fits():
    """Only one series has a good guess; every other case is guessed to take twice the budget."""
    plan = tuple(
        line if line.case.mechanism == "a" else replace(line, predicted_s=200.0) for line in MANY
    )
    machine = Machine(lambda case: 0.1)
    session = sweep(machine, plan, replace(REQUEST, budget_s=100.0))
    timed = measured(machine)
    assert set(timed) == {line.case.key for line in plan}
    assert min(timed.values()) >= 2
    assert all(run.outcome is Outcome.OK for run in outcomes(machine).values())
    assert session.useful_s > 0.6 * 100.0


@pytest.mark.parametrize("true", [1 / 8, 1.0, 8.0])
def test_guesses_that_are_all_wrong_alike_use_the_budget_and_keep_it(true):
    machine = Machine(lambda case: 0.05 * true)
    plan = tuple(replace(line, predicted_s=0.05) for line in MANY)
    sweep(machine, plan, replace(REQUEST, budget_s=120.0, rounds=12))
    assert machine.now - 50.0 <= 120.0 * 1.02
    assert set(measured(machine)) == {line.case.key for line in plan}


def test_the_first_guess_follows_the_peaks_that_were_measured():
    line = replace(planned("slow", 128, 10**12), moved_bytes=10**6)
    names = {line.case.key: "slow"}
    slow, fast = (predict.Times(names, predict.Rates(flops, 1e10)) for flops in (1e9, 1e11))
    assert slow.of(line) > 50 * fast.of(line) > 0
    old = replace(line, moved_bytes=0)  # from an older journal
    assert fast.of(old) == old.predicted_s


def test_a_block_known_to_the_precision_is_not_repeated_and_the_others_are():
    """The times of one series at 256 differ from round to round."""
    turns = Counter()

    def seconds(case):
        turns[case] += 1
        wide = (case.mechanism, case.workload.seq_len) == ("slow", 256)
        return 0.1 * (1.3 if wide and turns[case] // 8 % 2 else 1.0)

    request = replace(REQUEST, rounds=12, budget_s=10_000.0, precision=0.02)
    session = sweep(machine := Machine(), request=request)
    assert set(measured(machine).values()) == {4}, "no block ends before four rounds"
    assert not session.over_budget
    sweep(machine := Machine(seconds), request=request)
    rounds = {line.case.workload.seq_len: measured(machine)[line.case.key] for line in PLAN}
    assert max(rounds[128], rounds[512]) < rounds[256] == 12
    sweep(machine := Machine(), request=replace(request, precision=None))
    assert set(measured(machine).values()) == {12}


def test_memory_is_measured_after_times_in_a_share_of_a_budget_that_is_short():
    """There is time for about one round of all; a measurement of memory takes as long as that."""
    machine = Machine(lambda case: 0.1, other_s=2.0)
    session = sweep(machine, MANY, replace(REQUEST, budget_s=100.0))
    parts = [run.part for run in machine.stored if run.elapsed_s]
    assert set(parts[: parts.index(Part.MEMORY)]) == {Part.TIME}
    assert len(measured(machine)) == len(MANY)
    assert 3 <= parts.count(Part.MEMORY) < len(MANY)
    assert session.over_budget


def decoding(seq_len, prefill_flops):
    step = planned("slow", seq_len, 10**6, mode=Mode.DECODE)
    return replace(step, prefill_flops=prefill_flops, prefill_s=prefill_flops / 1e9)


def timed(line, laps, values, **more):
    """A run of laps of 0.1 s."""
    samples = (Sample(1, 0.1, 0.1, None, 0.1, 0.0, 0.0),) * laps
    run = Run(case=line.case.key, part=Part.TIME, round=0, outcome=Outcome.OK, **more)
    return replace(run, samples=samples, values=values)


def test_a_prefill_is_part_of_what_a_visit_takes():
    plan = [decoding(n, 10**9 * n) for n in (10, 20, 40)]
    history = Session(
        request=REQUEST, plan=tuple(plan), store=Machine(), start=None, memory_bytes=GIB
    ).history
    assert history.prefill_s(plan[0]) == 10  # the first guess
    history.learn(plan[0], timed(plan[0], 1, {"ttft_s": 3.0}))
    assert [history.prefill_s(line) for line in plan] == pytest.approx([3, 6, 12])
    assert history.prepare_s(plan[2]) == history.prefill_s(plan[2])


def test_a_prefill_that_does_not_fit_into_the_budget_is_not_started():
    machine = Machine(seconds=lambda case: 0.001)
    plan = (decoding(10, 10**9), decoding(20, 10**11))
    sweep(machine, plan, replace(REQUEST, budget_s=30.0, rounds=1))
    found = {run.case: run for run in machine.stored if run.part is Part.TIME}
    short, long = (found[line.case.key] for line in plan)
    assert (short.outcome, long.outcome) == (Outcome.OK, Outcome.SKIPPED)
    assert long.reason.startswith("would exceed --budget")


def predicted(planned, *known):
    """Seconds of a case after the others were measured."""
    lines = [planned, *(line for line, _ in known)]
    times = predict.Times(series_names(lines))
    for line, took_s in known:
        times.learn(line, took_s)
    return times.of(planned)


def test_a_step_is_not_predicted_from_passes_nor_passes_from_steps():
    passes, step = planned("slow", 128, 10**9), decoding(128, 10**9)
    assert predicted(step, (passes, 5.0)) == step.predicted_s
    assert predicted(passes, (step, 5.0)) == passes.predicted_s


def test_the_nearest_kin_predicts():
    """The same series at other lengths, in the other mode, its other forms, then all others."""
    case = planned("slow", 256, 2 * 10**9)  # guessed to take 2 s
    others = (planned("fast", 256, 10**9), 3.0), (planned("fast", 128, 10**9), 9.0)
    form = planned("slow", 256, 10**9, form="sdpa"), 4.0
    training = planned("slow", 512, 10**9, mode=Mode.TRAINING), 5.0
    far, near = (planned("slow", 1024, 10**9), 6.0), (planned("slow", 128, 10**9), 7.0)
    known = [*others, form, training, far, near]
    expected = [2.0, 18.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    order = [[], others[1:], others, [*others, form], known[:4], known[:5], known]
    assert [predicted(case, *some) for some in order] == pytest.approx(expected)


@pytest.mark.parametrize(("do", "part"), [("finish", Part.TIME), ("weigh", Part.MEMORY)])
def test_what_would_be_refused_on_reading_is_a_failure_that_names_it(do, part):
    answer = {"outcome": "ok", "values": {"setup_s": -1.0}, "notes": {}, "spoiled": False}
    machine = Machine(fate=lambda case, asked: answer if asked == do else None)
    sweep(machine)
    runs = [run for run in machine.stored if run.part == part]
    assert {(run.outcome, run.reason) for run in runs} == {
        (Outcome.FAILED, "its process answered what cannot be: `$.values.setup_s` is below 0")
    }
    assert not any(map(wrong, machine.stored))


def test_what_was_killed_twice_is_stored_with_that_cause():
    killed = {"outcome": "crashed", "cause": Cause.KILLED, "reason": "signal 9"}
    machine = Machine(fate=lambda case, do: killed if case.mechanism == "slow" else None)
    sweep(machine)
    for run in machine.stored:
        slow = "slow" in run.case
        assert (run.outcome, run.cause) == (
            (Outcome.CRASHED, Cause.KILLED) if slow else (Outcome.OK, None)
        )


BY_CORE = replace(REQUEST, settings=replace(REQUEST.settings, clock=Clock.CPU, faulting_s=3.0))


def test_a_shared_core_gives_as_many_laps_and_is_predicted_to_take_longer():
    alone, shared = Machine(), Machine(shared=4)
    sweep(alone, request=BY_CORE)
    session = sweep(shared, request=BY_CORE)
    one, other = outcomes(alone), outcomes(shared)
    timed = [key for key in one if key[1] is Part.TIME]
    assert [len(one[key].samples) for key in timed] == [len(other[key].samples) for key in timed]
    line = PLAN[0]
    assert session.history.wall_s(line) == pytest.approx(4 * 0.1)
    visit_s = session.visit_s(line) - session.history.other_s(Part.TIME)
    laps_s = sum(sample.wall_s for sample in other[line.case.key, Part.TIME, 0].samples)
    # the first iteration and the warm-up
    assert visit_s == pytest.approx(laps_s + 4 * schedule.warm_s(0.1, BY_CORE.settings))


@pytest.mark.parametrize(("request_", "clock"), [(REQUEST, Clock.WALL), (BY_CORE, Clock.CPU)])
def test_workers_are_told_the_clock_and_how_to_warm_up(request_, clock):
    machine = Machine()
    sweep(machine, request=request_)
    for asked in machine.builds:
        assert asked["clock"] == clock
        assert asked["faulting_s"] == request_.settings.faulting_s


@pytest.mark.parametrize(("iteration_s", "iterations"), [(0.5, 1), (0.1, 2), (0.001, 11)])
def test_the_predicted_warm_up_is_limited_in_time_and_iterations(iteration_s, iterations):
    settings = Settings(warmup_s=0.2)
    assert schedule.warm_s(iteration_s, settings) == pytest.approx(iterations * iteration_s)


def test_the_time_of_laps_taken_again_is_no_other_time_of_a_process():
    history = History(plan=PLAN)
    values = {"warmup_s": 0.3, "retaken_s": 0.2}
    history.learn(PLAN[0], timed(PLAN[0], 4, values, elapsed_s=1.0))
    assert history.other_s(Part.TIME) == pytest.approx(0.1)
