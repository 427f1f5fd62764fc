"""How the time of each mechanism grows with N; the last of several sweeps takes precedence.

    python -m tests.benchmarks.exponents SWEEP … > reports/exponents.md

The exponent is the slope of log time per sequence over log N in the straight tail, with its 95 %
confidence interval. The expected exponent is that of the card; they agree if the slope is within
0.1 of 1, or within 0.15 of 1.5 or 2. For N ∙ log N and sums, the largest power is expected.
"""

import argparse
import math
from pathlib import Path

from attnbench.analysis.scaling import LEAST_EXPONENT, scaling
from attnbench.analysis.summary import summary
from attnbench.store.journal import load
from attnbench.units import many
from tests.benchmarks.header import write

BANDS = {1.0: 0.1, 1.5: 0.15, 2.0: 0.15}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweeps", type=Path, nargs="+")
    asked = parser.parse_args()
    latest, machines, versions = {}, {}, {}
    for folder in asked.sweeps:
        sweep = load(folder)
        for here in sweep.sessions:
            machines[f"{many(here.threads, 'thread')} of {here.processor}"] = None
            versions[f"torch {here.torch}"] = None
        least = LEAST_EXPONENT[sweep.request.level]
        powers = {card.mechanism: max(card.time_exponent, least) for card in sweep.cards}
        rows = scaling(summary(sweep), ("time_s",))
        rows = rows.assign(expected=rows["mechanism"].map(powers))
        for _, row in rows[rows["exponent"].notna()].iterrows():
            latest[row["mechanism"]] = (folder.name, row)
    folders = " ".join(map(str, asked.sweeps))
    command = f"python -m tests.benchmarks.exponents {folders}"
    title = "How each mechanism grows"
    write(title, __doc__, command, ", ".join(machines), ", ".join(versions))
    print("| series | expected | measured | 95 % CI | N | tail | agrees | sweep |")
    print("|---|---:|---:|---|---|---|---|---|")
    for _, (folder, row) in sorted(latest.items()):
        print(line(folder, row))


def line(folder, row):
    """One row of the table."""
    band = BANDS.get(row["expected"], math.nan)
    known = not math.isnan(row["low"])  # not after a single round
    within = "yes" if abs(row["exponent"] - row["expected"]) <= band else "no"
    cells = (
        row["series"].replace("|", "\\|"),
        f"{row['expected']:g}",
        f"{row['exponent']:.2f}",
        f"{row['low']:.2f} to {row['high']:.2f}" if known else "–",
        f"{row['from_len']:,} to {row['to_len']:,}",
        row["tail"],
        within,
        f"`{folder}`",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
