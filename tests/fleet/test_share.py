"""What is measured of a plan by one that has a share of it."""

from dataclasses import replace

import pytest

from attnbench.fleet import split
from attnbench.records import Cause, Outcome, Part, Shard
from tests.run.machine import Machine
from tests.run.sessions import PLAN, REQUEST, outcomes, planned, slow_is, sweep

GIB = 1 << 30


def measured(shard, plan=PLAN, request=REQUEST, machine=None):
    machine = machine or Machine()
    sweep(machine, split.share(plan, request, shard), request, GIB)
    return machine


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_all_shards_together_measure_what_one_sweep_does(shards):
    found = [outcomes(measured(Shard(i, shards))) for i in range(1, shards + 1)]
    assert sum(map(len, found)) == len(PLAN) * (REQUEST.rounds + 1)
    assert {key for part in found for key in part} == {
        (line.case.key, part, r)
        for line in PLAN
        for part, rounds in ((Part.TIME, REQUEST.rounds), (Part.MEMORY, 1))
        for r in range(rounds)
    }


def test_what_cannot_run_is_stored_once():
    large = planned("large", 128, 10**8, size=2 * GIB)
    plan = (*PLAN, planned("none", 128, 1, refusal="no causal form"), large)
    stored = [run for i in (1, 2, 3) for run in measured(Shard(i, 3), plan).stored]
    assert [(run.round, run.outcome, run.cause) for run in stored if not run.elapsed_s] == [
        (0, Outcome.UNSUPPORTED, None),
        (0, Outcome.SKIPPED, Cause.MEMORY_LIMIT),
    ]


def test_the_budget_is_that_of_the_shard():
    request = replace(REQUEST, budget_s=8.0, rounds=12)
    for i in (1, 2):
        machine = measured(Shard(i, 2), request=request, machine=Machine(slow_is(0.2)))
        assert 4.0 < machine.now - 50.0 < 12.0
        assert {run.part for run in machine.stored} == {Part.TIME, Part.MEMORY}
