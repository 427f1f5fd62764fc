"""What cases are predicted to cost, during a sweep and in its report."""

import math
from dataclasses import replace

import pytest

from attnbench.analysis.summary import summary
from attnbench.records import Mode, Outcome, Part
from attnbench.run.costs import Cost, Costs, peak_rates
from tests.run.machine import Machine
from tests.run.sessions import GIB, REQUEST, planned, timed
from tests.run.sessions import sweep as sweep_plan
from tests.sweeps import sweep


def test_a_peak_that_was_not_measured_is_predicted_from_its_neighbours():
    whole = sweep(("fastformer",), modes=(Mode.INFERENCE,), lengths=(128, 512, 2048))
    middle = whole.plan[1].case.key
    runs = tuple(run for run in whole.runs if run.case != middle or run.part is Part.TIME)
    found = summary(replace(whole, runs=runs)).set_index("seq_len")
    truth = summary(whole).set_index("seq_len")["allocated_peak_bytes"]
    assert found.loc[512, "predicted_bytes"] == pytest.approx(truth[512])


def test_without_measurements_the_first_guess_remains():
    whole = replace(sweep(lengths=(128, 512)), runs=())
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
    sweep_plan(machine, plan, replace(REQUEST, lengths=LENGTHS))
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
        unknown = {costs.is_unknown(plan[-1], what) for what in (Cost.SECONDS, Cost.BYTES)}
        assert unknown == {plan.index(known) < 3}
        n = known.case.workload.seq_len
        costs.take(Cost.SECONDS, known, took[n])
        weighed = {"allocated_peak_bytes": 2000 * took[n]}
        costs.learn(known, replace(timed(known, 0, weighed), part=Part.MEMORY))
    for far in plan:
        assert costs.iteration_s(far) == pytest.approx(took[far.case.workload.seq_len])
        assert costs.predicted(Cost.BYTES, far) == pytest.approx(
            2000 * took[far.case.workload.seq_len]
        )


def test_what_is_unknown_of_an_undeclared_module_is_no_prediction_in_a_report():
    plan = [undeclared(n) for n in LENGTHS[:5]]
    runs = [timed(line, 2, {}) for line in plan[:2]]
    whole = replace(sweep(("mine",)), plan=tuple(plan), runs=tuple(runs))
    assert summary(whole)[["predicted_s", "predicted_bytes"]].isna().all(axis=None)
    whole = replace(whole, runs=(*runs, timed(plan[2], 2, {})))
    found = summary(whole)["predicted_s"]
    assert math.isnan(found[0]), "it was measured, not predicted"
    assert found[4] == pytest.approx(0.4)


def test_what_is_left_out_of_an_undeclared_module_names_no_costs():
    machine = Machine(lambda case: 10.0 if case.mechanism == "slow" else 0.1)
    plan = [planned("slow", 128, 10**10), replace(undeclared(256), projection_flops=10**13)]
    sweep_plan(machine, plan, replace(REQUEST, lengths=(128, 256), budget_s=70.0))
    (run,) = (run for run in machine.stored if run.case == plan[1].case.key)
    assert run.outcome is Outcome.SKIPPED
    assert "its costs are unknown" in run.reason
