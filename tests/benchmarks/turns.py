"""How fast forms are, and what they take of memory, against those of an older tree.

    git worktree add /tmp/old REVISION
    python -m tests.benchmarks.turns /tmp/old [--models NAME[:FORM],…] [--trials 6] [--pairs 30]

Each trial has two fresh processes, one for each tree, which take turns on one core: a pair is an
iteration of both, and the next pair has them in the other order. One thread, its own CPU time, and
an allocator that keeps freed pages, as in a sweep; a forward pass, in training a backward pass too.
The order in which the two processes start, and so their layouts of memory, changes with each trial.

A ratio (old over new; below 1 the new tree is slower) is the median over trials of the median over
their pairs; the interval spans the trials. Peaks are exact: what torch allocates in one iteration.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.header import begin

SIDE = r"""
import json, os, sys, time
from dataclasses import replace

import torch

from attnbench.mechanisms.catalogue.registry import card
from attnbench.devices.memory import peaks, mark
from attnbench.measuring.allocator import keep_pages
from attnbench.records import Causality, Level, Mode, Workload
from torch.autograd.profiler import profile

keep_pages()
torch.set_num_threads(1)


def iteration(name, form, mode, batch, seq_len, dtype, width, heads):
    entry = card(name)
    w = Workload(batch=batch, seq_len=seq_len, width=width, heads=heads, level=Level.ATTENTION,
                 mode=Mode(mode), causal=entry.causality is Causality.ALWAYS, dtype=dtype)
    torch.manual_seed(0)
    config = entry.config()
    built = entry.forms[form or entry.default_form(config, w)](config, w).to(getattr(torch, dtype))
    trains = mode == "training"
    x = torch.randn(batch, seq_len, width).to(getattr(torch, dtype)).requires_grad_(trains)
    towards = torch.randn(batch, seq_len, width).to(x)

    def once():
        with torch.set_grad_enabled(trains):
            y = built(x)
            if trains:
                x.grad = None
                for p in built.parameters():
                    p.grad = None
                y.backward(towards)

    return once


once = None
for line in sys.stdin:
    asked = json.loads(line)
    if "case" in asked:
        with profile(profile_memory=True) as events:
            once = iteration(*asked["case"])
            mark("start")
            once()
        answer = peaks(events.kineto_results.events())["allocated_peak_bytes"]
    else:
        start = time.process_time()
        once()
        answer = time.process_time() - start
    print("answer", json.dumps(answer), flush=True)
"""
TOUCHED = (
    "forgetting",
    "gated_delta_net",
    "gated_linear",
    "kimi_delta",
    "lightning",
    "mamba2",
    "retention",
    "rwkv7",
    "linear_transformer",
    "transformer_xl",
    "compressive_transformer",
    "etc",
    "adaptively_sparse",
    "indexed",
    "smart_bird",
    "latent",
    "linformer",
    "memory_compressed",
    "sinkhorn",
    "synthesizer",
    "longformer",
    "reformer",
    "native_sparse",
    "moba",
    "performer",
)


class Side:
    """A process that iterates in one tree."""

    def __init__(self, tree):
        environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SIDE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where a profiler says that it starts
            text=True,
            cwd=tree,
            env=environment,
        )

    def ask(self, **asked):
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        for line in self.process.stdout:  # among what a profiler prints
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        raise SystemExit("a side ended before its answer")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("--new", type=Path, default=Path.cwd())
    parser.add_argument("--models", default=",".join(TOUCHED))
    parser.add_argument("--modes", default="inference,training")
    parser.add_argument("--sizes", default="4x512,1x2048", help="Sequences × tokens.")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=6.0, help="At most, of a trial's pairs.")
    parser.add_argument("--core", type=int, default=0)
    asked = parser.parse_args()
    os.sched_setaffinity(0, {asked.core})
    begin(
        "Turns",
        __doc__,
        f"python -m tests.benchmarks.turns {' '.join(sys.argv[1:])}",
        "torch",
    )
    print(
        "| mechanism:form | mode | type | B × N | old / new | old, ms | new, ms | new peak / old |"
    )
    print("|---|---|---|---|---|---:|---:|---:|", flush=True)
    every = [row(case, asked) for case in cases(asked)]
    together = math.exp(statistics.mean(map(math.log, every)))
    print(f"\nGeometric mean of {len(every)}: {together:.3f}; least: {min(every):.3f}.")


def cases(asked):
    """Name, form or None, mode, batch, tokens, type, width and heads."""
    for model in asked.models.split(","):
        name, _, form = model.partition(":")
        for dtype in asked.dtypes.split(","):
            for size in asked.sizes.split(","):
                batch, tokens = map(int, size.split("x"))
                for mode in asked.modes.split(","):
                    yield name, form or None, mode, batch, tokens, dtype, asked.width, asked.heads


def row(case, asked):
    """Prints the row of a case; its ratio."""
    ratios, times, peaks = [], {"old": [], "new": []}, {}
    for trial in range(asked.trials):
        trees = {"old": asked.old, "new": asked.new}
        order = ("old", "new") if trial % 2 == 0 else ("new", "old")
        sides = {which: Side(trees[which]) for which in order}
        peaks = {which: side.ask(case=case) for which, side in sides.items()}
        ratios.append(trial_ratio(sides, order, asked, times))
        for side in sides.values():
            side.close()
    ratio = statistics.median(ratios)
    name, form, mode, batch, tokens, dtype, *_ = case
    old, new = (1e3 * statistics.median(times[which]) for which in ("old", "new"))
    print(
        f"| {name}{':' + form if form else ''} | {mode} | {dtype} | {batch} × {tokens:,} "
        f"| {ratio:.3f} [{min(ratios):.3f}, {max(ratios):.3f}] | {old:.1f} | {new:.1f} "
        f"| {peaks['new'] / peaks['old']:.3f} |",
        flush=True,
    )
    return ratio


def trial_ratio(sides, order, asked, times):
    """The median ratio over the pairs of two processes."""
    pairs, spent = [], 0.0
    for which in order:
        sides[which].ask()
    for pair in range(asked.pairs):
        took = {}
        for which in order if pair % 2 == 0 else order[::-1]:
            took[which] = sides[which].ask()
            times[which].append(took[which])
        pairs.append(took["old"] / took["new"])
        spent += sum(took.values())
        if spent > asked.seconds and len(pairs) >= 6:
            break
    return statistics.median(pairs)


if __name__ == "__main__":
    main()
