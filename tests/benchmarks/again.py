"""How often the confidence interval contains 1 when a mechanism is raced against itself.

    python -m tests.benchmarks.again > reports/again.md

Fastformer and Linformer take part under three names each (`extra.py`) in sweeps over lengths and
modes, beside two busy loops; sweeps of levels `attention` and `model` alternate until there are
enough ratios. Only ratios of a mechanism to itself count: every difference is an error, and 95 % of
the intervals should contain 1.

The ratios of one sweep share the variation between processes, which the standard error takes into
account. D = 64, 4 heads, 2,048 tokens per batch; as users run it, a sweep repeats its blocks until
their ratios are known to 2 %, as far as 3 min reach.
"""

import argparse
import math
import os
import sys
import tempfile
from itertools import product
from pathlib import Path
from statistics import median

import pandas as pd

import attnbench
from tests.benchmarks.gate import Neighbour
from tests.benchmarks.header import begin, contained

FILE = Path(__file__).with_name("extra.py")
NAMES = ("FASTFORMER", "LINFORMER")
COPIES = ("", "_AGAIN", "_THIRD")
LEVELS = ("attention", "model")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ratios", type=int, default=200, help="Minimum number of ratios.")
    parser.add_argument("--lengths", default="256,1024")
    asked = parser.parse_args()
    sweeps, loads = [], []
    with Neighbour(), Neighbour():
        while sum(map(len, sweeps)) < asked.ratios:
            number = len(sweeps)
            found = swept(number, LEVELS[number % len(LEVELS)], asked.lengths)
            sweeps.append(found)
            loads.append(os.getloadavg()[0])
            print(f"{sum(map(len, sweeps))} of {asked.ratios} ratios", file=sys.stderr, flush=True)
    begin("A mechanism against itself", __doc__, "python -m tests.benchmarks.again", "torch")
    print("| level | mode | mechanism | ratios | contain 1 | median half-width |")
    print("|---|---|---|---:|---:|---:|")
    found = pd.concat(sweeps)
    for (level, mode, name), rows in found.groupby(["level", "mode", "name"]):
        print(f"| {level} | {mode} | {name.lower()} | {cells(rows)} |")
    print(f"| all | | | {cells(found)} |")
    print(f"\n{summed(sweeps)} The load average was {min(loads):.1f} to {max(loads):.1f}.")


def swept(number, level, lengths):
    """Every ratio of a mechanism to itself in one sweep; `number` is also its seed."""
    with tempfile.TemporaryDirectory() as folder:
        sweep = attnbench.sweep(
            models=[f"{FILE}:{name}{copy}" for name in NAMES for copy in COPIES],
            lengths=lengths,
            level=level,
            tokens=2048,
            width=64,
            heads=4,
            budget="3m",
            seed=number,
            out=Path(folder, "again"),
        )
        found = []
        for name, (index, copy) in product(NAMES, enumerate(COPIES)):
            rows = sweep.ratios(f"{FILE}:{name}{copy}")
            later = {f"{name}{other}" for other in COPIES[index + 1 :]}
            is_later = [series.split(":")[1] in later for series in rows["series"]]
            found.append(rows[is_later].assign(name=name))
    found = pd.concat(found)
    return found.assign(
        level=level,
        held=(found["low"] <= 1) & (found["high"] >= 1),
        half=100 * (found["high"] / found["low"]).map(math.log) / 2,
        off=100 * found["ratio"].map(math.log).abs(),
    )


def cells(rows):
    """Number of ratios, share of intervals that contain 1, and median half-width."""
    return f"{len(rows)} | {rows['held'].mean():.0%} | {median(rows['half']):.1f} %"


def summed(sweeps):
    """The share that contains 1, and the median distance from 1."""
    off = median(pd.concat(sweeps)["off"])
    held = contained([found["held"].tolist() for found in sweeps], 1)
    return f"{held} The median ratio is {off:.1f} % away from 1."


if __name__ == "__main__":
    main()
