"""Whether intervals of short sweeps contain the true ratio of modules whose code differs.

    python -W ignore -m tests.benchmarks.layout > reports/layout.md

Where the memory of a process lies favours one code over another by some per cent as long as its
server lives, and identical copies share it. A module races a copy of itself, one that then waits
for 4 % of what its call took, and one that computes two further products (`extra.py`), at level
`attention`, 4 sequences of 512 tokens, D = 256. The true ratios of the first two are 1 and 1.04.
That of the third follows from the share of its time that the products take, measured around them in
fresh processes. Of 20 intervals at 95 %, 19 are expected to contain the truth.
"""

import argparse
import gc
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median, stdev

import torch

import attnbench
from attnbench.analysis.statistics.estimate import LEVEL, student_quantile
from attnbench.measuring.allocator import keep_pages
from tests.benchmarks import extra
from tests.benchmarks.header import begin

FILE = Path(extra.__file__)
BATCH, LENGTH, WIDTH, HEADS = 4, 512, 256, 8
OTHERS = ("Copy", "Longer", "More")
WARM, ITERATIONS = 20, 100  # of one process


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--processes", type=int, default=12, help="Processes for the truth.")
    parser.add_argument("--rounds", type=int, default=8, help="Rounds of each sweep.")
    parser.add_argument("--truth", action="store_true", help="One process for the truth.")
    asked = parser.parse_args()
    if asked.truth:
        print(json.dumps(true_log()))
        return
    found = [swept(number, asked.rounds) for number in range(asked.sweeps)]
    command = [sys.executable, "-m", "tests.benchmarks.layout", "--truth"]
    truth = [
        json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        for _ in range(asked.processes)
    ]
    begin("Layouts of memory", __doc__, "python -W ignore -m tests.benchmarks.layout", "torch")
    print("| | truth | mean of sweeps | median half-width | contain the truth |")
    print("|---|---|---|---:|---:|")
    longer = 1.0 + extra.Longer.share
    for name, true, said in (
        ("Copy", 0.0, "1"),
        ("Longer", math.log(longer), f"{longer:.2f}"),
        ("More", mean(truth), interval(truth)),
    ):
        rows = [one[name] for one in found]
        held = sum(low <= true <= high for _, low, high in rows)
        half = median((high - low) / 2 for _, low, high in rows)
        middle = interval([log for log, _, _ in rows])
        print(f"| {name} | {said} | {middle} | {half:.1%} | {held} of {len(rows)} |")


def interval(logs):
    """The geometric mean with its 95 % confidence interval over independent log ratios."""
    half = student_quantile(LEVEL, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    low, middle, high = (math.exp(mean(logs) + d) for d in (-half, 0.0, half))
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"


def swept(number, rounds):
    """Log ratio to `Base`, and its interval, of each other module in one sweep."""
    with tempfile.TemporaryDirectory() as folder:
        sweep = attnbench.sweep(
            models=[f"{FILE}:{name}" for name in ("Base", *OTHERS)],
            lengths=str(LENGTH),
            batch=str(BATCH),
            width=WIDTH,
            heads=HEADS,
            level="attention",
            mode="inference",
            rounds=rounds,
            budget="30m",  # which ends no sweep
            seed=number,
            out=Path(folder, "layout"),
        )
        rows = sweep.ratios(f"{FILE}:Base").set_index("series")
    found = {}
    for name in OTHERS:
        row = next(row for series, row in rows.iterrows() if f":{name}" in series)
        # the frame says how many times faster
        found[name] = (-math.log(row["ratio"]), -math.log(row["high"]), -math.log(row["low"]))
    print(number, found, file=sys.stderr, flush=True)
    return found


def true_log():
    """The log ratio of `More` to itself without its products, in this process."""
    keep_pages()
    torch.set_num_threads(1)
    x, module = torch.randn(BATCH, LENGTH, WIDTH), extra.More(WIDTH, HEADS).eval()
    products, spent = module.products, []

    def timed():
        begun = time.process_time()
        products()
        spent.append(time.process_time() - begun)

    module.products = timed
    gc.disable()
    with torch.inference_mode():
        for _ in range(WARM):
            module(x)
        spent.clear()
        begun = time.process_time()
        for _ in range(ITERATIONS):
            module(x)
        whole = time.process_time() - begun
    return math.log(whole / (whole - sum(spent)))


if __name__ == "__main__":
    main()
