"""How often the 95 % confidence intervals of raced ratios contain the truth, in simulation.

    python -m tests.benchmarks.coverage > reports/coverage.md

All series of a simulated sweep are equally fast, so every true log ratio is 0. A sweep has 8
blocks; a visit to a block has 6 pairs of laps in mirrored random orders.
`analysis.statistics.ratios`
computes the ratios and intervals, over all pairs of series and all blocks. In every situation the
standard deviation is 2 % between laps, 0.8 % between processes, and a further 0.4 % between the
blocks of a process. The situations add

- drift: the machine slows by 20 % from the first lap to the last;
- steps: 12 times per sweep on average, the speed changes permanently (standard deviation 10 %);
- neighbour: a third of the time it is 30 % slower, in periods of half a visit to a block;
- bursts: each lap is, with a probability of 15 %, slower by 10 to 80 %;
- processes: processes vary by 3 %, and by a further 1 % in each block;
- first laps: that of each visit pays for page faults, up to the 1 % that the warm-up may leave;
- slow core: in spells of half a visit, a third of the time, the core is slower by 5 to 40 %; the
  probes beside the laps, which correlate with them by 0.8 to 0.95, tell how slow it was, and their
  deviations are taken from the times, times a slope that each sweep estimates;
- layouts: where memory lies favours one series over another by 3.5 % (standard deviation of a
  ratio) in all that one server's processes measure, and each round has a server of its own;
- one layout: the same, but a single server for the whole sweep, as no sweep has any more;
- heavy tails: laps and processes follow Student's t with 3 degrees of freedom;
- all: all of these at once;
- one unsteady: processes of the first series vary by 3.2 %, four times as much as others; the
  next row counts only the ratios of that series.

Coverage is given with its standard error; the half-width is the median over sweeps and pairs.

A second table is of sweeps that stop: a block is no longer repeated once all its ratios are known
to the precision, and has at most 12 rounds. The precision is 80, 60 or 40 % of the half-width of
the widest ratio after three rounds. Stopped is the share of blocks that ended before round 12.

A third table is of sweeps that stop by the ratio itself: of two series, of which the first takes
1 to 1.3 times as long, a block is no longer repeated once the interval of its ratio has nothing
within 10 % of 1, from three rounds on, and has at most 12. Mean ratio is the geometric mean of
what these sweeps give for the true ratio. At 1 and at 1.1 nothing should be decided.
"""

import argparse
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from attnbench.analysis.statistics.estimate import half_widths
from attnbench.analysis.statistics.laps import deviations, estimated_slope
from attnbench.analysis.statistics.ratios import DECIDED, certainties, final, means
from attnbench.records import LEAST_ROUNDS
from attnbench.running.order import WANTED
from tests.benchmarks.header import begin

BLOCKS, LAP_PAIRS, MOST = 8, 6, 12
UNSTEADY, ONE_LAYOUT = "one unsteady", "one layout"
LAP = 0.02  # standard deviation of a lap
TRUE_RATIOS = (1.0, 1.1, 1.15, 1.3)
AT_ONCE = 200  # sweeps simulated together, so that the arrays stay small


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The disturbances of a sweep; all sizes refer to log times."""

    drift: float = 0.0
    steps: float = 0.0
    neighbour: float = 0.0
    bursts: float = 0.0  # probability in each lap
    first: float = 0.0  # at most, in the first lap of a visit
    spells: tuple[float, float] = (0.0, 0.0)  # least and most slowness of the core
    probe: float = 0.02  # of probes; in spells 0.05, which makes the correlation with laps 0.9
    between: float = 0.008  # processes
    in_block: float = 0.004
    layout: float = 0.0  # of a ratio, between servers
    servers: bool = True  # one for each round
    heavy: bool = False
    unsteady: float = 1.0  # process variation of the first series relative to the others


SITUATIONS = {
    "drift": Situation(drift=0.2),
    "steps": Situation(steps=0.1),
    "neighbour": Situation(neighbour=0.3),
    "bursts": Situation(bursts=0.15),
    "processes": Situation(between=0.03, in_block=0.01),
    "first laps": Situation(first=0.01),
    "slow core": Situation(spells=(0.05, 0.4), probe=0.05),
    "layouts": Situation(layout=0.035),
    ONE_LAYOUT: Situation(layout=0.035, servers=False),
    "heavy tails": Situation(heavy=True),
    "all": Situation(
        drift=0.2,
        steps=0.1,
        neighbour=0.3,
        bursts=0.15,
        first=0.01,
        spells=(0.05, 0.4),
        probe=0.05,
        between=0.03,
        in_block=0.01,
        layout=0.035,
        heavy=True,
    ),
    UNSTEADY: Situation(unsteady=4.0),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweeps", type=int, default=2_000, help="Sweeps per row.")
    asked = parser.parse_args()
    begin("Coverage of raced ratios", __doc__, "python -m tests.benchmarks.coverage", "numpy")
    print(f"{asked.sweeps:,} sweeps per row.\n")
    print("| situation | series | rounds | coverage | median half-width |")
    print("|---|---:|---:|---:|---:|")
    for name, situation in SITUATIONS.items():
        for series in (2, 6):
            for rounds in (3, 8):
                held, half = simulated(situation, series, rounds, asked.sweeps)
                sizes = f"{series} | {rounds}"
                print(f"| {name} | {sizes} | {cells(held, half)} |", flush=True)
                if name == UNSTEADY and series > 2:
                    first = slice(series - 1)  # the pairs of the first series
                    cell = cells(held[..., first], half[..., first])
                    print(f"| ratios of that series | {sizes} | {cell} |")
    stopping(asked.sweeps // 10)
    deciding(asked.sweeps // 10)


def stopping(sweeps):
    """Print the coverage of sweeps that stop at a precision."""
    print("\n| situation | series | precision | stopped | rounds | coverage | median half-width |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, situation in SITUATIONS.items():
        for series in (2, 6) if name not in (UNSTEADY, ONE_LAYOUT) else ():
            for share in (0.8, 0.6, 0.4):
                held, half, rounds, precision = stopped(situation, series, share, sweeps)
                early = f"{(rounds < MOST).mean():.0%} | {rounds.mean():.1f}"
                sizes = f"{name} | {series} | {precision:.1%}"
                print(f"| {sizes} | {early} | {cells(held, half)} |", flush=True)


def stopped(situation, series, share, sweeps, seed=0):
    """Whether intervals contain the truth, half-widths, rounds [sweeps, blocks], and precision."""
    rng = np.random.default_rng([seed, series, MOST])
    logs, pairs = ratios(situation, series, MOST, sweeps, rng)
    first = [certainties(means(sweep[..., :3], pairs)) for sweep in logs[:100]]
    precision = share * float(np.median([max(block.half for block in sweep) for sweep in first]))
    held, halves, rounds = [], [], []
    for sweep in logs:
        seen = np.full_like(sweep, np.nan)
        going = np.ones(BLOCKS, bool)
        for round_ in range(MOST):
            seen[going, :, round_] = sweep[going, :, round_]
            known = certainties(means(seen, pairs, LEAST_ROUNDS))
            going &= [not block.reaches(precision) for block in known]
        estimated = final(seen, pairs, precision)
        half = half_widths(estimated.se, estimated.df)
        held.append(np.abs(estimated.log) <= half)
        halves.append(half)
        rounds.append(estimated.rounds[:, 0])
    return np.array(held), np.array(halves), np.array(rounds), precision


def deciding(sweeps):
    """Print the coverage of sweeps whose blocks stop once their ratio is decided."""
    print("\n| situation | ratio | decided | rounds | mean ratio | coverage | median half-width |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in ("drift", "processes", "layouts", "all"):
        for truth in TRUE_RATIOS:
            held, half, rounds, mean = until_decided(SITUATIONS[name], truth, sweeps)
            early = f"{(rounds < MOST).mean():.0%} | {rounds.mean():.1f} | {mean:.3f}"
            print(f"| {name} | {truth} | {early} | {cells(held, half)} |", flush=True)


def until_decided(situation, truth, sweeps, seed=0):
    """Of two series with this true ratio, whose blocks stop once it is decided.

    Whether intervals contain the truth, half-widths, rounds [sweeps, blocks], and the mean ratio.
    """
    rng = np.random.default_rng([seed, 2, MOST])
    logs, pairs = ratios(situation, 2, MOST, sweeps, rng)
    held, halves, rounds, found = [], [], [], []
    for sweep in logs + np.log(truth):
        seen = np.full_like(sweep, np.nan)
        going = np.ones((BLOCKS, 1), bool)
        for round_ in range(MOST):
            seen[..., round_] = np.where(going, sweep[..., round_], np.nan)
            if round_ + 1 >= WANTED:
                so_far = means(seen, pairs, LEAST_ROUNDS)
                half = half_widths(so_far.se, so_far.df)
                going &= ~(np.abs(so_far.log) - half > DECIDED)
        estimated = final(seen, pairs, None)
        half = half_widths(estimated.se, estimated.df)
        held.append(np.abs(estimated.log - np.log(truth)) <= half)
        halves.append(half)
        rounds.append(estimated.rounds[:, 0])
        found.append(estimated.log.mean())
    return np.array(held), np.array(halves), np.array(rounds), float(np.exp(np.mean(found)))


def cells(held, half):
    """Coverage with its standard error, and the median half-width."""
    error = held.mean((1, 2)).std() / len(held) ** 0.5
    return f"{held.mean():.1%} ± {error:.1%} | {np.median(half):.2%}"


def simulated(situation, series, rounds, sweeps, seed=0):
    """Whether each interval contains the truth, and half-widths: [sweeps, blocks, pairs]."""
    rng = np.random.default_rng([seed, series, rounds])
    held, halves = [], []
    for first in range(0, sweeps, AT_ONCE):
        logs, pairs = ratios(situation, series, rounds, min(AT_ONCE, sweeps - first), rng)
        for sweep in logs:
            estimated = means(sweep, pairs)
            half = half_widths(estimated.se, estimated.df)
            held.append(np.abs(estimated.log) <= half)
            halves.append(half)
    return np.array(held), np.array(halves)


def ratios(situation, series, rounds, sweeps, rng):
    """Log ratios [sweeps, blocks, pairs, rounds] of simulated laps, and the pairs of series."""
    logs, probes = laps(situation, series, rounds, sweeps, rng)
    slopes = np.array([slope(*sweep) for sweep in zip(logs, probes, strict=True)])
    seconds = np.exp(logs - slopes.reshape(-1, *[1] * (logs.ndim - 1)) * probes).min(-1)
    pairs = list(combinations(range(series), 2))
    a, b = (seconds[:, :, :, list(series_)] for series_ in zip(*pairs, strict=True))
    # [sweeps, rounds, blocks, pairs, pairs of laps]: the ratio of a round is their median
    return np.median(np.log(a / b), axis=-1).transpose(0, 2, 3, 1), pairs


def slope(logs, probes):
    """By how much the laps of a sweep follow its probes; [rounds, blocks, series, pairs, 2]."""
    first = logs.argmin(-1, keepdims=True)
    faster = (np.take_along_axis(values, first, -1)[..., 0] for values in (logs, probes))
    return estimated_slope(*(deviations(values).ravel() for values in faster))


def laps(situation, series, rounds, sweeps, rng):
    """Log seconds of laps and of probes beside them.

    Both are [sweeps, rounds, blocks, series, pairs of laps, 2].
    """
    draw = (
        (lambda *shape: rng.standard_t(3, shape))
        if situation.heavy
        else (lambda *shape: rng.standard_normal(shape))
    )
    visits = (sweeps, rounds, BLOCKS)
    turns = rounds * BLOCKS * LAP_PAIRS * 2 * series
    turn = when(series, *visits, rng)
    logs = LAP * draw(*visits, series, LAP_PAIRS, 2)
    slow = np.take_along_axis(spells(situation, sweeps, turns, series, rng), turn, 1)
    slow = slow.reshape(logs.shape)
    logs += slow
    probes = slow + situation.probe * rng.standard_normal(slow.shape)
    between = np.full((series, 1, 1), situation.between)
    between[0] *= situation.unsteady
    logs += between * draw(sweeps, rounds, 1, series, 1, 1)
    servers = rounds if situation.servers else 1
    logs += situation.layout / 2**0.5 * draw(sweeps, servers, 1, series, 1, 1)
    logs += situation.in_block * draw(*visits, series, 1, 1)
    if situation.bursts:
        hit = rng.random(logs.shape) < situation.bursts
        logs += hit * rng.uniform(np.log(1.1), np.log(1.8), logs.shape)
    if situation.first:
        logs[..., 0, 0] += rng.uniform(0, situation.first, logs.shape[:-2])
    speed = slowness(situation, sweeps, turns, series, rng)
    logs += np.take_along_axis(speed, turn, 1).reshape(logs.shape)
    return logs, probes


def when(series, sweeps, rounds, blocks, rng):
    """The turn of its sweep in which each lap runs, [sweeps, …]."""
    order = rng.random((sweeps, rounds, blocks, LAP_PAIRS, series)).argsort(-1)
    turn = np.stack([order, 2 * series - 1 - order], -1)  # a random order and its mirror image
    turn += 2 * series * np.arange(LAP_PAIRS)[:, None, None]
    visit = rng.random((sweeps, rounds, blocks)).argsort(-1)
    visit[:, 0] = np.arange(blocks)  # the first round goes from short to long
    visit += blocks * np.arange(rounds)[:, None]
    turn += 2 * series * LAP_PAIRS * visit[..., None, None, None]
    return np.swapaxes(turn, 3, 4).reshape(sweeps, -1)


def spells(situation, sweeps, turns, series, rng):
    """Log slowness of the core in each turn, [sweeps, turns], in spells of half a visit."""
    logs, spell = np.zeros((sweeps, turns)), LAP_PAIRS * series
    now = np.zeros(sweeps)
    for turn, chance in enumerate(rng.random((turns, sweeps))):
        begins = (now == 0) & (chance < 1 / (2 * spell))
        ends = (now > 0) & (chance < 1 / spell)
        now = np.where(begins, rng.uniform(*situation.spells, sweeps), np.where(ends, 0.0, now))
        logs[:, turn] = now
    return logs


def slowness(situation, sweeps, turns, series, rng):
    """Log slowdown of the machine in each turn, [sweeps, turns]."""
    logs = situation.drift * np.linspace(0, 1, turns) + np.zeros((sweeps, 1))
    if situation.steps:
        steps = (rng.random(logs.shape) < 12 / turns) * rng.standard_normal(logs.shape)
        logs += situation.steps * steps.cumsum(1)
    if situation.neighbour:
        spell = LAP_PAIRS * series  # turns: half a visit to a block
        busy = rng.random(sweeps) < 1 / 3
        for turn, chance in enumerate(rng.random((turns, sweeps))):
            busy ^= chance < np.where(busy, 1 / spell, 1 / (2 * spell))
            logs[:, turn] += situation.neighbour * busy
    return logs


if __name__ == "__main__":
    main()
