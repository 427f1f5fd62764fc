"""Whether intervals of short sweeps contain the true ratio of modules whose code differs.

    python -m tests.benchmarks.layout > reports/layout.md

Where the memory of a process lies favours one code over another by some per cent as long as its
server lives, and identical copies share it. A module races a copy of itself and one that computes
two further products (`extra.py`), at level `attention`, 4 sequences of 512 tokens, D = 256. The
truth is measured within fresh processes: there the modules take turns, lap by lap, in pairs of
mirrored order. Of 20 sweeps, 19 intervals are expected to contain its mean.
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
from attnbench.measure.allocator import keep_pages
from attnbench.statistics.estimate import LEVEL, student_quantile
from tests.benchmarks import extra
from tests.benchmarks.header import begin

FILE = Path(extra.__file__)
BATCH, LENGTH, WIDTH, HEADS = 4, 512, 256, 8
OTHERS = ("Copy", "More")
PAIRS, ITERATIONS = 20, 5  # of laps in one process, and of one lap


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--processes", type=int, default=12, help="Processes for the truth.")
    parser.add_argument("--rounds", type=int, default=8, help="Rounds of each sweep.")
    parser.add_argument("--in-turns", action="store_true", help="One process for the truth.")
    asked = parser.parse_args()
    if asked.in_turns:
        print(json.dumps(in_turns()))
        return
    found = [swept(number, asked.rounds) for number in range(asked.sweeps)]
    truth = [true_logs() for _ in range(asked.processes)]
    begin("Layouts of memory", __doc__, "python -m tests.benchmarks.layout", "torch")
    print("| | within a process | mean of sweeps | median half-width | contain the truth |")
    print("|---|---|---|---:|---:|")
    for name in OTHERS:
        logs, rows = [one[name] for one in truth], [one[name] for one in found]
        true = 0.0 if name == "Copy" else mean(logs)
        held = sum(low <= true <= high for _, low, high in rows)
        half = median((high - low) / 2 for _, low, high in rows)
        cells = f"{interval(logs)} | {interval([log for log, _, _ in rows])} | {half:.1%}"
        print(f"| {name} | {cells} | {held} of {len(rows)} |")


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


def true_logs():
    """The log ratios of a fresh process."""
    command = [sys.executable, "-m", "tests.benchmarks.layout", "--in-turns"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def in_turns():
    """Log ratio to `Base` of each other module: the median over pairs of turns."""
    keep_pages()
    torch.set_num_threads(1)
    torch.manual_seed(time.time_ns())
    x = torch.randn(BATCH, LENGTH, WIDTH)
    modules = {name: getattr(extra, name)(WIDTH, HEADS).eval() for name in ("Base", *OTHERS)}
    gc.disable()

    def seconds(name):
        modules[name](x)  # the others have used the caches
        begun = time.process_time()
        for _ in range(ITERATIONS):
            modules[name](x)
        return time.process_time() - begun

    logs = {name: [] for name in OTHERS}
    with torch.inference_mode():
        for _ in range(PAIRS):
            took = {name: seconds(name) for name in modules}
            for name in reversed(modules):
                took[name] = min(took[name], seconds(name))
            for name, own in logs.items():
                own.append(math.log(took[name] / took["Base"]))
    return {name: median(own) for name, own in logs.items()}


if __name__ == "__main__":
    main()
