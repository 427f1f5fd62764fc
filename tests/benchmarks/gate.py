"""False alarms and detection rates of the gate under load.

    python -m tests.benchmarks.gate [--trials 400] [--injected 100] [--out reports/gate]

Every trial is a `check` of one case: ten pairs of fresh processes in two memory layouts, more in
two others if the result is unclear, one verdict. Trials without extra work count false alarms;
those with 3 to 50 % more work or four times as much, 12 % more in every other call, or 50 % more in
every fifth, count detections. Required: at most 2 false alarms in 400, detection of at least 95 %
from +3 % on and of 90 % where only some calls are slower, and at most 25 s of samples per verdict.
Results are written after each trial, and the same command continues where it was stopped;
`--neighbours 0` leaves the other core idle, and `--kinds` takes part of the extra work only.
`gate.json` may hold the trials of several seeds.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from attnbench.commands.check.cases import BASE, HEAD, CheckedCase, CheckPlan
from attnbench.commands.check.measuring import Looks, Runner
from attnbench.commands.check.rule import Statistic, rulings
from attnbench.devices.host import processor
from attnbench.records import Mode, Selection
from attnbench.running.pool import Pool
from attnbench.running.session import SCRIPT

NEIGHBOUR = """
import os, numpy as n
a, parent = n.random.rand(300, 300), os.getppid()
while os.getppid() == parent: a @ a
"""
# a mechanism of this package with EXTRA more products of small matrices a sequence in some calls
SLOWED = """
from dataclasses import replace
from itertools import count

import torch

from attnbench.mechanisms.catalogue.registry import card

PLAIN = card("transformer")


class Slowed(PLAIN.forms["sdpa"]):
    def __init__(self, config, workload):
        super().__init__(config, workload)
        self.calls = count(1)
        self.factor, self.product = torch.full((64, 64), 1 / 64), torch.empty(64, 64)

    def forward(self, x, mask=None):
        if next(self.calls) % EVERY == 0:
            with torch.no_grad():
                for _ in range(round(EXTRA * len(x))):
                    torch.mm(self.factor, self.factor, out=self.product)
        return super().forward(x, mask)


CARD = replace(PLAIN, forms={"eager": Slowed}, default="eager", examples=())
"""
LENGTH = 256
PRODUCTS = 100  # of extra work for each sequence, to learn how long one takes
NOTHING = "nothing"
# extra work: share of an iteration, and every how many calls
KINDS = {
    NOTHING: (0.0, 1),
    "+3 %": (0.03, 1),
    "+4 %": (0.04, 1),
    "+5 %": (0.05, 1),
    "+10 %": (0.10, 1),
    "+50 %": (0.50, 1),
    "four times": (3.0, 1),
    "+12 % every other call": (0.12, 2),
    "+50 % every fifth call": (0.50, 5),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=400, help="Trials without extra work.")
    parser.add_argument(
        "--injected", type=int, default=100, help="Trials with each kind of extra work."
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    parser.add_argument("--neighbours", type=int, default=1)
    parser.add_argument("--budget", type=float, help="Seconds of each check; by default no limit.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("reports/gate"))
    asked = parser.parse_args()
    kinds = [kind for kind in asked.kinds if kind != NOTHING]
    rows = [NOTHING] * asked.trials + kinds * asked.injected
    random.Random(asked.seed).shuffle(rows)
    about = {
        "case": f"transformer:sdpa, N = {LENGTH}, inference, one thread",
        "neighbours": asked.neighbours,
    }
    if asked.budget:
        about["budget"] = f"{asked.budget:g} s"
    trials = stored(asked.out, about)
    done = sum(trial["seed"] == asked.seed for trial in trials)
    if done >= len(rows):
        return
    with ExitStack() as stack:
        runner = Runner(server=stack.enter_context(Pool(SCRIPT, own=True, seed=asked.seed)))
        for _ in range(asked.neighbours):
            stack.enter_context(Neighbour())
        root = Path(stack.enter_context(TemporaryDirectory()))
        base = tree(root / "base", 0.0)
        _, took = checked(runner, base, tree(root / "more", PRODUCTS), None)
        share = (took.seconds(HEAD, Statistic.TYPICAL) / took.seconds(BASE, Statistic.TYPICAL)) - 1
        for number, kind in enumerate(rows[done:], done + 1):
            size, every = KINDS[kind]
            head = tree(root / str(number), size * PRODUCTS / share, every)
            trials.append(
                {
                    "seed": asked.seed,
                    "kind": kind,
                    **record(*checked(runner, base, head, asked.budget)),
                }
            )
            write(asked.out, about, trials)
            print(f"{number}/{len(rows)} {kind}: {trials[-1]['verdict']}", flush=True)


def tree(folder, extra, every=1):
    """A source tree with the mechanism and its extra work."""
    folder.mkdir()
    text = SLOWED.replace("EXTRA", str(extra)).replace("EVERY", str(every))
    (folder / "slowed.py").write_text(text)
    return folder


def checked(runner, base, head, budget_s=None):
    """The case after a check within this time, with how it was timed."""
    plan = CheckPlan(modes=(Mode.INFERENCE,), budget_s=budget_s)
    workload = plan.workload(Mode.INFERENCE, LENGTH)
    case = CheckedCase(selection=Selection(name="slowed.py:CARD"), workload=workload)
    looks = Looks(plan, runner, {BASE: base, HEAD: head})
    with runner.within(budget_s):
        looks.take([case])
    return looks.races[case], case


class Neighbour:
    """A process that keeps one core busy."""

    def __enter__(self):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], env=env)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def record(race, case):
    """One verdict as data; pairs hold log ratios: typical, average."""
    threshold = CheckPlan().threshold
    views = case.views(threshold)
    verdict, effect, reason, statistic = rulings([views])[0]
    visits = [visit for look in case.looks for visit in look]
    samples_s = race.iterations * sum(sum(map(sum, visit.values())) for visit in visits)
    pairs = zip(*(view.first + view.second for view in views), strict=True)
    again = zip(*(view.again for view in views), strict=True)
    return {
        "verdict": str(verdict),
        "effect": round(effect.point, 4),
        "statistic": str(statistic),
        "reason": reason,
        "floor": round(views[0].floor, 4),
        "samples_s": round(samples_s, 2),
        "pairs": [[round(x, 4) for x in pair] for pair in pairs],
        "again": [[round(x, 4) for x in pair] for pair in again],
        "processor": processor(),
        "iteration_ms": round(1000 * race.iteration_s, 2),
        "rounds": race.rounds,
    }


def stored(out, about):
    """The trials of an earlier start of the same command."""
    file = out / "gate.json"
    if not file.exists():
        return []
    before = json.loads(file.read_text())
    if {key: before.get(key) for key in about} != about:
        raise SystemExit(f"{file} holds trials of another command; give another --out")
    return before["trials"]


def write(out, about, trials):
    """All trials as JSON, and the rates as a table in Markdown."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "gate.json").write_text(json.dumps({**about, "trials": trials}) + "\n")
    command = f"python -m tests.benchmarks.gate --neighbours {about['neighbours']}"
    if "budget" in about:
        command += f" --budget {about['budget'].removesuffix(' s')}"
    lines = [
        "# Error rates of the gate",
        "",
        f"Made by `{command}`; every trial is in `gate.json`.",
        "",
        "; ".join(f"{name} {value}" for name, value in {**about, **measured(trials)}.items()) + ".",
        "",
        "| extra work | trials | slower | faster | unsure | same | samples per verdict |",
        "|---:|---:|---:|---:|---:|---:|---|",
    ]
    for kind in KINDS:
        of = [trial for trial in trials if trial["kind"] == kind]
        if not of:
            continue
        given = [trial["verdict"] for trial in of]
        counts = (str(given.count(v)) for v in ("slower", "faster", "unsure", "same"))
        took = [trial["samples_s"] for trial in of]
        spent = f"{statistics.median(took):.1f} s, at most {max(took):.1f} s"
        lines.append(f"| {kind} | {len(of)} | {' | '.join(counts)} | {spent} |")
    (out / "README.md").write_text("\n".join(lines) + "\n")


def measured(trials):
    """On which processors, and how long an iteration took."""
    took = [trial["iteration_ms"] for trial in trials]
    return {
        "seeds": ", ".join(dict.fromkeys(str(trial["seed"]) for trial in trials)),
        "processor": ", ".join(dict.fromkeys(trial["processor"] for trial in trials)),
        "iteration": f"{min(took)} to {max(took)} ms",
        "rounds": f"{min(t['rounds'] for t in trials)} to {max(t['rounds'] for t in trials)}",
    }


if __name__ == "__main__":
    main()
