"""What a block shows as soon as series of it have been timed."""

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from attnbench.analysis.statistics.laps import by_pair, sweep_slope
from attnbench.analysis.statistics.ratios import Decided, decided_so_far
from attnbench.records import Block, Run, modes, notes


class BlockResults:
    """What blocks of an unfinished sweep show: first times, and comparisons once decided."""

    def __init__(self, depths: Mapping[str, int], batch_tokens: int | None) -> None:
        """The results of series with these layers of stacks, whose times are those of a layer."""
        self.depths = depths
        self.batch_tokens = batch_tokens
        self.runs: dict[Block, dict[str, tuple[Run, ...]]] = {}
        self.told: set[tuple[Block, str, str]] = set()
        self.suspects: set[str] = set()  # by what any of their runs showed

    def first_times(
        self, block: Block, series: Iterable[str], runs: Mapping[str, tuple[Run, ...]]
    ) -> list["TimedSeries"]:
        """`timed` of a visit, without series that are suspect in any block so far."""
        self._suspect(runs)
        ranked = {name: own for name, own in runs.items() if name not in self.suspects}
        return timed(block, series, ranked, self.batch_tokens, self.depths)

    def decided(
        self, block: Block, runs: Mapping[str, tuple[Run, ...]]
    ) -> list[Decided[str, Block]]:
        """What the runs of a block decide beside those of others, the closest ratio first.

        A series is compared from its second round on. Those that are suspect in any block so far,
        and times that include a GPU's launches, are left out.
        """
        self._suspect(runs)
        self.runs[block] = {
            name: own
            for name, own in runs.items()
            if len(own) > 1 and not any(notes.Note.LAUNCHES in run.notes for run in own)
        }
        compared = {
            at: {name: own for name, own in names.items() if name not in self.suspects}
            for at, names in self.runs.items()
        }
        blocks = {
            run.case: at for at, names in compared.items() for own in names.values() for run in own
        }
        every = [run for names in compared.values() for own in names.values() for run in own]
        slope = sweep_slope(every, blocks)
        laps = {
            (name, at): {
                run.round: {
                    pair: seconds / self.depths.get(name, 1)
                    for pair, seconds in by_pair(run.samples, slope).items()
                }
                for run in own
            }
            for at, names in compared.items()
            for name, own in names.items()
        }
        new = [
            each
            for each in decided_so_far(laps)
            if each.block == block and (block, each.fast, each.slow) not in self.told
        ]
        self.told |= {(block, each.fast, each.slow) for each in new}
        return sorted(new, key=lambda each: each.low)

    def _suspect(self, runs: Mapping[str, tuple[Run, ...]]) -> None:
        """Remember the series of which a run showed that they do not do their work."""
        self.suspects |= {
            name
            for name, own in runs.items()
            if any(notes.Note.SUSPECT in run.notes for run in own)
        }


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
        name
        for name, of_series in runs.items()
        if any(notes.Note.SUSPECT in r.notes for r in of_series)
    }
    runs = {name: of_series for name, of_series in runs.items() if name not in suspect}
    new = [name for name in series if len(runs.get(name, ())) == 1]
    if not new:
        return []
    tokens = block.batch * block.seq_len
    scale = 1.0 if modes.find(block.mode).steps else (batch_tokens or tokens) / tokens
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
        name
        for name, of_series in runs.items()
        if any(notes.Note.LAUNCHES in r.notes for r in of_series)
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
