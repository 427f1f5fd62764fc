"""What is measured of a plan by one that has a share of it."""

from dataclasses import replace

import pytest

from attnbench.fleet import split
from attnbench.records import Cause, Outcome, Part, Shard
from tests.run.machine import Machine
from tests.run.sessions import PLAN, REQUEST, outcomes, planned, slow_is, sweep

GIB = 1 << 30


def measured(shard, plan=PLAN, request=REQUEST, machine=None, memory=GIB):
    machine = machine or Machine()
    share = split.share(plan, request, shard)
    sweep(machine, plan, request, memory, share=share, name=str(shard))
    return machine, share


@pytest.mark.parametrize("shards", [1, 2, 3, 5, 9])
def test_all_shards_together_measure_what_one_sweep_does(shards):
    found = [outcomes(measured(Shard(i, shards))[0]) for i in range(1, shards + 1)]
    assert sum(map(len, found)) == len(PLAN) * (REQUEST.rounds + 1)
    assert {key for part in found for key in part} == {
        (line.case.key, part, r)
        for line in PLAN
        for part, rounds in ((Part.TIME, REQUEST.rounds), (Part.MEMORY, 1))
        for r in range(rounds)
    }


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_the_cases_of_a_unit_take_turns_in_one_shard(shards):
    for i in range(1, shards + 1):
        machine, share = measured(Shard(i, shards))
        timed = {key: run for key, run in outcomes(machine).items() if key[1] is Part.TIME}
        for block, rounds in share.items():
            keys = [line.case.key for line in PLAN if line.block == block]
            for r in rounds:
                laps = [[s.lap for s in timed[key, Part.TIME, r].samples] for key in keys]
                assert len({max(own) for own in laps}) == 1
        assert len(timed) == 2 * sum(map(len, share.values()))


def test_shards_take_turns_in_different_orders():
    plan = tuple(planned(name, 128, 10**8) for name in "abcdef")
    orders = []
    for i in (1, 2, 3):
        machine, _ = measured(Shard(i, 3), plan)
        orders.append([case.mechanism for do, case, _ in machine.asked if do == "lap"])
    assert len({tuple(order) for order in orders}) == 3


def test_what_cannot_run_is_stored_by_the_shard_of_its_first_round():
    plan = (*PLAN, planned("none", 128, 1, refusal="no causal form"))
    stored = [run for i in (1, 2, 3) for run in measured(Shard(i, 3), plan)[0].stored]
    (refused,) = [run for run in stored if run.outcome is Outcome.UNSUPPORTED]
    assert (refused.round, refused.reason) == (0, "no causal form")


def test_what_is_too_large_is_left_out_by_every_shard_and_stored_once():
    plan = (*PLAN, planned("large", 128, 10**8, size=2 * GIB))
    machines = [measured(Shard(i, 3), plan)[0] for i in (1, 2, 3)]
    large = [run for m in machines for run in m.stored if '"large"' in run.case]
    assert [(run.outcome, run.cause) for run in large] == [(Outcome.SKIPPED, Cause.MEMORY_LIMIT)]


def test_a_failure_is_stored_under_the_round_in_which_it_happened():
    machine = Machine(
        fate=lambda case, do: {"outcome": "oom", "reason": "none left"} if do == "build" else None
    )
    machine, share = measured(Shard(3, 3), machine=machine)
    assert {run.round for run in machine.stored} <= {r for own in share.values() for r in own}
    assert {run.outcome for run in machine.stored if run.elapsed_s} == {Outcome.OOM}


def test_the_budget_is_that_of_the_shard():
    request = replace(REQUEST, budget_s=8.0, rounds=12)
    for i in (1, 2):
        machine, _ = measured(Shard(i, 2), request=request, machine=Machine(slow_is(0.2)))
        assert 4.0 < machine.now - 50.0 < 12.0
        assert {run.part for run in machine.stored} == {Part.TIME, Part.MEMORY}
