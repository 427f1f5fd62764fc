"""What a sweep predicts, and how it spends a budget, by a clock that moves only by processes."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from attnbench.analysis.costs import CORE, PRODUCTS, CostKind, Costs, peak_rates
from attnbench.analysis.summary import summary
from attnbench.records import Cause, Mode, Outcome, Part
from attnbench.running.agenda import Agenda
from tests import sweeps
from tests.doubles.machine import Machine
from tests.running.sessions import (
    GIB,
    PLAN,
    RATES,
    REQUEST,
    outcomes,
    planned,
    predicted,
    slow_is,
    sweep,
    timed,
)


@pytest.mark.parametrize("slow_s", [0.5, 3.0, 9.0])
def test_a_budget_covers_every_cheap_block_before_it_repeats_one(slow_s):
    machine = Machine(slow_is(slow_s))
    agenda = sweep(machine, request=replace(REQUEST, budget_s=60.0))
    assert machine.now - 50.0 <= 60.0
    found = outcomes(machine)
    assert {line.case.key for line in PLAN} == {key for key, _, _ in found}
    for slow, fast in zip(PLAN[:3], PLAN[3:], strict=True):
        assert found[fast.case.key, Part.TIME, 0].outcome is Outcome.OK
        run = found[slow.case.key, Part.TIME, 0]
        left_out = run.outcome is Outcome.SKIPPED and "would exceed --budget" in run.reason
        assert left_out or run.outcome is Outcome.OK
        assert measured(machine)[slow.case.key] <= measured(machine)[fast.case.key]
    assert agenda.over_budget == (slow_s > 1)


def test_a_case_is_left_out_where_the_budget_is_enough_for_the_others_of_its_block_alone():
    """A visit takes 6.15 s: two laps and a warm-up of 2 s each, and 0.15 s besides."""
    plan = tuple(planned(name, 128, 2 * 10**9) for name in ("first", "second"))
    machine = Machine(seconds=lambda case: 2.0)
    sweep(machine, plan, replace(REQUEST, rounds=1, budget_s=10.0))
    first, second = (outcomes(machine)[p.case.key, Part.TIME, 0] for p in plan)
    assert (first.outcome, second.cause) == (Outcome.OK, Cause.BUDGET)
    assert second.reason == (
        "would exceed --budget (1.76 s left): predicted 2.00 s per iteration, 8.70 s in total"
    )
    assert second.case not in {case.key for _, case, _ in machine.asked}


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


@pytest.mark.parametrize("gib", [1.9, 8])
def test_what_would_not_fit_is_predicted_not_tried(gib):
    machine = Machine()
    big = planned("big", 128, 1, size=int(gib * GIB))
    sweep(machine, (big,), memory=2 * GIB)
    (run,) = machine.stored
    assert run.outcome is Outcome.SKIPPED
    assert run.reason == (
        f"needs about {gib:.3f} GiB and 10 % to spare; the limit on memory is 2.000 GiB"
    )
    assert not machine.asked


def test_what_the_end_of_the_budget_cut_off_has_no_outcome_and_is_done_when_resumed():
    """Iterations take 50 times as long as was predicted, so the budget ends in the first block."""
    machine = Machine(seconds=lambda case: 5.0)
    agenda = sweep(machine, request=replace(REQUEST, budget_s=9.0))
    assert agenda.over_budget
    found = outcomes(machine)
    assert {run.outcome for run in found.values()} <= {Outcome.OK, Outcome.SKIPPED}
    cut = [run for run in found.values() if "exceed --budget (nothing left)" in run.reason]
    assert cut
    assert not any(run.elapsed_s for run in cut)
    again = Machine(seconds=lambda case: 5.0)
    sweep(again, earlier=[run for run in machine.stored if run.elapsed_s])
    assert {run.outcome for run in outcomes(again).values()} == {Outcome.OK}


def test_what_is_done_takes_nothing_from_the_budget_of_a_resumed_sweep():
    machine = Machine(seconds=lambda case: 3.0)
    sweep(machine, PLAN[:3])
    again = Machine(seconds=lambda case: 3.0)
    sweep(again, PLAN[:4], replace(REQUEST, budget_s=90.0), earlier=machine.stored)
    assert {r.outcome for r in again.stored} == {Outcome.OK}
    assert {(r.case, r.part, r.round) for r in again.stored} >= {
        (PLAN[3].case.key, part, r)
        for part, r in [(Part.TIME, 0), (Part.TIME, 2), (Part.MEMORY, 0)]
    }


@pytest.mark.parametrize("budget_s", [60.0, None])
def test_the_seconds_left_are_those_of_the_budget(budget_s):
    machine, shown = Machine(slow_is(1.0)), []
    watch = lambda progress: shown.append((machine.now, progress.left_s))  # noqa: E731
    sweep(machine, request=replace(REQUEST, budget_s=budget_s), watch={"observe": watch})
    assert all(left == (budget_s or math.inf) - (now - 50.0) for now, left in shown)


def test_a_repeat_that_the_budget_cuts_off_takes_nothing_from_its_case():
    """A machine that comes to a standstill in the second round, once all have been timed."""
    stuck = []

    def seconds(case):
        return 1000.0 if stuck else 0.1

    machine = Machine(seconds)

    def watch(progress):
        if progress.round and progress.seq_len != 128:
            stuck.append(1)

    agenda = sweep(machine, request=replace(REQUEST, budget_s=60.0), watch={"observe": watch})
    assert agenda.over_budget
    assert machine.now - 50.0 <= 62.0  # each process has a second to answer
    assert {run.outcome for run in machine.stored} == {Outcome.OK}
    repeated = {run.case for run in machine.stored if run.round}
    assert repeated == {line.case.key for line in PLAN if line.case.workload.seq_len == 128}


def test_what_processes_take_besides_iterations_is_learnt():
    """A process takes 3 s to start, so that only some repeats fit into the budget."""
    machine = Machine(overhead_s=3.0)
    agenda = sweep(machine, request=replace(REQUEST, budget_s=100.0))
    assert agenda.costs.predicted(CostKind.TIMING, PLAN[0]) == pytest.approx(3.0)
    assert agenda.costs.predicted(CostKind.WEIGHING, PLAN[0]) == pytest.approx(3.0, abs=0.1)
    assert 80.0 < machine.now - 50.0 <= 100.0
    assert not agenda.over_budget


class Examining(Machine):
    """A machine that looks for odd behaviour for `examination_s(case)` where it is asked to."""

    def __init__(self, examination_s, **how):
        super().__init__(fate=self.examined, **how)
        self.examination_s = examination_s

    def examined(self, case, do):
        if do != "finish" or not self.builds[-1].suspicious:
            return None
        examination_s = self.examination_s(case)
        values = {"warmup_s": self.seconds(case), "examination_s": examination_s}
        notes = {"examined": "yes"}
        told = {"values": values, "notes": notes, "needs_new_process": False}
        return {"outcome": "ok", "after_s": examination_s, **told}


ALONE = [planned("a", n, 10**6) for n in (128, 256, 512, 1024)]


def test_looking_for_odd_behaviour_is_expected_only_where_it_is_due():
    """Of 20 s it takes 10 at the shortest length, and would take 10 again from 512 on."""
    machine = Examining(lambda case: 10.0, seconds=lambda case: 0.01)
    agenda = sweep(machine, ALONE, replace(REQUEST, budget_s=20.0))
    ends = [outcomes(machine)[line.case.key, Part.TIME, 0].outcome for line in ALONE]
    assert ends == [Outcome.OK, Outcome.OK, Outcome.SKIPPED, Outcome.SKIPPED]
    assert agenda.costs.predicted(CostKind.TIMING, ALONE[1]) <= 0.1
    agenda.begin(0)
    assert agenda.visit_s(ALONE[2]) - agenda.visit_s(ALONE[1]) == pytest.approx(10.0, abs=0.01)


def test_looking_for_odd_behaviour_counts_in_the_time_limit_of_a_case():
    """An examination of an hour is no reason to wait as long where none is due."""
    machine = Examining(lambda case: 3600.0)
    sweep(machine, ALONE[:1], replace(REQUEST, rounds=1))
    agenda = Agenda(
        request=replace(REQUEST, case_timeout_s=None),
        plan=ALONE,
        memory_bytes=1e12,
        earlier=outcomes(machine).values(),
    )
    without, due = (agenda.timeout_s(line, 0.1) for line in ALONE[1:3])
    assert without == 60.0
    assert due >= 5 * 3600.0


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


def measured(machine):
    """In how many rounds each case was timed."""
    return Counter(
        key
        for (key, part, _), run in outcomes(machine).items()
        if part is Part.TIME and run.samples
    )


MANY = tuple(
    planned(name, n, 10**9, mode=mode)
    for name in ("a", "b", "c", "d")
    for n in (128, 256, 512)
    for mode in (Mode.INFERENCE, Mode.TRAINING)
)


@pytest.mark.parametrize("true", [1 / 8, 1.0, 8.0])
def test_guesses_that_are_all_wrong_alike_use_the_budget_and_keep_it(true):
    machine = Machine(lambda case: 0.05 * true)
    plan = tuple(replace(line, projection_flops=5 * 10**7) for line in MANY)
    sweep(machine, plan, replace(REQUEST, budget_s=120.0, rounds=12))
    assert machine.now - 50.0 <= 120.0 * 1.02
    assert set(measured(machine)) == {line.case.key for line in plan}


def test_a_block_known_to_the_precision_is_not_repeated_and_the_others_are():
    """The times of one series at 256 differ from round to round."""
    turns = Counter()

    def seconds(case):
        turns[case] += 1
        wide = (case.mechanism, case.workload.seq_len) == ("slow", 256)
        return 0.1 * (1.3 if wide and turns[case] // 8 % 2 else 1.0)

    request = replace(REQUEST, rounds=12, budget_s=10_000.0, precision=0.02)
    agenda = sweep(machine := Machine(), request=request)
    assert set(measured(machine).values()) == {4}, "no block ends before four rounds"
    assert not agenda.over_budget
    sweep(machine := Machine(seconds), request=request)
    rounds = {line.case.workload.seq_len: measured(machine)[line.case.key] for line in PLAN}
    assert max(rounds[128], rounds[512]) < rounds[256] == 12
    sweep(machine := Machine(), request=replace(request, precision=None))
    assert set(measured(machine).values()) == {12}


def decoding(seq_len, prefill_flops):
    step = planned("slow", seq_len, 10**6, mode=Mode.DECODE)
    return replace(step, prefill_flops=prefill_flops)


def test_a_prefill_is_part_of_what_a_visit_takes():
    plan = [decoding(n, 10**9 * n) for n in (10, 20, 40)]
    costs = Costs(plan, RATES)
    assert costs.prepare_s(plan[0]) == pytest.approx(10 * CORE / PRODUCTS)  # the first guess
    costs.learn(plan[0], timed(plan[0], 1, {}, elapsed_s=30.1))
    took_s = [costs.predicted(CostKind.TIMING, line) for line in plan]
    assert took_s == pytest.approx([30, 60, 120], rel=0.01), "its first iteration takes 0.1 s"


def test_a_step_is_not_predicted_from_passes_nor_passes_from_steps():
    passes, step = planned("slow", 128, 10**9), decoding(128, 10**9)
    assert predicted(step, (passes, 5.0)) == predicted(step)
    assert predicted(passes, (step, 5.0)) == predicted(passes)


def test_the_nearest_cases_that_were_timed_predict():
    """The same series at other lengths, its other forms, then all others."""
    case = planned("slow", 256, 2 * 10**9)  # guessed to take 2 s
    others = (planned("fast", 256, 10**9), 3.0), (planned("fast", 128, 10**9), 9.0)
    form = planned("slow", 256, 10**9, form="sdpa"), 4.0
    far, near = (planned("slow", 1024, 10**9), 6.0), (planned("slow", 128, 10**9), 7.0)
    known = [*others, form, far, near]
    expected = [2.0, 18.0, 6.0, 8.0, 12.0, 14.0]
    order = [[], others[1:], others, [*others, form], known[:4], known]
    assert [predicted(case, *some) for some in order] == pytest.approx(expected, rel=1e-3)


def test_a_peak_that_was_not_measured_is_predicted_from_its_neighbours():
    whole = sweeps.sweep(("fastformer",), modes=(Mode.INFERENCE,), lengths=(128, 512, 2048))
    middle = whole.plan[1].case.key
    runs = tuple(run for run in whole.runs if run.case != middle or run.part is Part.TIME)
    found = summary(replace(whole, runs=runs)).set_index("seq_len")
    truth = summary(whole).set_index("seq_len")["allocated_peak_bytes"]
    assert found.loc[512, "predicted_bytes"] == pytest.approx(truth[512])


def test_without_measurements_the_first_guess_remains():
    whole = replace(sweeps.sweep(lengths=(128, 512)), runs=())
    found, costs = summary(whole), Costs(whole.plan, peak_rates(whole.sessions[0]))
    assert list(found["predicted_s"]) == [costs.first_guess(line) for line in whole.plan]
    assert list(found["predicted_bytes"]) == [line.predicted_bytes for line in whole.plan]


def test_training_is_guessed_to_take_three_times_as_long_as_inference():
    modes = Mode.INFERENCE, Mode.TRAINING
    plan = [replace(planned("a", 128, 10**9, mode=mode), moved_bytes=10**6) for mode in modes]
    costs = Costs(plan, rates=(1e9, 1e9))
    by_mode = {p.case.workload.mode: costs.iteration_s(p) for p in plan}
    assert by_mode[Mode.INFERENCE] == pytest.approx(1.35 + 0.0055 + 0.0001)
    assert by_mode[Mode.TRAINING] == pytest.approx(3 * by_mode[Mode.INFERENCE])


def undeclared(n, size=4 * GIB, **more):
    """A case of a module without a card, with predictions that nothing justifies."""
    return replace(planned("mine", n, 10**9, size=size, **more), declared=False)


LENGTHS = tuple(2**k for k in range(7, 17))


@pytest.mark.parametrize("growth", [0, 1])
def test_a_module_that_declares_nothing_is_limited_by_nothing_before_it_is_measured(growth):
    """By its assumed costs it would fit into neither memory nor the limit of a case."""
    plan = [replace(undeclared(n), projection_flops=10**15) for n in LENGTHS]
    machine = Machine(
        lambda case: 0.1 * (case.workload.seq_len / 128) ** growth,
        peak_bytes=lambda case: 1000 * case.workload.tokens,
    )
    sweep(machine, plan, replace(REQUEST, lengths=LENGTHS))
    timed = {run.case for run in machine.stored if run.part is Part.TIME and run.samples}
    assert timed == {p.case.key for p in plan}
    assert not [run.reason for run in machine.stored if run.reason]


def test_an_undeclared_module_is_predicted_by_the_slope_of_its_last_lengths():
    batch = {n: max(1, 8192 // n) for n in LENGTHS}

    def line(n):
        case = undeclared(n).case
        workload = replace(case.workload, batch=batch[n])
        return replace(undeclared(n), case=replace(case, workload=workload))

    plan = [line(n) for n in LENGTHS]
    costs = Costs(plan)
    took = {n: batch[n] * 1e-9 * n**1.5 for n in LENGTHS}
    for known in plan[:5]:
        unknown = {costs.is_unknown(plan[-1], what) for what in (CostKind.SECONDS, CostKind.BYTES)}
        assert unknown == {plan.index(known) < 3}
        n = known.case.workload.seq_len
        costs.take(CostKind.SECONDS, known, took[n])
        weighed = {"allocated_peak_bytes": 2000 * took[n]}
        costs.learn(known, replace(timed(known, 0, weighed), part=Part.MEMORY))
    for far in plan:
        assert costs.iteration_s(far) == pytest.approx(took[far.case.workload.seq_len])
        assert costs.predicted(CostKind.BYTES, far) == pytest.approx(
            2000 * took[far.case.workload.seq_len]
        )


def test_what_is_unknown_of_an_undeclared_module_is_no_prediction_in_a_report():
    plan = [undeclared(n) for n in LENGTHS[:5]]
    runs = [timed(line, 2, {}) for line in plan[:2]]
    whole = replace(sweeps.sweep(("mine",)), plan=tuple(plan), runs=tuple(runs))
    assert summary(whole)[["predicted_s", "predicted_bytes"]].isna().all(axis=None)
    whole = replace(whole, runs=(*runs, timed(plan[2], 2, {})))
    found = summary(whole)["predicted_s"]
    assert math.isnan(found[0]), "it was measured, not predicted"
    assert found[4] == pytest.approx(0.4)


def test_what_is_left_out_of_an_undeclared_module_names_no_costs():
    machine = Machine(lambda case: 10.0 if case.mechanism == "slow" else 0.1)
    plan = [planned("slow", 128, 10**10), replace(undeclared(256), projection_flops=10**13)]
    sweep(machine, plan, replace(REQUEST, lengths=(128, 256), budget_s=70.0))
    (run,) = (run for run in machine.stored if run.case == plan[1].case.key)
    assert run.outcome is Outcome.SKIPPED
    assert "its costs are unknown" in run.reason
