"""How a plan is divided: exactly, alike everywhere, in little more than the shortest time."""

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.errors import UsageError
from attnbench.fleet import split
from attnbench.fleet.split import BlockRound
from attnbench.records import Mode
from tests import sweeps
from tests.cli.commands import environment, python

SWEEP = sweeps.sweep(("fastformer", "transformer", "linformer"))


@st.composite
def divisions(draw, most_blocks=12, most_rounds=4, most_shards=8):
    """Units as plans have them, the first round a little longer, and a number of shards."""
    costs = draw(st.lists(st.floats(0, 1e4), min_size=1, max_size=most_blocks))
    rounds = draw(st.integers(1, most_rounds))
    extra = draw(st.floats(0, 10))
    units = [
        BlockRound((draw(st.sampled_from(Mode)), n), r, cost + extra * (r == 0))
        for n, cost in enumerate(costs, 1)
        for r in range(rounds)
    ]
    return units, draw(st.integers(1, min(most_shards, len(units))))


@given(divisions())
def test_every_unit_is_in_one_shard_with_the_rounds_of_a_block_apart(division):
    units, shards = division
    parts = split.split(units, shards)
    assert parts == split.split(units[::-1], shards)
    assert len(parts) == shards
    assert Counter(unit for part in parts for unit in part) == Counter(units)
    rounds = Counter(unit.block for unit in units)
    for part in parts:
        for block, count in Counter(unit.block for unit in part).items():
            assert count <= -(-rounds[block] // shards)


@pytest.mark.parametrize("shards", [2, 3, 4, 6])
def test_a_real_plan_is_divided_evenly(shards):
    longest_s = max(unit.cost_s for unit in split.units(SWEEP.plan, SWEEP.request))
    took_s, alone_s = (split.makespan_s(SWEEP.plan, SWEEP.request, n) for n in (shards, 1))
    assert took_s <= max(4 / 3 * alone_s / shards, longest_s)


def test_shards_hold_whole_blocks_and_memory_goes_with_the_first_round():
    units = split.units(SWEEP.plan, SWEEP.request)
    blocks = {planned.block for planned in SWEEP.plan}
    assert {(unit.block, unit.round) for unit in units} == set(product(blocks, range(3)))
    cost_s = {(unit.block, unit.round): unit.cost_s for unit in units}
    for block in blocks:
        assert cost_s[block, 0] > cost_s[block, 1] == cost_s[block, 2]


def test_what_would_take_too_long_costs_nothing_and_what_is_refused_as_much():
    hasty = replace(SWEEP.request, case_timeout_s=1e-6)
    assert split.makespan_s(SWEEP.plan, hasty, 1) == 0
    refused = [replace(planned, refusal="needs a compiler") for planned in SWEEP.plan]
    assert split.units(refused, SWEEP.request) == split.units(SWEEP.plan, SWEEP.request)


def test_more_shards_than_units_are_refused():
    units = split.units(SWEEP.plan, SWEEP.request)
    with pytest.raises(UsageError, match=r"61 shards: the plan has only 60 units .*fewer shards"):
        split.split(units, 61)
    assert all(split.split(units, 60))


@pytest.mark.parametrize("seed", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_another_process_divides_alike(seed):
    code = (
        "from tests import sweeps; from attnbench.fleet import split;"
        " s = sweeps.sweep(('fastformer', 'transformer', 'linformer'));"
        " print(split.split(split.units(s.plan, s.request), 5))"
    )
    root = Path(__file__).parents[2]
    done = python("-c", code, cwd=root, env=environment(PYTHONHASHSEED=seed))
    here = split.split(split.units(SWEEP.plan, SWEEP.request), 5)
    assert done.stdout.strip() == str(here)
