"""Intervals of ratios in a divided sweep, in which shards have processes of their own."""

from itertools import combinations

import numpy as np
import pytest

from attnbench.fleet import split
from attnbench.records import PASSES, Origin, Outcome, Part, Run, Sample, Shard
from attnbench.statistics.estimate import half_widths
from attnbench.statistics.ratios import means, numbered, processes

ROUNDS = 3
SAMPLE = Sample(1, 1.0, 1.0, None, 1.0, 0.0, 0.0, 0)


def served(count, shards):
    """The processes of each round of each block, the blocks numbered from 0."""
    blocks = [(mode, 2**n) for mode in PASSES for n in range(count // 2)]
    costs_s = {block: 1 + block[1] ** 0.5 for block in blocks}
    ran = {"part": Part.TIME, "outcome": Outcome.OK, "samples": (SAMPLE,)}
    runs = [
        Run(case=str(block), round=r, origin=Origin(shard=Shard(number, shards)), **ran)
        for number, part in enumerate(split.split(costs_s, shards), 1)
        for block in part
        for r in range(ROUNDS)
    ]
    found = processes(runs, {str(block): block for block in blocks})
    return {(blocks.index(block), r): own for (block, r), own in found.items()}


def test_each_shard_has_processes_of_its_own():
    found = served(8, 3)
    assert len(set(found.values())) == 3 * ROUNDS
    for k in range(8):
        assert {found[k, r] for r in range(ROUNDS)} == {(found[k, 0][0], r) for r in range(ROUNDS)}


@pytest.mark.parametrize(("series", "blocks", "shards"), [(2, 8, 3), (4, 20, 2), (4, 20, 3)])
def test_intervals_contain_the_truth(series, blocks, shards):
    """Processes differ by twice the noise."""
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
