"""Whether a sweep divided between two nodes gives the ratios of the same sweep undivided.

    python -m tests.benchmarks.divided > reports/divided.md

Every sweep is measured twice: undivided, and by two shards at once, each on one thread of this host
as if it were a node of its own, whose journals are merged. Times of each pair of series are
compared in every block: the difference of the two log ratios is an error, and 95 % of its
confidence intervals should contain 0.

Differences of one sweep share the variation between processes, which the standard error takes into
account. D = 64, 4 heads, 2,048 tokens per batch, level attention, 3 rounds.
"""

import argparse
import math
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from statistics import mean, median, stdev

from attnbench.analysis.curves import half_widths
from attnbench.analysis.ratios import Ratios
from attnbench.api.measuring import environment
from attnbench.api.servers import own_server
from attnbench.device import find
from attnbench.fleet import split
from attnbench.measure.environment import memory_bytes
from attnbench.records import PASSES, Level, Part, Request, Shard
from attnbench.run.session import Session
from attnbench.store.journal import Journal, load
from attnbench.store.merging import merge
from attnbench.store.schema import EndReason, Start
from attnbench.workloads.asked import Asked
from attnbench.workloads.reading import plan
from attnbench.workloads.requests import settings
from tests.benchmarks.header import begin

MODELS = ("fastformer", "linformer", "transformer:eager")
SHARDS = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=20)
    asked = parser.parse_args()
    found, loads = [], []
    for number in range(asked.sweeps):
        found.append(compared(number))
        loads.append(os.getloadavg()[0])
        held = [abs(d) <= half for sweep in found for d, half in sweep]
        print(f"{number + 1} sweeps: {sum(held)} of {len(held)}", file=sys.stderr, flush=True)
    begin("A divided sweep against itself", __doc__, "python -m tests.benchmarks.divided", "torch")
    print(summed(found, loads))


def compared(number):
    """The differences of all log ratios of one sweep, with the half-widths of their intervals."""
    with tempfile.TemporaryDirectory() as folder:
        whole = load(measured(Path(folder, "whole"), number))
        with ThreadPoolExecutor(SHARDS) as pool:
            shards = [Shard(i, SHARDS) for i in range(1, SHARDS + 1)]
            folders = [Path(folder, f"shard-{shard.number}") for shard in shards]
            parts = list(pool.map(measured, folders, [number] * SHARDS, shards))
        divided = merge(parts, Path(folder, "merged"))
    assert divided.finished
    first, second = Ratios(whole), Ratios(divided)
    rows = []
    for mode, seq_len in first.blocks:
        for a, b in combinations(first.series, 2):
            x, y = (ratios.ratio(a, b, mode, seq_len) for ratios in (first, second))
            error, df = math.hypot(x.se, y.se), min(x.df, y.df)
            rows.append((x.log - y.log, float(half_widths([error], [df])[0])))
    return rows


def measured(folder, number, shard=None):
    """The folder of a sweep, or of one shard of it, measured here."""
    asked = request(number)
    with own_server(asked.settings.threads, asked.settings.seed) as server:
        planned = plan(asked, server)
        here = environment(server, asked.device, asked.settings.threads)
        with Journal.create(folder, folder.name, Start(asked, here, shard)) as journal:
            journal.append(*planned.cards, *planned.cases)
            Session(
                request=asked,
                plan=planned.cases,
                store=journal,
                start=lambda series, *, weighs=False: server.worker(weighs=weighs),
                memory_bytes=memory_bytes(),
                # memory is not needed here
                finished=frozenset((line.case.key, Part.MEMORY, 0) for line in planned.cases),
                share=split.share(planned.cases, asked, shard) if shard else None,
                name=str(shard or ""),
            ).run()
            journal.end(EndReason.FINISHED)
    return folder


def request(number):
    """The request of sweep `number`, which is also its seed."""
    usual = settings(Asked(threads="1", seed=str(number), quick=True), find("cpu"), None)
    return Request(
        models=MODELS,
        lengths=(128, 256, 512),
        tokens=2048,
        preset="mind-classification",
        level=Level.ATTENTION,
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
        settings=usual,
    )


def summed(found, loads):
    """The share of intervals that contain 0, with a standard error over sweeps."""
    shares = [mean(abs(d) <= half for d, half in sweep) for sweep in found]
    rows = [row for sweep in found for row in sweep]
    held = sum(abs(d) <= half for d, half in rows)
    error = stdev(shares) / len(shares) ** 0.5 if len(shares) > 1 else math.nan
    half, off = (100 * median(abs(row[i]) for row in rows) for i in (1, 0))
    return (
        f"{held} of {len(rows)} intervals contain 0: {held / len(rows):.1%} ± {error:.1%} over"
        f" {len(found)} sweeps. The median half-width is {half:.1f} %, the median difference"
        f" {off:.1f} %. The load average was {min(loads):.1f} to {max(loads):.1f}."
    )


if __name__ == "__main__":
    main()
