"""How often the gate is right in simulated repositories whose changes are known.

    python -m tests.benchmarks.gate_worlds [--worlds 2000] [--seed 0] [--out reports/gate/worlds.md]

Every world is a repository with 1 to 100 functions on a machine that nothing waits for
(`tests/doubles/checks.py`): times of processes and samples are drawn, and the clock moves
by what a pair of processes would take. What decides is the gate's own: the order and number of
pairs, both looks, the rule over all cases, findings and exit codes. In half of the worlds nothing
has changed; in the others a few functions take 4, 10 or 50 % longer, or four times as long. Budgets
reach from three pairs of every function to all that are planned. A world whose report advises a
budget is checked once more with it.
"""

import argparse
import collections
import os
import re
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from attnbench.analysis.statistics.verdict import Verdict
from tests.doubles.checks import VISIT_S, Noisy, simulated

CHANGES = (1.04, 1.10, 1.50, 4.0)
CASES = (1, 2, 5, 20, 100)
OFTEN = (0.2, 0.25, 0.25, 0.25, 0.05)  # how often a repository has that many
PAIRS = (3.0, 6.0, 12.0, 40.0)  # of every function, that the budget is enough for
FAVOURS = 0.007  # spread of what a memory layout adds to a log ratio
SLOWDOWN = 2.0  # of a machine on which others compute


@dataclass(frozen=True, kw_only=True)
class World:
    """A repository with its true changes, how noisy each function is, and a budget [s]."""

    seed: int
    ratios: tuple[float, ...]
    placements: tuple[float, ...]
    jitter: float
    pairs: float
    favours: tuple[tuple[float, ...], ...]

    @property
    def budget_s(self):
        return SLOWDOWN * VISIT_S * self.pairs * len(self.ratios)

    def checked(self, budget_s=None, seed=None):
        """A check of this world: its looks and report."""
        names = [f"m:f{number}" for number in range(len(self.ratios))]
        return simulated(
            budget_s or self.budget_s,
            SLOWDOWN,
            *self.ratios,
            race=Noisy,
            draw=np.random.default_rng(self.seed if seed is None else seed),
            placement=dict(zip(names, self.placements, strict=True)),
            jitter=self.jitter,
            favours=dict(zip(names, self.favours, strict=True)),
        )


def world(seed):
    """A world, drawn."""
    draw = np.random.default_rng([seed, 1])
    number = int(draw.choice(CASES, p=OFTEN))
    ratios = np.ones(number)
    if seed % 2:
        for case in draw.choice(number, max(1, number // 10), replace=False):
            ratios[case] = draw.choice(CHANGES)
    # between processes the times of one function differ by 0.2 to 3 %, mostly by about 0.7 %
    placements = np.clip(np.exp(draw.normal(np.log(0.007), 0.6, number)), 0.002, 0.03)
    return World(
        seed=seed,
        ratios=tuple(map(float, ratios)),
        placements=tuple(map(float, placements)),
        jitter=float(draw.choice([0.003, 0.01, 0.03])),
        pairs=float(draw.choice(PAIRS)),
        # a memory layout favours one side in all of its pairs
        favours=tuple(map(tuple, draw.normal(0, FAVOURS, (number, 4)).tolist())),
    )


def timed(report):
    """The finding on the time of each case."""
    return {finding.case: finding for finding in report.findings}


def advised_s(report):
    """The budget that a report advises, if it does."""
    texts = " ".join(finding.decided_by for finding in report.findings)
    found = re.search(r"--budget (\d+)(s|m)", texts)
    return None if found is None else int(found[1]) * (60.0 if found[2] == "m" else 1.0)


class Tally:
    """What became of many worlds."""

    def __init__(self):
        self.unchanged = collections.Counter()  # worlds without a change, by exit code
        self.verdicts = collections.Counter()  # by true change, pairs of the budget, and verdict
        self.advice = collections.Counter()

    def add(self, one):
        looks, report = one.checked()
        found = timed(report)
        if max(one.ratios) == 1.0:
            self.unchanged[report.exit_code(strict=False)] += 1
        for number, ratio in enumerate(one.ratios):
            self.verdicts[ratio, one.pairs, str(found[f"m:f{number}"].verdict)] += 1
        if (more_s := advised_s(report)) is not None:
            advised = {case.name for case in looks.undecided_cases}
            _, again = one.checked(more_s, seed=10**6 + one.seed)
            verdicts = [found.verdict for found in again.findings]
            self.advice["worlds"] += 1
            self.advice["undecided"] += len(advised)
            later = timed(again)
            self.advice["decided"] += sum(later[name].verdict != Verdict.UNSURE for name in advised)
            self.advice["share"] += more_s / one.budget_s
            self.advice["all"] += all(v is not Verdict.UNSURE for v in verdicts)


def tallied(seed):
    """What became of one world."""
    tally = Tally()
    tally.add(world(seed))
    return tally


def tables(tally, command):
    """The rates as Markdown."""
    worlds = sum(tally.unchanged.values())
    lines = [
        "# The gate in simulated repositories",
        "",
        f"Made by `{command}`: {worlds} worlds without a change and as many with some.",
        "",
        f"Of {worlds} worlds without a change {tally.unchanged[1]} ended red (exit code 1).",
        "",
        "| true change | budget, pairs of each | cases | slower | faster | same | unsure |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for ratio in (1.0, *CHANGES):
        for pairs in PAIRS:
            counts = [
                tally.verdicts[ratio, pairs, verdict]
                for verdict in ("slower", "faster", "same", "unsure")
            ]
            change = "none" if ratio == 1.0 else f"{ratio - 1:+.0%}"
            lines.append(
                f"| {change} | {pairs:g} | {sum(counts)} | {' | '.join(map(str, counts))} |"
            )
    advice = tally.advice
    if advice["worlds"]:
        lines += [
            "",
            f"A budget was advised in {advice['worlds']} worlds, on average"
            f" {advice['share'] / advice['worlds']:.1f} times the one given. With it, on other"
            f" draws of the same world, {advice['decided']} of {advice['undecided']} cases that it"
            f" was advised for got a verdict ({advice['decided'] / advice['undecided']:.0%}); in"
            f" {advice['all']} worlds every case did.",
        ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="Number of the first world.")
    parser.add_argument("--jobs", type=int, default=2, help="Processes that share the worlds.")
    parser.add_argument("--out", type=Path, default=Path("reports/gate/worlds.md"))
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tally = Tally()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    seeds = range(asked.seed, asked.seed + asked.worlds)
    with Pool(asked.jobs) as pool:
        for number, one in enumerate(pool.imap(tallied, seeds), 1):
            tally.unchanged += one.unchanged
            tally.verdicts += one.verdicts
            tally.advice += one.advice
            if number % 100 == 0 or number == asked.worlds:
                command = "python -m tests.benchmarks.gate_worlds"
                chosen = f"--worlds {number} --seed {asked.seed}"
                asked.out.write_text(tables(tally, f"{command} {chosen}"))


if __name__ == "__main__":
    main()
