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
import subprocess
import sys
import tempfile
from itertools import combinations
from pathlib import Path
from statistics import median

from attnbench.statistics.estimate import half_widths
from attnbench.statistics.ratios import Ratios
from attnbench.store.journal import load
from tests.benchmarks.header import begin, contained

ATTNBENCH = (sys.executable, "-m", "attnbench")
SWEEP = (
    *("sweep", "--models", "fastformer,linformer,transformer:eager", "--level", "attention"),
    *("--width", "64", "--heads", "4", "--tokens", "2048"),
    *("--rounds", "3", "--quick", "--budget", "none"),
)
SHARDS = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--lengths", default="128..512:x2")
    asked = parser.parse_args()
    found, loads = [], []
    for number in range(asked.sweeps):
        found.append(compared("--seed", str(number), "--lengths", asked.lengths))
        loads.append(os.getloadavg()[0])
        held = [abs(d) <= half for sweep in found for d, half in sweep]
        print(f"{number + 1} sweeps: {sum(held)} of {len(held)}", file=sys.stderr, flush=True)
    begin("A divided sweep against itself", __doc__, "python -m tests.benchmarks.divided", "torch")
    print(summed(found, loads))


def compared(*options):
    """The differences of all log ratios of one sweep, with the half-widths of their intervals."""
    with tempfile.TemporaryDirectory() as folder:
        whole, divided = Path(folder, "whole"), Path(folder, "divided")
        ended(begun(*SWEEP, *options, "--out", whole))
        shards = [divided / f"shard-{i}" for i in range(1, SHARDS + 1)]
        ended(
            *(
                begun(*SWEEP, *options, "--shard", f"{i}/{SHARDS}", "--out", shard)
                for i, shard in enumerate(shards, 1)
            )
        )
        ended(begun("merge", *shards, "--out", divided))
        first, second = Ratios(load(whole)), Ratios(load(divided))
    rows = []
    for mode, seq_len in first.blocks:
        for a, b in combinations(first.series, 2):
            x, y = (ratios.ratio(a, b, mode, seq_len) for ratios in (first, second))
            error, df = math.hypot(x.se, y.se), min(x.df, y.df)
            rows.append((x.log - y.log, float(half_widths([error], [df])[0])))
    return rows


def begun(*command):
    """A process of attnbench, silent unless it fails."""
    return subprocess.Popen([*ATTNBENCH, *map(str, command)], stdout=subprocess.DEVNULL)


def ended(*processes):
    """Waits for processes; raises `CalledProcessError` if one failed."""
    for process in processes:
        process.wait()
    for process in processes:
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)


def summed(found, loads):
    """The share of intervals that contain 0, with median half-width and difference."""
    held = contained([[abs(d) <= half for d, half in sweep] for sweep in found], 0)
    rows = [row for sweep in found for row in sweep]
    half, off = (100 * median(abs(row[i]) for row in rows) for i in (1, 0))
    return (
        f"{held} The median half-width is {half:.1f} %, the median difference {off:.1f} %."
        f" The load average was {min(loads):.1f} to {max(loads):.1f}."
    )


if __name__ == "__main__":
    main()
