"""How often the confidence interval contains 1 when a mechanism is raced against itself.

    python -m tests.benchmarks.again > reports/again.md

Fastformer and Linformer take part under two names each (`twice.py`) in sweeps by the engine of
`attnbench sweep`, over lengths and modes, while a busy loop occupies one core; sweeps of levels
`attention` and `model` alternate until there are enough ratios. Only ratios of a mechanism to
itself count: every difference is an error, and 95 % of the intervals should contain 1.

The ratios of one sweep share the variation between processes, which the standard error takes into
account. D = 64, 4 heads, 2,048 tokens per batch, 3 rounds.
"""

import argparse
import math
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median, stdev

from attnbench.analysis.curves import half_widths, series_names
from attnbench.analysis.ratios import Ratios
from attnbench.api.servers import own_server
from attnbench.device import find
from attnbench.measure.environment import memory_bytes
from attnbench.records import PASSES, Level, Mode, Part, Request, Sweep
from attnbench.run.session import Session
from attnbench.workloads.asked import Asked
from attnbench.workloads.reading import plan
from attnbench.workloads.requests import settings
from tests.benchmarks.gate import Neighbour
from tests.benchmarks.header import begin

FILE = Path(__file__).with_name("twice.py").relative_to(Path.cwd())
NAMES = ("FASTFORMER", "LINFORMER")
LENGTHS = (128, 256, 512, 1024)
LEVELS = (Level.ATTENTION, Level.MODEL)


@dataclass(frozen=True, kw_only=True)
class Same:
    """The ratio of a mechanism to itself in one block of one sweep."""

    sweep: int
    level: Level
    mode: Mode
    name: str
    log: float
    half: float  # half-width of the 95 % confidence interval of the logarithm

    @property
    def held(self):
        return abs(self.log) <= self.half


class Runs(list):
    """Keeps the runs of a session in memory."""

    def append(self, *records):
        self.extend(records)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ratios", type=int, default=200, help="Minimum number of ratios.")
    asked = parser.parse_args()
    found, loads = [], []
    with Neighbour():
        while len(found) < asked.ratios:
            number = len({each.sweep for each in found})
            found += swept(number, LEVELS[number % len(LEVELS)])
            loads.append(os.getloadavg()[0])
            print(f"{len(found)} of {asked.ratios} ratios", file=sys.stderr, flush=True)
    command = "python -m tests.benchmarks.again"
    begin("A mechanism against itself", __doc__, command, "torch")
    print("| level | mode | mechanism | ratios | contain 1 | median half-width |")
    print("|---|---|---|---:|---:|---:|")
    for level in LEVELS:
        for mode in PASSES:
            for name in NAMES:
                which = (level, mode, name)
                rows = [each for each in found if (each.level, each.mode, each.name) == which]
                print(f"| {level} | {mode} | {name.lower()} | {cells(rows)} |")
    print(f"| all | | | {cells(found)} |")
    print(f"\n{summed(found)} The load average was {min(loads):.1f} to {max(loads):.1f}.")


def swept(number, level):
    """Every ratio of a mechanism to itself in one sweep."""
    asked = request(number, level)
    with own_server(asked.settings.threads, asked.settings.seed) as server:
        planned, runs = plan(asked, server), Runs()
        Session(
            request=asked,
            plan=planned.cases,
            store=runs,
            start=lambda series, *, weighs=False: server.worker(weighs=weighs),
            memory_bytes=memory_bytes(),
            # memory is not needed here
            finished=frozenset((line.case.key, Part.MEMORY, 0) for line in planned.cases),
        ).run()
    ratios = Ratios(
        Sweep(
            name="again",
            request=asked,
            sessions=(),
            cards=planned.cards,
            plan=planned.cases,
            runs=tuple(runs),
            finished=True,
        )
    )
    names = series_names(planned.cases)
    series = {p.case.mechanism.rpartition(":")[2]: names[p.case.key] for p in planned.cases}
    found = []
    for mode in asked.modes:
        for name in NAMES:
            for seq_len in asked.lengths:
                ratio = ratios.ratio(series[name], series[f"{name}_AGAIN"], mode, seq_len)
                half = float(half_widths([ratio.se], [ratio.df])[0])
                found.append(
                    Same(sweep=number, level=level, mode=mode, name=name, log=ratio.log, half=half)
                )
    return found


def request(number, level):
    """The request of sweep `number`, which is also its seed."""
    usual = settings(Asked(threads="1", seed=str(number), quick=True), find("cpu"), None)
    return Request(
        models=tuple(f"{FILE}:{name}{again}" for name in NAMES for again in ("", "_AGAIN")),
        lengths=LENGTHS,
        tokens=2048,
        preset="mind-classification",
        level=level,
        modes=PASSES,
        dtype="float32",
        device="cpu",
        width=64,
        heads=4,
        layers=2,
        padding=0.0,
        causal=False,
        rounds=3,
        budget_s=None,
        case_timeout_s=600.0,
        settings=replace(usual, sample_s=0.08, warmup_s=0.05),
    )


def cells(rows):
    """Number of ratios, share of intervals that contain 1, and median half-width."""
    held = f"{sum(each.held for each in rows) / len(rows):.0%}"
    return f"{len(rows)} | {held} | {100 * median(each.half for each in rows):.1f} %"


def summed(found):
    """The share that contains 1, with a standard error over sweeps; median distance from 1."""
    sweeps = sorted({each.sweep for each in found})
    shares = [mean(each.held for each in found if each.sweep == sweep) for sweep in sweeps]
    error = stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else math.nan
    off = 100 * median(abs(each.log) for each in found)
    held = sum(each.held for each in found)
    return (
        f"{held} of {len(found)} intervals contain 1: {held / len(found):.1%} ± {error:.1%} over"
        f" {len(sweeps)} sweeps. The median ratio is {off:.1f} % away from 1."
    )


if __name__ == "__main__":
    main()
