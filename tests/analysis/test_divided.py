"""Intervals of ratios in a divided sweep, in which shards have processes of their own."""

from itertools import combinations

import numpy as np
import pytest

from attnbench.fleet import split
from attnbench.fleet.split import BlockRound
from attnbench.records import PASSES, Origin, Outcome, Part, Run, Sample, Shard
from attnbench.statistics.estimate import half_widths
from attnbench.statistics.ratios import means, numbered, processes

ROUNDS = 3
SAMPLE = Sample(1, 1.0, 1.0, None, 1.0, 0.0, 0.0, 0)


def runs(blocks, shards):
    """One case in each block, its rounds where a split puts them; one session if `shards` is 1."""
    units = [BlockRound(b, r, 1 + b[1] ** 0.5 + (r == 0)) for b in blocks for r in range(ROUNDS)]
    return [
        Run(
            case=str(unit.block),
            part=Part.TIME,
            round=unit.round,
            outcome=Outcome.OK,
            samples=(SAMPLE,),
            origin=Origin(shard=Shard(number, shards) if shards > 1 else None),
        )
        for number, part in enumerate(split.split(units, shards), 1)
        for unit in part
    ]


def served(count, shards):
    """The processes of each round of each block, the blocks numbered from 0."""
    blocks = [(mode, 2**n) for mode in PASSES for n in range(count // 2)]
    found = processes(runs(blocks, shards), {str(block): block for block in blocks})
    return {(blocks.index(block), r): (shard, turn) for (block, r), (shard, turn) in found.items()}


def test_rounds_of_an_undivided_sweep_have_their_own_processes():
    assert served(8, 1) == {(k, r): (None, r) for k in range(8) for r in range(ROUNDS)}


def test_a_shard_with_one_round_of_each_block_has_one_set_of_processes():
    found = served(8, 3)
    assert {turn for _, turn in found.values()} == {0}
    for k in range(8):
        assert len({found[k, r] for r in range(ROUNDS)}) == ROUNDS


def test_a_shard_with_two_rounds_of_a_block_has_two():
    found = served(8, 2)
    assert {turn for _, turn in found.values()} == {0, 1}
    assert len(set(found.values())) == 4


@pytest.mark.parametrize(("series", "blocks", "shards"), [(2, 8, 3), (4, 20, 2), (4, 20, 3)])
def test_intervals_contain_the_truth(series, blocks, shards):
    """Processes differ by twice the noise; blocks taken apart by round contain it in 90 to 92 %."""
    rng = np.random.default_rng(0)
    found = served(blocks, shards)
    sets, pairs = numbered(found.values()), list(combinations(range(series), 2))
    held = []
    for _ in range(120):
        process = 0.01 * rng.standard_normal((series, len(sets)))
        logs = np.full((blocks, len(pairs), len(sets)), np.nan)
        for (k, _), own in found.items():
            seconds = process[:, sets[own]] + 0.005 * rng.standard_normal(series)
            logs[k, :, sets[own]] = [seconds[a] - seconds[b] for a, b in pairs]
        log, se, df, _ = (values.ravel() for values in means(logs, pairs))
        held += [np.abs(log) <= half_widths(se, df)]
    assert 0.935 < np.mean(held) < 0.985
