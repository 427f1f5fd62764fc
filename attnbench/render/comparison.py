"""Two sweeps in one table: what changed, the largest changes first."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from attnbench import units
from attnbench.analysis.compare import Comparison
from attnbench.metrics import TABLE
from attnbench.render.check_page import verdict_label
from attnbench.render.conclusions import between
from attnbench.render.grid import Column, Table, bounded, table, words
from attnbench.statistics.verdict import Verdict

NOTE = (
    "A row for several lengths shows the length with the median change. After one round no time is"
    " called slower or faster. If the machine was slower during one sweep, every ratio is shifted"
    " and no interval shows it: attnbench check --base measures two revisions in turns."
)


def changes(comparison: Comparison) -> Table:
    """A row for lengths at which a series changed alike, or is missing in one sweep."""
    rows = comparison.rows
    missing = rows["first"].isna() | rows["second"].isna()
    far = np.log(rows["ratio"].where(rows["ratio"] > 0)).abs()
    rows = rows.assign(far=far, what=rows["metric"].mask(missing, ""))
    every = sorted({*map(int, rows["seq_len"])})
    rows = rows[missing | rows["verdict"].isin((Verdict.SLOWER, Verdict.FASTER))]
    rows = rows.sort_values("far", ascending=False, kind="stable")
    groups = rows.groupby(["series", "mode", "what", "verdict", "reason"], sort=False)
    return table(
        (
            own.iloc[len(own) // 2].to_dict()
            | {"n": ", ".join(between(sorted({*map(int, own["seq_len"])}), every))}
            | {"metrics": ", ".join(TABLE[key].label for key in own["metric"].unique())}
            for _, own in groups
        ),
        [
            Column.words("Mechanism", "series"),
            Column.words("Mode", "mode"),
            Column.words("N", "n"),
            Column.words("Metric", "metrics"),
            Column("Ratio", lambda row: bounded(row["ratio"], row["low"], row["high"])),
            Column("Verdict", lambda row: words(_label(row["verdict"], row["metric"]))),
            Column.words("Reason", "reason"),
        ],
        name="comparison",
        title="Changes from the first sweep to the second",
        note=" ".join([*_tally(comparison), NOTE]),
    )


def _label(verdict: str, metric: str) -> str:
    return verdict_label(Verdict(verdict), TABLE[metric])


def _tally(comparison: Comparison) -> Iterator[str]:
    """`Time: 3 slower, 40 same.` for each metric; then what else differs."""
    rows = comparison.rows
    for key, own in rows.groupby("metric", sort=False):
        counts = Counter(_label(verdict, str(key)) for verdict in own["verdict"])
        parts = ", ".join(f"{count} {word}" for word, count in counts.most_common())
        yield f"{units.capitalised(TABLE[str(key)].label)}: {parts}."
    if comparison.differs:
        yield f"What changed may come from this: {'; '.join(comparison.differs)}."
