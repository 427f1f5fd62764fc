"""What a block shows as soon as series of it have been timed."""

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from attnbench.analysis.statistics.laps import by_pair
from attnbench.records import Block, Run
from attnbench.records.modes import find
from attnbench.records.notes import Note


class TimedSeries(NamedTuple):
    """A series of a block, with the log of its time over the fastest one's, if that is known."""

    series: str
    seconds: float  # of a batch of the sweep's tokens, or of a step
    log_ratio: float | None  # of the seconds shown, where the two took turns


def timed(
    block: Block,
    series: Iterable[str],
    runs: Mapping[str, tuple[Run, ...]],
    batch_tokens: int | None,
    depths: Mapping[str, int],
) -> list[TimedSeries]:
    """The fastest series of the block so far, and those timed for the first time, fastest first.

    `series` were timed just now, `runs` are those of each series so far. None after a visit that
    only repeated what had been timed before; a series that is suspect here is left out, and a time
    that includes a GPU's launches has no ratio. `depths` are the layers of stacks, whose times are
    those of a layer.
    """
    suspect = {
        name for name, of_series in runs.items() if any(Note.SUSPECT in r.notes for r in of_series)
    }
    runs = {name: of_series for name, of_series in runs.items() if name not in suspect}
    new = [name for name in series if len(runs.get(name, ())) == 1]
    if not new:
        return []
    tokens = block.batch * block.seq_len
    scale = 1.0 if find(block.mode).steps else (batch_tokens or tokens) / tokens
    # the faster lap of each pair, as in ratios
    laps = {
        name: {
            (run.round, pair): s for run in of_series for pair, s in by_pair(run.samples).items()
        }
        for name, of_series in runs.items()
    }
    times = {}
    for name, of_series in runs.items():
        seconds = [*laps[name].values()] or [s.seconds for run in of_series for s in run.samples]
        times[name] = scale * median(seconds) / depths.get(name, 1)
    launched = {
        name for name, of_series in runs.items() if any(Note.LAUNCHES in r.notes for r in of_series)
    }
    first = min(times, key=lambda name: (name in launched, times[name]))
    return [
        TimedSeries(
            name,
            times[name],
            math.log(times[name] / times[first])
            if laps[name].keys() & laps[first] and not launched & {name, first}
            else None,
        )
        for name in sorted(dict.fromkeys((first, *new)), key=lambda name: times[name])
    ]
