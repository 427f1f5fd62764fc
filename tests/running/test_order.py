"""The order of visits: each curve as far as the budget goes, then what is uncertain."""

import math
from collections import Counter
from dataclasses import replace
from itertools import groupby

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.records import Case, Cause, Mode, Outcome, Part, Settings
from attnbench.records.storage import journal
from attnbench.running.foresee import LOADING_S, PEAKS_S, foresee
from tests.doubles.machine import Machine
from tests.running.sessions import GIB, PLAN, REQUEST, outcomes, planned, slow_is, sweep
from tests.running.stored import OWN, again, common_front, plan_of, reached

LENGTHS = tuple(2**k for k in range(7, 17))
MODES = (Mode.INFERENCE, Mode.TRAINING)
# Seconds of an iteration of 8,192 tokens, in a stored sweep of Fig. 2: of the linear mechanisms at
# each length up to 8,192, of softmax attention at 128 and at 8,192 (inference, training).
LINEAR = {
    "bigbird": (0.24, 0.74),
    "fastformer": (0.11, 0.38),
    "linear_transformer": (0.18, 0.56),
    "linformer": (0.13, 0.42),
    "longformer": (0.25, 0.76),
    "poolingformer": (0.34, 1.02),
}
QUADRATIC = {"eager": ((0.24, 10.2), (0.73, 13.6)), "sdpa": ((0.21, 2.35), (0.65, 8.4))}


def costs(n, mode):
    """Seconds of an iteration of each mechanism; a batch has 8,192 tokens, or one sequence."""
    sequences, at = max(1, n / 8192), MODES.index(mode)
    found = {name: seconds[at] * sequences for name, seconds in LINEAR.items()}
    for name, ends in QUADRATIC.items():
        short, long = ends[at]
        found[name] = sequences * (short + (long - short) * (n - 128) / (8192 - 128))
    return found


def replayed(budget_s, names, guess=1.5):
    """A sweep of Fig. 2 on a machine where everything takes what it took; first guesses err."""
    plan = [
        planned(name, n, int(guess * seconds * 1e9), mode=mode)
        for mode in MODES
        for n in LENGTHS
        for name, seconds in costs(n, mode).items()
        if name in names
    ]
    w = {line.case: line.case.workload for line in plan}
    machine = Machine(lambda case: costs(w[case].seq_len, w[case].mode)[case.mechanism])
    settings = Settings(sample_s=0.5, warmup_s=0.2)
    asked = {"lengths": LENGTHS, "modes": MODES, "tokens": 8192, "precision": 0.02, "rounds": 12}
    sweep(machine, plan, replace(REQUEST, **asked, budget_s=budget_s, settings=settings))
    assert machine.now - 50.0 <= budget_s * 1.01
    return machine, plan


def longest(machine, mode):
    """The longest length of each mechanism that was timed, and that was weighed too."""
    found = {Part.TIME: {}, Part.MEMORY: {}}
    for (key, part, _), run in outcomes(machine).items():
        case = msgspec.json.decode(key, type=Case)
        if run.outcome is Outcome.OK and case.workload.mode is mode:
            known = found[part].get(case.mechanism, 0)
            found[part][case.mechanism] = max(known, case.workload.seq_len)
    assert found[Part.TIME] == found[Part.MEMORY], "a peak is not what a budget leaves out"
    return found[Part.TIME]


@pytest.mark.parametrize(
    ("budget_s", "training"),
    [pytest.param(900.0, 32_768, marks=pytest.mark.long), (1200.0, 65_536)],
)
def test_each_linear_curve_of_the_figure_is_measured_to_its_end(budget_s, training):
    machine, plan = replayed(budget_s, {*LINEAR, *QUADRATIC})
    assert {longest(machine, Mode.INFERENCE)[name] for name in LINEAR} == {65_536}
    assert min(longest(machine, Mode.TRAINING)[name] for name in LINEAR) >= training
    timed = Counter(key for (key, part, _), run in outcomes(machine).items() if run.samples)
    assert len(timed) >= 140
    usual = [timed[p.case.key] for p in plan if 512 <= p.case.workload.seq_len <= 8192]
    assert sorted(usual)[len(usual) // 2] >= 2, "and most short ones are repeated"


def test_five_minutes_measure_a_linear_curve_beside_softmax_attention():
    machine, _ = replayed(300.0, {"fastformer", "sdpa"})
    assert {longest(machine, mode)["fastformer"] for mode in MODES} == {65_536}


def test_half_a_minute_compares_two_forms_in_both_modes():
    machine, _ = replayed(30.0, {"eager", "sdpa"})
    for mode in MODES:
        assert set(longest(machine, mode)) == {"eager", "sdpa"}


FIG2 = "reports/cpu-fig2"  # a stored sweep, whose cases take here what they took there
SOFTMAX = "transformer:eager"


@pytest.mark.parametrize(
    ("mechanisms", "budget_s", "training", "inference", "cases"),
    [
        (("fastformer", "transformer:sdpa"), 300.0, 4096, 8192, 30),
        (
            ("fastformer", "linear_transformer", "linformer", "transformer:sdpa"),
            300.0,
            2048,
            4096,
            60,
        ),
        (None, 1200.0, 8192, 8192, 138),
    ],
)
def test_all_series_can_be_compared_far_within_a_budget(
    mechanisms, budget_s, training, inference, cases
):
    agenda = again(FIG2, mechanisms, budget_s=budget_s)
    lengths = reached(agenda)
    compared = {
        mode: common_front({name: own for name, own in each.items() if name != SOFTMAX})
        for mode, each in lengths.items()
    }
    assert compared[Mode.TRAINING] >= training
    assert compared[Mode.INFERENCE] >= inference
    assert sum(len(own) for each in lengths.values() for own in each.values()) >= cases
    assert max(lengths[Mode.INFERENCE]["fastformer"]) == 65_536
    if budget_s / len(lengths[Mode.TRAINING]) > 100:
        assert max(lengths[Mode.TRAINING]["fastformer"]) == 65_536


FOUR = (OWN, "fastformer", "linear_transformer", "transformer:sdpa")


@pytest.mark.parametrize("share", [0.3, pytest.param(1.0, marks=pytest.mark.long)])
def test_a_module_of_ones_own_among_four_can_be_compared_far_in_five_minutes(share):
    """Nothing is known of what it costs before it runs."""
    lengths = reached(again(FIG2, FOUR, budget_s=300.0, share=share))
    assert common_front(lengths[Mode.TRAINING]) >= 2048
    assert common_front(lengths[Mode.INFERENCE]) >= 4096
    assert {len(each) for each in lengths.values()} == {4}


@pytest.mark.parametrize(
    "mechanisms",
    [
        pytest.param(("fastformer", "transformer:sdpa"), id="two", marks=pytest.mark.long),
        pytest.param(FOUR, id="four"),
    ],
)
def test_on_a_machine_at_half_speed_a_sweep_goes_as_far_as_a_dry_run_says(mechanisms):
    """The rates that are assumed before any are measured are half of those of this machine."""
    stored = journal.load(FIG2)
    request = replace(stored.request, budget_s=300.0)
    foretold = foresee(request, plan_of(stored, mechanisms), 24 * GIB)
    lengths = reached(again(FIG2, mechanisms, budget_s=300.0, slower=2.0))
    for front in foretold.fronts:
        assert front.common / 2 <= common_front(lengths[front.mode]) <= 2 * front.common
        far = max(set.union(*lengths[front.mode].values()))
        assert front.far / 2 <= far <= 2 * front.far


def test_all_series_grow_together_in_both_modes_before_one_goes_far():
    """Whole blocks at every second length, short ones first, in less than half of the budget."""
    costs = {"a": 2.0, "b": 1.0, "c": 0.5}
    plan = [
        planned(name, n, int(cost * (2 if mode is Mode.TRAINING else 1) * 1e9), mode=mode)
        for mode in MODES
        for n in (128, 256, 512, 1024, 2048)
        for name, cost in costs.items()
    ]
    machine = Machine(lambda case: costs[case.mechanism] * (1 + MODES.index(case.workload.mode)))
    request = replace(REQUEST, lengths=(128, 256, 512, 1024, 2048), modes=MODES, budget_s=500.0)
    sweep(machine, plan, request)
    cases = [msgspec.json.decode(run.case, type=Case) for run in machine.stored]
    timed = [
        case.workload
        for case, run in zip(cases, machine.stored, strict=True)
        if run.part is Part.TIME and run.samples
    ]
    blocks = [key for key, _ in groupby(timed, key=lambda w: (w.seq_len, w.mode))]
    assert blocks[:6] == [
        *((128, mode) for mode in MODES),
        *((512, mode) for mode in MODES),
        *((2048, mode) for mode in MODES),
    ]
    assert {n for n, _ in blocks[6:]} >= {256, 1024}


def test_a_series_that_takes_longer_than_all_others_holds_nobody_back():
    """It is left behind where others can be compared without it, and comes in its own turn."""
    times = {"huge": 40.0, "b": 1.0, "c": 0.5}
    lengths = (128, 256, 512)
    plan = [planned(name, n, int(t * 1e9)) for name, t in times.items() for n in lengths]
    machine = Machine(lambda case: times[case.mechanism])
    sweep(machine, plan, replace(REQUEST, budget_s=3000.0, rounds=1))
    visited = [(name, n) for _, name, n in order(machine)]
    assert visited.index(("b", 512)) < visited.index(("huge", 512))
    assert set(visited) == {(name, n) for name in times for n in lengths}
    two = [line for line in plan if line.case.mechanism != "b"]
    machine = Machine(lambda case: times[case.mechanism])
    sweep(machine, two, replace(REQUEST, budget_s=3000.0, rounds=1))
    visited = [(name, n) for _, name, n in order(machine)]
    assert visited.index(("huge", 512)) < visited.index(("c", 256)), "two are to be compared"


def test_a_mode_goes_on_where_another_no_longer_fits():
    """Training takes seconds in proportion to the length; inference half a second at any."""

    def seconds(n, mode):
        return 5.0 * n / 128 if mode is Mode.TRAINING else 0.5

    lengths = (128, 256, 512, 1024, 2048)
    plan = [
        planned(name, n, int(seconds(n, mode) * 1e9), mode=mode)
        for mode in MODES
        for n in lengths
        for name in ("a", "b")
    ]
    machine = Machine(lambda case: seconds(case.workload.seq_len, case.workload.mode))
    request = replace(REQUEST, lengths=lengths, modes=MODES, budget_s=400.0)
    timed = reached(sweep(machine, plan, request))
    assert common_front(timed[Mode.INFERENCE]) == 2048
    assert 128 <= common_front(timed[Mode.TRAINING]) < 2048


def order(machine):
    """Round, mechanism and length of each run of laps, in order."""
    cases = [(run, msgspec.json.decode(run.case, type=Case)) for run in machine.stored]
    return [
        (run.round, case.mechanism, case.workload.seq_len)
        for run, case in cases
        if run.part is Part.TIME and run.samples
    ]


def test_curves_begin_then_cheap_cases_come_first_and_their_block_races_along():
    machine = Machine(slow_is(5.0))
    sweep(machine, request=replace(REQUEST, budget_s=300.0))
    first = [(name, n) for round_, name, n in order(machine) if round_ == 0]
    assert {n for _, n in first[:2]} == {128}
    assert first.index(("fast", 512)) < first.index(("slow", 256))
    runs = outcomes(machine)
    for slow, fast in zip(PLAN[:3], PLAN[3:], strict=True):
        shared = [
            {sample.lap for sample in runs[line.case.key, Part.TIME, 0].samples}
            for line in (slow, fast)
        ]
        assert shared[0] <= shared[1], "the fast one ran again beside the slow one"


ALIKE = tuple(replace(line, projection_flops=10**8) for line in PLAN)  # one race for each block


@pytest.mark.parametrize("names", [("slow", "fast"), ("slow", "fast", "third")])
def test_the_first_block_is_repeated_at_once_in_three_rounds(names):
    """Its inference costs less than its training; rounds have new processes."""
    plan = [
        planned(name, n, 10**8 * (1 + 2 * MODES.index(mode)), mode=mode)
        for name in names
        for n in (128, 256)
        for mode in MODES
    ]
    machine = Machine(slow_is(0.15))
    request = replace(REQUEST, modes=MODES, lengths=(128, 256), rounds=12, budget_s=1000.0)
    sweep(machine, plan, request)
    visited = order(machine)
    each = len(names)
    assert {n for _, _, n in visited[: 3 * each]} == {128}
    rounds = [round_ for round_, _, _ in visited[: 3 * each + 1]]
    assert rounds == [*([0] * each), *([1] * each), *([2] * each), 0]
    first = [msgspec.json.decode(run.case, type=Case) for run in machine.stored[: 4 * each]]
    assert {case.workload.mode for case in first} == {Mode.INFERENCE}
    pids = [pid for do, _, pid in machine.asked if do == "build"]
    assert len(set(pids[: 3 * each])) == 3 * each


def early(machine):
    """Seconds until the first visit to another block, and what ran by then, by round."""
    visited = order(machine)
    until = next(i for i, (_, _, n) in enumerate(visited) if n != visited[0][2])
    elapsed = [run.elapsed_s for run in machine.stored if run.samples][:until]
    rounds = {}
    for (round_, name, _), seconds in zip(visited[:until], elapsed, strict=True):
        rounds.setdefault(round_, {})[name] = seconds
    return rounds


@pytest.mark.parametrize("names", ["ab", "abcdefgh"])
def test_what_is_repeated_at_once_takes_a_twentieth_of_the_budget(names):
    """In a tie too; of many series as many as can be repeated often enough, the cheapest ones."""
    seconds = {name: 0.5 + 0.01 * i * (len(names) > 2) for i, name in enumerate(names)}
    plan = [planned(name, n, int(s * 1e9)) for name, s in seconds.items() for n in (128, 256)]
    noise = Counter()

    def wavering(case):
        noise[case] += 1
        return seconds[case.mechanism] * (1 + 0.05 * math.sin(3 * noise[case]))

    machine = Machine(wavering)
    sweep(machine, plan, replace(REQUEST, lengths=(128, 256), rounds=12, budget_s=600.0))
    rounds = early(machine)
    assert 3 <= len(rounds) < 12
    again_s = sum(sum(each.values()) for number, each in rounds.items() if number)
    assert 15.0 <= again_s <= 1.1 * 30.0
    assert len({tuple(sorted(each)) for number, each in rounds.items() if number}) == 1
    assert 2 <= len(rounds[1]) <= len(names)
    assert set(rounds[1]) == set(names[: len(rounds[1])])


@pytest.mark.parametrize(("budget_s", "again"), [(60.0, 2), (30.0, 0)])
def test_two_series_are_repeated_at_once_often_enough_or_not_at_all(budget_s, again):
    """Two further rounds of them take 7 s."""
    plan = [planned(name, n, 5 * 10**8) for name in "ab" for n in (128, 256)]
    machine = Machine(lambda case: 0.5)
    sweep(machine, plan, replace(REQUEST, lengths=(128, 256), rounds=12, budget_s=budget_s))
    assert max(early(machine)) == again


def test_a_series_that_fails_again_ends_the_first_repeats():
    """Two are needed to decide anything."""

    def fate(case, do):
        again = do == "build" and case.mechanism == "slow" and machine.stored
        return {"outcome": "failed", "reason": "only once"} if again else None

    machine = Machine(fate=fate)
    sweep(machine, ALIKE, replace(REQUEST, rounds=12, budget_s=1000.0))
    assert [(round_, n) for round_, _, n in order(machine)[:4]] == [
        (0, 128),
        (0, 128),
        (1, 128),
        (0, 512),
    ]


def test_a_sweep_that_goes_on_repeats_nothing_twice():
    request = replace(REQUEST, budget_s=1000.0)
    machine = Machine(slow_is(0.15))
    sweep(machine, ALIKE, request)
    for ended in (4, 6, 8):  # after a visit
        again = Machine(slow_is(0.15))
        sweep(again, ALIKE, request, earlier=machine.stored[:ended])
        runs = [(run.case, run.part, run.round) for run in machine.stored[:ended] + again.stored]
        assert len(runs) == len(set(runs))
        assert set(runs) == {(run.case, run.part, run.round) for run in machine.stored}


def test_memory_is_measured_after_the_first_visit_of_a_case():
    machine = Machine()
    sweep(machine, request=replace(REQUEST, budget_s=60.0))
    parts = [(run.case, run.part, run.round) for run in machine.stored]
    for line in PLAN:
        weighed = parts.index((line.case.key, Part.MEMORY, 0))
        assert parts.index((line.case.key, Part.TIME, 0)) < weighed
        assert (line.case.key, Part.TIME, 1) in parts[weighed:]


def test_what_is_compared_with_nothing_is_repeated_last():
    """It has no ratio that laps could narrow; alone in a sweep it is repeated too."""
    longest = max(line.case.workload.seq_len for line in PLAN)
    plan = [line for line in PLAN if line.case.mechanism == "fast"]
    machine = Machine(slow_is(1.05))
    shorter = [line for line in PLAN if line.case.workload.seq_len < longest]
    sweep(machine, [*dict.fromkeys([*plan, *shorter])], replace(REQUEST, budget_s=60.0))
    again = [n for round_, _, n in order(machine) if round_]
    assert set(again[: again.index(longest)]) == {line.case.workload.seq_len for line in shorter}
    assert again.index(longest) >= 2 * len(shorter), "after two rounds of all others"
    machine = Machine()
    sweep(machine, plan, replace(REQUEST, budget_s=60.0))
    assert Counter(n for _, _, n in order(machine))[longest] > 1


def test_what_is_decided_is_not_repeated_before_what_is_not():
    """Of three series two tie; the third takes three times as long."""
    times = {"a": 0.5, "b": 0.5, "c": 1.5}
    plan = [planned(name, n, int(t * 1e9)) for name, t in times.items() for n in (128, 256)]
    turns = Counter()

    def seconds(case):
        turns[case] += 1
        return times[case.mechanism] * (1 + 0.02 * math.sin(turns[case] * len(case.mechanism)))

    machine = Machine(lambda case: seconds(case) * (1.1 if turns[case] // 5 % 2 else 1.0))
    sweep(machine, plan, replace(REQUEST, rounds=12, budget_s=150.0, precision=0.001))
    rounds = Counter(name for _, name, _ in order(machine))
    assert rounds["c"] < min(rounds["a"], rounds["b"])
    assert max(rounds["a"], rounds["b"]) <= 1.5 * min(rounds["a"], rounds["b"])


def test_what_did_not_fit_comes_once_the_rest_is_decided():
    """It takes more than the share of the first round, and less than what precision leaves."""
    plan = [*PLAN, planned("long", 512, 22 * 10**9)]
    machine = Machine(lambda case: {"slow": 1.0, "fast": 0.1, "long": 22.0}[case.mechanism])
    request = replace(REQUEST, budget_s=150.0, rounds=12, precision=0.02)
    sweep(machine, plan, request)
    visited = order(machine)
    assert (0, "long", 512) in visited
    assert visited.index((2, "fast", 128)) < visited.index((0, "long", 512))
    run = outcomes(machine)[plan[-1].case.key, Part.MEMORY, 0]
    assert run.outcome is Outcome.OK


REFUSED = planned("odd", 128, 10**8, refusal="it cannot")
LARGE = planned("large", 256, 10**8, size=2 * GIB)
LONG = planned("long", 128, 10**13)
MIXED = (*PLAN, REFUSED, LARGE, LONG)


@pytest.mark.parametrize("budget_s", [None, 60.0])
def test_a_dry_run_foresees_what_a_sweep_does_where_predictions_are_exact(budget_s):
    """It knows no ratios: without a budget every round, within one as many visits as fit."""
    request = replace(REQUEST, case_timeout_s=100.0, budget_s=budget_s)
    found = foresee(request, MIXED, GIB)
    machine = Machine(
        lambda case: found.seconds[case.key], overhead_s=0.15, peak_bytes=lambda case: 1000
    )
    sweep(machine, MIXED, request, rates=None)
    timed = Counter(key for (key, _, _), run in outcomes(machine).items() if run.samples)
    assert found.rounds.keys() == timed.keys()
    assert budget_s or found.rounds == timed
    assert found.total_s == pytest.approx(machine.now - 50.0 + LOADING_S + PEAKS_S, rel=0.2)
    others = {run.case: run for run in machine.stored if run.case not in timed}
    assert found.left_out == others
    assert not {REFUSED.case, LARGE.case, LONG.case} & {case for _, case, _ in machine.asked}
    assert found.left_out[REFUSED.case.key].outcome is Outcome.UNSUPPORTED
    assert found.left_out[LARGE.case.key].cause is Cause.MEMORY_LIMIT
    assert found.left_out[LONG.case.key].cause is Cause.CASE_TIMEOUT
    assert LARGE.case.key in foresee(request, MIXED, None).rounds


@given(
    st.floats(1, 500),
    st.integers(1, 6),
    st.lists(st.integers(10**7, 10**10), min_size=1, max_size=4),
)
def test_every_case_is_timed_or_left_out_and_the_budget_holds(budget_s, rounds, flops):
    lengths = (128, 256, 512)
    plan = [planned(f"m{i}", n, each * n // 128) for i, each in enumerate(flops) for n in lengths]
    found = foresee(replace(REQUEST, budget_s=budget_s, rounds=rounds), plan, GIB)
    assert found.rounds.keys() | found.left_out.keys() == {p.case.key for p in plan}
    assert not found.rounds.keys() & found.left_out.keys()
    assert {run.cause for run in found.left_out.values()} <= {Cause.BUDGET}
    assert all(run.part is Part.TIME for run in found.left_out.values())
    assert found.total_s <= LOADING_S + PEAKS_S + budget_s
