"""What a block shows as soon as series of it have been timed."""

import math
from collections.abc import Iterable, Mapping
from statistics import fmean, median
from typing import NamedTuple

from attnbench.modes import find
from attnbench.records import Block, Run
from attnbench.statistics.laps import Laps, by_pair, log_ratio


class Timed(NamedTuple):
    """A series of a block, with the log of its time over that of the fastest, if that is known."""

    series: str
    seconds: float  # of a batch of the sweep's tokens, or of a step
    log_ratio: float | None


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
    laps = {name: {run.round: by_pair(run.samples) for run in runs[name]} for name in (first, *new)}
    found = []
    for name in sorted(laps, key=lambda name: times[name]):
        log = _ratio(laps[name], laps[first])
        deeper = math.log(depths.get(name, 1) / depths.get(first, 1))
        found.append(Timed(name, times[name], None if log is None else log - deeper))
    return found


def _seconds(runs: tuple[Run, ...]) -> float:
    return median(sample.seconds for run in runs for sample in run.samples)


def _ratio(laps: Mapping[int, Laps], first: Mapping[int, Laps]) -> float | None:
    """The mean log ratio over the rounds in which both took turns; None if there are none."""
    logs = [log_ratio(laps[r], first[r]) for r in laps.keys() & first.keys()]
    known = [log for log in logs if log is not None]
    return fmean(known) if known else None
