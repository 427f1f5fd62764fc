"""How a plan is divided: exactly, alike everywhere, in little more than the shortest time."""

from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.errors import UsageError
from attnbench.fleet import split
from attnbench.records import Mode, Shard
from tests import sweeps
from tests.cli.commands import environment, python

SWEEP = sweeps.sweep(("fastformer", "transformer", "linformer"))
COSTS_S = split.costs_s(SWEEP.plan, SWEEP.request)


@given(st.data(), st.lists(st.floats(0, 1e4), min_size=1, max_size=12))
def test_every_block_is_in_one_shard_and_none_is_empty(data, costs):
    costs_s = {(data.draw(st.sampled_from(Mode)), n): cost for n, cost in enumerate(costs, 1)}
    shards = data.draw(st.integers(1, len(costs)))
    parts = split.split(costs_s, shards)
    assert parts == split.split(dict(reversed(costs_s.items())), shards)
    assert len(parts) == shards
    assert all(parts)
    assert Counter(chain(*parts)) == Counter(list(costs_s))


@pytest.mark.parametrize("shards", [2, 3, 4, 6])
def test_a_real_plan_is_divided_evenly(shards):
    took_s = [sum(map(COSTS_S.get, part)) for part in split.split(COSTS_S, shards)]
    assert max(took_s) <= max(4 / 3 * sum(COSTS_S.values()) / shards, *COSTS_S.values())
    slowest_s, alone_s = (split.makespan_s(SWEEP.plan, SWEEP.request, n) for n in (shards, 1))
    assert alone_s / shards < slowest_s < 1.01 * alone_s


def test_neither_limits_nor_what_a_node_lacks_change_the_division():
    other = replace(SWEEP.request, case_timeout_s=1e-6, rounds=7, budget_s=1.0)
    refused = [replace(planned, refusal="needs a compiler") for planned in SWEEP.plan]
    assert split.costs_s(refused, other) == COSTS_S


def test_more_shards_than_blocks_are_refused():
    with pytest.raises(UsageError, match=r"21 shards: the plan has only 20 blocks .* at most 20"):
        split.share(SWEEP.plan, SWEEP.request, Shard(1, 21))


def test_another_process_divides_alike():
    code = "from tests.fleet.test_split import *; print(split.split(COSTS_S, 5))"
    root = Path(__file__).parents[2]
    done = python("-c", code, cwd=root, env=environment(PYTHONHASHSEED="1"))
    assert done.stdout.strip() == str(split.split(COSTS_S, 5))
