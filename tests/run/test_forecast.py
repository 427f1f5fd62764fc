"""A forecast is the sweep's own session, on a machine where predictions are exact."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.records import Cause, Outcome, Part
from attnbench.run import schedule
from attnbench.run.forecast import LOADING_S, PEAKS_S, forecast
from attnbench.run.forecast import Machine as ExactMachine
from tests.run.machine import Machine
from tests.run.sessions import GIB, PLAN, REQUEST, planned, sweep

REFUSED = planned("odd", 128, 10**8, refusal="it cannot")
LARGE = planned("large", 256, 10**8, size=2 * GIB)
LONG = planned("long", 128, 10**12)
MIXED = (*PLAN, REFUSED, LARGE, LONG)


def test_it_decides_as_a_sweep_does_and_says_why():
    request = replace(REQUEST, case_timeout_s=100.0)
    predicted = {p.case: p.predicted_s for p in MIXED}
    machine = Machine(seconds=predicted.__getitem__)
    sweep(machine, MIXED, request)
    timed = {(run.case, run.round) for run in machine.stored if run.samples}
    found = forecast(request, MIXED, GIB)
    assert {(key, r) for key, rounds in found.rounds.items() for r in range(rounds)} == timed
    others = {run.case: run for run in machine.stored if run.case not in found.rounds}
    assert found.left_out == others
    assert found.left_out[REFUSED.case.key].outcome is Outcome.UNSUPPORTED
    assert found.left_out[LARGE.case.key].cause is Cause.MEMORY_LIMIT
    assert found.left_out[LONG.case.key].cause is Cause.CASE_TIMEOUT
    assert LARGE.case.key in forecast(request, MIXED, None).rounds


def test_without_a_budget_the_total_is_that_of_all_visits_and_measurements_of_memory():
    found = forecast(REQUEST, PLAN, GIB)
    visits_s = 3 * sum(schedule.visit_s(p.predicted_s, REQUEST.settings) for p in PLAN)
    memory_s = sum(schedule.memory_s(p.predicted_s) for p in PLAN)
    assert found.total_s == pytest.approx(LOADING_S + PEAKS_S + visits_s + memory_s)
    assert set(found.rounds.values()) == {3}


def test_what_torch_compiles_takes_longer():
    plain = forecast(REQUEST, PLAN, GIB)
    compiled = forecast(REQUEST, [replace(p, compiles=True) for p in PLAN], GIB)
    processes = 3 * len(PLAN) + len(PLAN)
    assert compiled.total_s - plain.total_s > processes * schedule.COMPILE_S


def test_a_prompt_takes_its_time_in_every_process():
    plain = forecast(REQUEST, PLAN, GIB)
    decoding = [replace(p, prefill_s=10 * p.predicted_s) for p in PLAN]
    prefills_s = sum(10 * p.predicted_s for p in PLAN)
    found = forecast(REQUEST, decoding, GIB)
    assert found.total_s - plain.total_s == pytest.approx((3 + 1) * prefills_s)


def test_a_shard_takes_its_share():
    share = {PLAN[0].block: (0, 2), PLAN[1].block: (1,)}
    found = forecast(REQUEST, PLAN, GIB, share)
    blocks = {p.case.key: p.block for p in PLAN}
    assert {blocks[key]: rounds for key, rounds in found.rounds.items()} == {
        PLAN[0].block: 2,
        PLAN[1].block: 1,
    }


def test_a_process_is_ended_at_its_time_limit_and_takes_no_longer():
    machine = ExactMachine(PLAN, REQUEST)
    worker = machine.start("slow:eager")
    answer = worker.ask(1.0, "build", **asdict(PLAN[0].case))  # takes 1.15 s
    assert answer == {"outcome": "timeout", "reason": "no answer after 1 s"}
    assert machine.now == 1.0


@given(
    st.floats(1, 500),
    st.integers(1, 6),
    st.lists(st.integers(10**7, 10**10), min_size=1, max_size=4),
)
def test_every_case_is_timed_or_left_out_and_the_budget_holds(budget_s, rounds, flops):
    lengths = (128, 256, 512)
    plan = [planned(f"m{i}", n, each * n // 128) for i, each in enumerate(flops) for n in lengths]
    request = replace(REQUEST, budget_s=budget_s, rounds=rounds)
    found = forecast(request, plan, GIB)
    assert found.rounds.keys() | found.left_out.keys() == {p.case.key for p in plan}
    assert not found.rounds.keys() & found.left_out.keys()
    assert {run.cause for run in found.left_out.values()} <= {Cause.BUDGET}
    assert all(run.part is Part.TIME for run in found.left_out.values())
    # a block is admitted by what it takes; the last pair of laps may exceed the budget by rounding
    assert found.total_s <= LOADING_S + budget_s * 1.05 + 2
