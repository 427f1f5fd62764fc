"""False alarms and detection rates of the gate under load.

    python -m tests.benchmarks.gate [--trials 400] [--injected 100] [--out reports/gate]

Every trial repeats what `check` does for one case: ten pairs of fresh processes in two memory
layouts, sixteen more in two others if the result is unclear, one verdict. Trials without extra
work count false alarms; those with 3, 5 or 10 % more work, 12 % more in every other call, or 50 %
more in every fifth, count detections. Required: at most 2 false alarms in 400, detection of at
least 95 % from +3 % on and of 90 % where only some calls are slower, and at most 25 s of samples
per verdict. Results are written after each trial, and the same command continues where it was
stopped; `--neighbours 0` leaves the other core idle, and `--kinds` takes part of the extra work
only. `gate.json` may hold the trials of several seeds.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from attnbench.api.measuring import SCRIPT
from attnbench.devices.host import processor
from attnbench.gate.cases import AGAIN, BASE, CheckPlan
from attnbench.gate.measuring import TreeRace, layout, tree_round
from attnbench.gate.rule import Evidence, Look, Pair, judge, settled
from attnbench.records import Mode
from attnbench.run.pool import Pool

NEIGHBOUR = """
import os, numpy as n
a, parent = n.random.rand(300, 300), os.getppid()
while os.getppid() == parent: a @ a
"""
# a mechanism of this package with `extra` more products of small matrices in some calls
SLOWED = """
from dataclasses import dataclass, replace
from itertools import count

import torch

from attnbench.catalogue.registry import card

PLAIN = card("transformer")


@dataclass(frozen=True, kw_only=True)
class Config(PLAIN.config):
    extra: int = 0
    every: int = 1


class Slowed(PLAIN.forms["sdpa"]):
    def __init__(self, config, workload):
        super().__init__(config, workload)
        self.extra, self.every, self.calls = config.extra, config.every, count(1)
        self.factor, self.product = torch.full((64, 64), 1 / 64), torch.empty(64, 64)

    def forward(self, x, mask=None):
        if next(self.calls) % self.every == 0:
            with torch.no_grad():
                for _ in range(self.extra):
                    torch.mm(self.factor, self.factor, out=self.product)
        return super().forward(x, mask)


CARD = replace(PLAIN, config=Config, forms={"eager": Slowed}, default="eager", examples=())
"""
LENGTH = 256
PRODUCTS = 100  # of extra work, to learn how long one takes
NOTHING = "nothing"
# extra work: share of an iteration, and every how many calls
KINDS = {
    NOTHING: (0.0, 1),
    "+3 %": (0.03, 1),
    "+5 %": (0.05, 1),
    "+10 %": (0.10, 1),
    "+12 % every other call": (0.12, 2),
    "+50 % every fifth call": (0.50, 5),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--trials", type=int, default=400, help="Trials without extra work; at least --injected."
    )
    parser.add_argument(
        "--injected", type=int, default=100, help="Trials with each kind of extra work."
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND")
    parser.add_argument("--neighbours", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("reports/gate"))
    asked = parser.parse_args()
    plan = CheckPlan(modes=(Mode.INFERENCE,))
    draw = random.Random(asked.seed)
    plain = max(0, asked.trials - asked.injected)
    kinds = [kind for kind in KINDS if kind in (NOTHING, *asked.kinds)]
    rows = [tuple(kinds)] * asked.injected + [(NOTHING,)] * plain
    draw.shuffle(rows)
    with ExitStack() as stack:
        server = stack.enter_context(Pool(SCRIPT, seed=asked.seed))
        server.wait()
        for _ in range(asked.neighbours):
            stack.enter_context(Neighbour())
        root = Path(stack.enter_context(TemporaryDirectory()))
        (root / "slowed.py").write_text(SLOWED)
        race = prepared(server, root, plan.workload(Mode.INFERENCE, LENGTH), plan)
        others = [server.of_layout(number) for number in range(1, 4)]
        servers = dict(enumerate((server, *others)))
        about = {
            "case": f"transformer:sdpa, N = {LENGTH}, inference, one thread",
            "neighbours": asked.neighbours,
        }
        here = {
            "seed": asked.seed,
            "processor": processor(),
            "iteration_ms": round(1000 * race.iteration_s, 2),
            "rounds": race.rounds,
        }
        trials = stored(asked.out, about)
        # every row has one without extra work
        done = sum(t["kind"] == NOTHING and t["seed"] == asked.seed for t in trials)
        for count, kinds in enumerate(rows[done:], done + 1):
            records = verdicts(servers, root, race, kinds, plan, draw)
            trials += [{**here, **record} for record in records]
            write(asked.out, about, trials)
            texts = ", ".join(f"{record['kind']}: {record['verdict']}" for record in records)
            print(f"{count}/{len(rows)} {texts}", flush=True)


def prepared(server, root, workload, plan):
    """A race of base, base again and each kind of extra work, in batches as `check` sizes them."""

    def built(batch, **options):
        return {
            "mechanism": "slowed.py:CARD",
            "form": None,
            "options": list(options.items()),
            "workload": asdict(replace(workload, batch=batch)),
        }

    with tree_round(server, {BASE: root, AGAIN: root}, random.Random(0)) as processes:

        def seconds(**builds):
            laps = TreeRace(builds=builds, rounds=4).run(processes)
            return {name: statistics.median(times) for name, times in laps.items()}

        took_s = seconds(**{BASE: built(workload.batch)})[BASE]
        batch = plan.batch_for(workload, took_s)
        took = seconds(**{BASE: built(batch), AGAIN: built(batch, extra=PRODUCTS)})
    product_s = (took[AGAIN] - took[BASE]) / PRODUCTS
    builds = dict.fromkeys((BASE, AGAIN, NOTHING), built(batch))
    for kind, (share, every) in KINDS.items():
        builds[kind] = built(batch, extra=round(share * took[BASE] / product_s), every=every)
    iterations = max(1, round(plan.iteration_s / took[BASE]))
    return TreeRace(
        builds=builds,
        rounds=plan.rounds_for(iterations * took[BASE]),
        iterations=iterations,
        iteration_s=took[BASE],
    )


class Neighbour:
    """A process that keeps one core busy."""

    def __enter__(self):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], env=env)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def verdicts(servers, root, race, kinds, plan, draw):
    """A verdict for each kind, as `check` would give it, with the samples it needed.

    Undecided kinds share the visits and the base; the samples of a verdict are those of its three
    sides.
    """
    stages = {kind: [] for kind in kinds}
    samples_s = dict.fromkeys(kinds, 0.0)
    trials = {}
    for stage, pairs in enumerate(plan.looks):
        opened = [
            kind for kind in kinds if not (kind in trials and settled(trials[kind], plan.threshold))
        ]
        if not opened:
            break
        sides = (BASE, AGAIN, *opened)
        visited = replace(race, builds={key: race.builds[key] for key in sides})
        visits = {kind: {"head": [], "again": []} for kind in opened}
        for pair in range(pairs):
            server = servers[layout(stage, pair)]
            with tree_round(server, dict.fromkeys(sides, root), draw) as processes:
                laps = visited.run(processes)
            for kind in opened:
                visits[kind]["head"].append(Pair.of(laps[BASE], laps[kind]))
                visits[kind]["again"].append(Pair.of(laps[BASE], laps[AGAIN]))
                spent = sum(map(sum, (laps[BASE], laps[AGAIN], laps[kind])))
                samples_s[kind] += race.iterations * spent
        for kind in opened:
            stages[kind].append(Look(**{key: tuple(of) for key, of in visits[kind].items()}))
            first, second = (*stages[kind], Look())[:2]
            trials[kind] = Evidence(first=first, second=second)
    return [record(kind, trials[kind], samples_s[kind]) for kind in kinds]


def record(kind, trial, samples_s):
    """One verdict as data; pairs hold log ratios: typical, average."""
    verdict, effect, reason, statistic = judge([trial], CheckPlan().threshold)[0]
    stages = (trial.first, trial.second)
    return {
        "kind": kind,
        "verdict": str(verdict),
        "effect": round(effect.point, 4),
        "statistic": str(statistic),
        "reason": reason,
        "floor": round(trial.views(CheckPlan().threshold)[0].floor, 4),
        "samples_s": round(samples_s, 2),
        "pairs": [[round(x, 4) for x in pair] for stage in stages for pair in stage.head],
        "again": [[round(x, 4) for x in pair] for stage in stages for pair in stage.again],
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
