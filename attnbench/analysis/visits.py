"""What a block shows as soon as series of it have been timed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from attnbench.modes import find
from attnbench.records import Block, Run
from attnbench.statistics.laps import by_pair


class Timed(NamedTuple):
    """A series of a block, with the log of its time over that of the fastest, if that is known."""

    series: str
    seconds: float  # of a batch of the sweep's tokens, or of a step
    log_ratio: float | None  # of the seconds shown, where the two took turns


def timed(
    block: Block,
    series: Iterable[str],
    runs: Mapping[str, tuple[Run, ...]],
    batch_tokens: int | None,
    depths: Mapping[str, int],
) -> list[Timed]:
    """The fastest series of the block so far, and those timed for the first time, fastest first.

    `series` were timed just now, `runs` are those of each series so far. None after a visit that
    only repeated what had been timed before; a series that is suspect here is left out. `depths`
    are the layers of stacks, whose times are those of a layer.
    """
    suspect = {name for name, own in runs.items() if any("suspect" in r.notes for r in own)}
    runs = {name: own for name, own in runs.items() if name not in suspect}
    tokens = block.batch * block.seq_len
    scale = 1.0 if find(block.mode).steps else (batch_tokens or tokens) / tokens
    times = {name: scale * _seconds(own) / depths.get(name, 1) for name, own in runs.items()}
    new = [name for name in series if len(runs.get(name, ())) == 1]
    if not new:
        return []
    first = min(times, key=lambda name: times[name])
    pairs = {
        name: {(run.round, pair) for run in runs[name] for pair in by_pair(run.samples)}
        for name in (first, *new)
    }
    return [
        Timed(
            name,
            times[name],
            math.log(times[name] / times[first]) if pairs[name] & pairs[first] else None,
        )
        for name in sorted(pairs, key=lambda name: times[name])
    ]


def _seconds(runs: Sequence[Run]) -> float:
    """The median over pairs of laps of the faster one, as in ratios; of all laps without pairs."""
    pairs = [seconds for run in runs for seconds in by_pair(run.samples).values()]
    return median(pairs or [sample.seconds for run in runs for sample in run.samples])
