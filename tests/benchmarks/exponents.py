"""How each mechanism grows with N, gathered from sweeps; the last that tells of one counts.

    python -m tests.benchmarks.exponents SWEEP … > reports/exponents.md

The exponent is the slope of log time per sequence on log N over the straight tail, with its 95 %
interval. Expected is the card's; a mechanism agrees if the slope lies within 0.1 of 1, or 0.15 of
1.5 or 2. N ∙ log N and what grows as a sum of terms is held to its largest power.
"""

import argparse
import math
from pathlib import Path

from attnbench.analysis.scaling import judged, scaling
from attnbench.analysis.summary import summary
from attnbench.store.journal import load
from tests.benchmarks.telling import begin

BANDS = {1.0: 0.1, 1.5: 0.15, 2.0: 0.15}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sweeps", type=Path, nargs="+")
    asked = parser.parse_args()
    found = {}
    for folder in asked.sweeps:
        sweep = load(folder)
        rows = judged(scaling(summary(sweep), ("time_s",)), sweep.cards, sweep.request.level)
        for _, row in rows[rows["exponent"].notna()].iterrows():
            found[row["mechanism"]] = (folder.name, row)
    folders = " ".join(map(str, asked.sweeps))
    command = f"python -m tests.benchmarks.exponents {folders}"
    begin("How each mechanism grows", __doc__, command, "torch")
    print("| series | expected | measured | 95 % interval | N | tail | within | sweep |")
    print("|---|---:|---:|---|---|---|---|---|")
    for _, (folder, row) in sorted(found.items()):
        print(line(folder, row))


def line(folder, row):
    """One row of the table."""
    band = BANDS.get(row["expected"], math.nan)
    within = "yes" if abs(row["exponent"] - row["expected"]) <= band else "no"
    cells = (
        row["series"].replace("|", "\\|"),
        f"{row['expected']:g}",
        f"{row['exponent']:.2f}",
        f"{row['low']:.2f} to {row['high']:.2f}",
        f"{row['from_len']:,} to {row['to_len']:,}",
        row["tail"],
        within,
        f"`{folder}`",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
