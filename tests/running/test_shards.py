"""How a plan is divided: exactly, alike everywhere, in little more than the shortest time."""

from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.errors import UsageError
from attnbench.records import Cause, Mode, Outcome, Part, Shard
from attnbench.running.foresee import seconds_of_blocks
from attnbench.running.shards import cases_of_shard, makespan_s, split
from tests import sweeps
from tests.commands.commands import environment, python
from tests.doubles.machine import Machine
from tests.running.sessions import PLAN, REQUEST, outcomes, planned, slow_is, sweep

SWEEP = sweeps.sweep(("fastformer", "transformer", "linformer"))
COSTS_S = seconds_of_blocks(SWEEP.plan, SWEEP.request)


@given(st.data(), st.lists(st.floats(0, 1e4), min_size=1, max_size=12))
def test_every_block_is_in_one_shard_and_none_is_empty(data, costs):
    costs_s = {(data.draw(st.sampled_from(Mode)), n): cost for n, cost in enumerate(costs, 1)}
    shards = data.draw(st.integers(1, len(costs)))
    parts = split(costs_s, shards)
    assert parts == split(dict(reversed(costs_s.items())), shards)
    assert len(parts) == shards
    assert all(parts)
    assert Counter(chain(*parts)) == Counter(list(costs_s))


@pytest.mark.parametrize("shards", [2, 3, 4, 6])
def test_a_real_plan_is_divided_evenly(shards):
    took_s = [sum(map(COSTS_S.get, part)) for part in split(COSTS_S, shards)]
    assert max(took_s) <= max(4 / 3 * sum(COSTS_S.values()) / shards, *COSTS_S.values())
    slowest_s, alone_s = (makespan_s(SWEEP.plan, SWEEP.request, n) for n in (shards, 1))
    assert alone_s / shards < slowest_s < 1.01 * alone_s


def test_neither_limits_nor_what_a_node_lacks_change_the_division():
    other = replace(SWEEP.request, case_timeout_s=1e-6, rounds=7, budget_s=1.0)
    refused = [replace(planned, refusal="needs a compiler") for planned in SWEEP.plan]
    assert seconds_of_blocks(refused, other) == COSTS_S


def test_more_shards_than_blocks_are_refused():
    with pytest.raises(UsageError, match=r"21 shards: the plan has only 20 blocks .* at most 20"):
        cases_of_shard(SWEEP.plan, SWEEP.request, Shard(1, 21))


def test_another_process_divides_alike():
    code = "from tests.running.test_shards import *; print(split(COSTS_S, 5))"
    root = Path(__file__).parents[2]
    done = python("-c", code, cwd=root, env=environment(PYTHONHASHSEED="1"))
    assert done.stdout.strip() == str(split(COSTS_S, 5))


GIB = 1 << 30


def measured(shard, plan=PLAN, request=REQUEST, machine=None):
    machine = machine or Machine()
    sweep(machine, cases_of_shard(plan, request, shard), request, GIB)
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
