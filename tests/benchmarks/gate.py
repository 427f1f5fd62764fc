"""How often the gate is wrong and what it finds, beside a busy neighbour; not run by the tests.

    python -m tests.benchmarks.gate [--trials 200] [--injected 100] [--out reports/gate]

Every trial is what `check` does to one case: six pairs of fresh processes, ten more if it is not
settled, one verdict. Trials without extra work count false alarms; those with 5 and 10 % more
count what is found. Required: at most 2 of 200 false alarms, at least 80 % of +5 % and 95 % of
+10 % found, at most 15 s of samples a verdict. What is done so far is written after each trial,
so the script may be stopped; `--neighbours 0` leaves the other core idle.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from attnbench.analysis.gate import CPU_THRESHOLD, Stage, Trial, judge, pair_log, settled
from attnbench.cli import checking
from attnbench.measure.environment import processor
from attnbench.records import Mode
from attnbench.run.lines import Line, Plan, workload
from attnbench.run.pairs import AGAIN, BASE, Visit
from attnbench.run.selftesting import prepare
from attnbench.run.sides import Sides

NEIGHBOUR = """
import os, numpy as n
a, parent = n.random.rand(300, 300), os.getppid()
while os.getppid() == parent: a @ a
"""
SHARES = (0.0, 0.05, 0.10)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--trials", type=int, default=200, help="with nothing added; at least --injected"
    )
    parser.add_argument("--injected", type=int, default=100, help="with each share of extra work")
    parser.add_argument("--models", default="transformer")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--neighbours", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("reports/gate"))
    asked = parser.parse_args()
    plan = Plan(chosen=(), modes=(Mode.INFERENCE,), seed=asked.seed)
    draw = random.Random(asked.seed)
    kinds = [SHARES] * asked.injected + [SHARES[:1]] * (asked.trials - asked.injected)
    draw.shuffle(kinds)
    with ExitStack() as stack:
        sides = stack.enter_context(Sides(checking.SIDE, seed=asked.seed))
        sides.wait()
        for _ in range(asked.neighbours):
            stack.enter_context(Neighbour())
        root = Path.cwd()
        chosen = next(iter(checking.selected(asked.models, root)))
        line = Line(chosen=chosen, workload=workload(plan, Mode.INFERENCE, asked.length))
        injected = prepare(sides, root, line.asked(BASE), SHARES, plan)
        about = {
            "case": f"{chosen.name}, N = {asked.length}, inference, one thread",
            "iteration_ms": round(1000 * injected.race.iteration_s, 2),
            "rounds": injected.race.rounds,
            "processor": processor(),
            "neighbours": asked.neighbours,
            "seed": asked.seed,
        }
        trials = []
        for count, shares in enumerate(kinds, 1):
            found = one(sides, root, injected, shares, plan, draw)
            trials += found
            write(asked.out, about, trials)
            said = ", ".join(f"+{each['share']:.0%} {each['verdict']}" for each in found)
            print(f"{count}/{len(kinds)} {said}", flush=True)


class Neighbour:
    """A process that keeps one core busy."""

    def __enter__(self):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], env=env)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def one(sides, root, injected, shares, plan, draw):
    """A verdict for each share, as a check would give it, with what it took.

    Shares that are still open are visited together, beside the same base: a verdict's samples are
    those of its own three entrants.
    """
    names = {value: key for key, value in injected.shares.items()}
    stages = {share: [] for share in shares}
    samples_s = dict.fromkeys(shares, 0.0)
    trials = {}
    for pairs in (plan.pairs, plan.confirm):
        opened = [
            share
            for share in shares
            if not (share in trials and settled(trials[share], CPU_THRESHOLD))
        ]
        if not opened:
            break
        entrants = (BASE, AGAIN, *(names[share] for share in opened))
        race = replace(injected.race, builds={key: injected.race.builds[key] for key in entrants})
        found = {share: {"head": [], "again": []} for share in opened}
        for _ in range(pairs):
            with Visit(sides, dict.fromkeys(entrants, root), draw) as visit:
                laps = visit.race(race)
            for share in opened:
                own = laps[names[share]]
                found[share]["head"].append(pair_log(laps[BASE], own))
                found[share]["again"].append(pair_log(laps[BASE], laps[AGAIN]))
                spent = sum(map(sum, (laps[BASE], laps[AGAIN], own)))
                samples_s[share] += 2 * race.iterations * spent
        for share in opened:
            stages[share].append(Stage(**{key: tuple(of) for key, of in found[share].items()}))
            first, second = (*stages[share], Stage())[:2]
            trials[share] = Trial(name="", first=first, second=second)
    return [told(share, trials[share], samples_s[share]) for share in shares]


def told(share, trial, samples_s):
    """One verdict as data."""
    verdict, effect, _ = judge([trial], CPU_THRESHOLD)[0]
    stages = (trial.first, trial.second)
    return {
        "share": share,
        "verdict": str(verdict),
        "effect": round(effect.point, 4),
        "floor": round(trial.floor, 4),
        "samples_s": round(samples_s, 2),
        "pairs": [round(x, 4) for stage in stages for x in stage.head],
        "again": [round(x, 4) for stage in stages for x in stage.again],
    }


def write(out, about, trials):
    """All trials as JSON, and the rates as a table in Markdown."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "gate.json").write_text(json.dumps({**about, "trials": trials}) + "\n")
    lines = [
        "# What the gate finds",
        "",
        "Made by `python -m tests.benchmarks.gate`; every trial is in `gate.json`.",
        "",
        "; ".join(f"{name} {value}" for name, value in about.items()) + ".",
        "",
        "| extra work | trials | slower | faster | unsure | same | samples of a verdict |",
        "|---:|---:|---:|---:|---:|---:|---|",
    ]
    for share in SHARES:
        of = [trial for trial in trials if trial["share"] == share]
        if not of:
            continue
        verdicts = [trial["verdict"] for trial in of]
        counts = (str(verdicts.count(v)) for v in ("slower", "faster", "unsure", "same"))
        took = [trial["samples_s"] for trial in of]
        spent = f"{statistics.median(took):.1f} s, at most {max(took):.1f} s"
        lines.append(f"| {share:.0%} | {len(of)} | {' | '.join(counts)} | {spent} |")
    (out / "README.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
