"""Two sweeps in one table: what changed, the largest changes first."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from attnbench import units
from attnbench.analysis.compare import Comparison
from attnbench.analysis.summary import Row
from attnbench.metrics import RACED, TABLE, TIME
from attnbench.render.check_page import verdict_label
from attnbench.render.cost_tables import factor
from attnbench.render.grid import Cell, Column, Table, table, words
from attnbench.statistics.verdict import Verdict

NOTE = (
    "Of several lengths that with the median change is shown. The two sweeps were not measured in"
    " turns: if the machine itself was slower during one of them, every ratio is shifted and no"
    " confidence interval shows it. attnbench check --base measures two revisions in turns."
)


def changes(comparison: Comparison) -> Table:
    """A row for lengths at which a series changed alike, or is missing in one sweep."""
    rows = comparison.rows
    missing = rows["first"].isna() != rows["second"].isna()
    far = np.log(rows["ratio"].where(rows["ratio"] > 0)).abs()
    rows = rows.assign(far=far, counted=~rows["metric"].isin(RACED))
    rows["what"] = rows["metric"].mask(missing, "")  # not a row for each metric
    rows = rows[missing | rows["verdict"].isin((Verdict.SLOWER, Verdict.FASTER))]
    rows = rows.sort_values(["counted", "far"], ascending=[True, False], kind="stable")
    groups = rows.groupby(["series", "mode", "what", "verdict", "reason"], sort=False)
    return table(
        (
            own.iloc[len(own) // 2].to_dict()
            | {"n": units.between(own["seq_len"].min(), own["seq_len"].max())}
            | {"metrics": ", ".join(TABLE[key].label for key in own["metric"].unique())}
            for _, own in groups
        ),
        [
            Column.words("Mechanism", "series"),
            Column.words("Mode", "mode"),
            Column.words("N", "n"),
            Column.words("Metric", "metrics"),
            Column("Ratio", _ratio),
            Column("Verdict", lambda row: words(_label(row["verdict"], row["metric"]))),
            Column.words("Reason", "reason"),
        ],
        name="comparison",
        title="Changes from the first sweep to the second",
        note=" ".join([*_tally(comparison), NOTE]),
    )


def _ratio(row: Row) -> Cell:
    """The ratio with its confidence interval; counts have none."""
    low, high = (row["low"], row["high"]) if row["low"] < row["high"] else (np.nan, np.nan)
    return Cell(factor(row["ratio"], low, high), row["ratio"], low, high)


def _label(verdict: str, metric: str) -> str:
    return verdict_label(Verdict(verdict), TABLE[metric])


def _tally(comparison: Comparison) -> Iterator[str]:
    """`Time: 3 slower, 40 same.` for each metric; then why times are not compared, or unsure."""
    rows = comparison.rows
    for key, own in rows.groupby("metric", sort=False):
        counts = Counter(_label(verdict, str(key)) for verdict in own["verdict"])
        parts = ", ".join(f"{count} {word}" for word, count in counts.most_common())
        yield f"{units.capitalised(TABLE[str(key)].label)}: {parts}."
    unsure = rows.loc[rows["verdict"] == Verdict.UNSURE, "reason"]
    yield from (f"Unsure: {reason}." for reason in unsure.unique() if reason)
    if comparison.refusals:
        compared = TIME in set(rows["metric"])
        start = "Times were compared although" if compared else "Times were not compared, since"
        yield f"{start} the sweeps differ in {'; '.join(comparison.refusals)}."
