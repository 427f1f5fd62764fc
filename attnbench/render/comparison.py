"""Two sweeps as tables: what changed, then case by case, then crossovers that moved."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from attnbench import units
from attnbench.analysis.compare import Comparison
from attnbench.analysis.summary import Frame, Row
from attnbench.metrics import RACED, TABLE, TIME
from attnbench.records import Outcome
from attnbench.render import charts, delimited, html
from attnbench.render.cases import outcome_phrase
from attnbench.render.check_page import verdict_label
from attnbench.render.grid import (
    EMPTY,
    Cell,
    Column,
    Table,
    none_if_nan,
    number,
    quantity,
    table,
    words,
)
from attnbench.render.growth_tables import crossing
from attnbench.statistics.verdict import Verdict

UNPAIRED = (
    "The two sweeps were not measured in turns, so they are not paired: if the machine itself was"
    " slower during one of them, every ratio is shifted and no confidence interval shows it."
    " attnbench check --base measures two revisions in turns."
)
CHANGED = (Verdict.SLOWER, Verdict.FASTER)

COLUMNS = ("Case", "Metric", "First", "Second", "Ratio", "Verdict", "Reason")


def changes(comparison: Comparison) -> Table:
    """What changed: whole curves, then times, then counts, then what only one sweep measured."""
    rows = comparison.rows
    changed = rows[rows["verdict"].isin(CHANGED)]
    raced = changed["metric"].isin(RACED)
    timed = _largest_first(changed[raced])
    return Table(
        name="comparison",
        title="Changes from the first sweep to the second",
        columns=COLUMNS,
        rows=(
            *_curves(comparison.curves),
            *(_compared(row) for _, row in timed.iterrows()),
            *_counted(changed[~raced]),
            *_one_sided(rows),
        ),
        note=" ".join([*tally(comparison), *_unsure(comparison), *_refused(comparison), UNPAIRED]),
    )


def all_cases(comparison: Comparison) -> Table:
    """Every case and metric, in the order of the plan."""
    return Table(
        name="comparison_all",
        title="The second sweep compared with the first, case by case",
        columns=COLUMNS,
        rows=tuple(_compared(row) for _, row in comparison.rows.iterrows()),
        note=" ".join(_refused(comparison)),
    )


def moved_crossovers(comparison: Comparison) -> Table:
    """Crossovers whose 95 % confidence intervals do not overlap."""
    return table(
        comparison.moved.to_dict("records"),
        [
            Column.words("Faster", "series", "faster"),
            Column.words("Than", "other", "than"),
            Column.words("Mode", "mode"),
            Column("First", lambda row: crossing(row, "_1")),
            Column("Second", lambda row: crossing(row, "_2")),
        ],
        name="comparison_crossovers",
        title="Crossover lengths (time) that moved, tokens",
        note="Only lengths that both sweeps timed are used, and only crossovers whose 95 % "
        "confidence intervals do not overlap are listed. ≤ marks a crossing at or before the "
        "shortest length.",
    )


def web_page(
    names: tuple[str, str], comparison: Comparison, warnings: Mapping[str, Sequence[str]]
) -> bytes:
    """The comparison as an HTML page, with every case; `warnings` are those of each sweep."""
    first, second = names
    moved = [moved_crossovers(comparison)] if len(comparison.moved) else []
    tables = [changes(comparison), *moved, all_cases(comparison)]
    return html.page(
        f"{second} compared with {first}",
        tables,
        answers=[("What changed", tally(comparison))],
        warnings=[f"{name} sweep: {line}" for name, lines in warnings.items() for line in lines],
        charts=charts.page_data(comparison.rows, charts.ratios(comparison.rows)),
        files={f"{table.name}.csv": delimited.table(table) for table in tables}
        | {"cases.csv": delimited.frame(comparison.rows)},
    )


def tally(comparison: Comparison) -> list[str]:
    """`Time: 3 slower, 40 same, 2 missing.` for each metric that was compared."""
    sentences = []
    for key, rows in comparison.rows.groupby("metric", sort=False):
        metric = TABLE[str(key)]
        counts = Counter(verdict_label(Verdict(verdict), metric) for verdict in rows["verdict"])
        parts = [f"{count} {word}" for word, count in counts.most_common()]
        sentences.append(f"{units.capitalised(metric.label)}: {', '.join(parts)}.")
    return sentences


def _unsure(comparison: Comparison) -> Iterator[str]:
    """Why times, or other metrics, are unsure, once for each reason."""
    rows = comparison.rows
    unsure = rows[(rows["verdict"] == Verdict.UNSURE) & (rows["reason"] != "")]
    for (key, reason), rows in unsure.groupby(["metric", "reason"], sort=False):
        yield f"{units.many(len(rows), TABLE[str(key)].label)} unsure: {reason}."


def _refused(comparison: Comparison) -> list[str]:
    if not comparison.refusals:
        return []
    compared = TIME in set(comparison.rows["metric"])
    start = "Times were compared although" if compared else "Times were not compared, since"
    return [f"{start} the sweeps differ in {'; '.join(comparison.refusals)}."]


def _curves(rows: Frame) -> Iterator[tuple[Cell, ...]]:
    """One row for each curve that changed as a whole."""
    for _, row in _largest_first(rows[rows["verdict"].isin(CHANGED)]).iterrows():
        case = words(f"{row['series']}, {row['mode']}, mean of {row['lengths']} lengths")
        yield (case, words("time"), EMPTY, EMPTY, _ratio(row), words(row["verdict"]), Cell(""))


def _counted(rows: Frame) -> Iterator[tuple[Cell, ...]]:
    """One row for all cases of a series whose count changed the same way: the largest change."""
    for (series, *_), same in rows.groupby(["series", "metric", "verdict"], sort=False):
        worst = _largest_first(same).iloc[0]
        several = f"{series}, {len(same)} cases, largest change at {worst['mode']}, N = "
        case = worst["case"] if len(same) == 1 else several + units.tick(worst["seq_len"])
        yield (words(case), *_compared(worst)[1:])


def _one_sided(rows: Frame) -> Iterator[tuple[Cell, ...]]:
    """One row for all lengths of a curve that only one sweep measured, for the same reason."""
    one_sided = rows["first"].isna() != rows["second"].isna()
    lost = rows[(rows["verdict"] == Verdict.MISSING) & one_sided]
    lost = lost.assign(reason=[_short_reason(row) for _, row in lost.iterrows()])
    for (series, mode, reason), same in lost.groupby(["series", "mode", "reason"], sort=False):
        lengths = ", ".join(map(units.tick, same["seq_len"].unique()))
        case = words(f"{series}, {mode}, N = {lengths}")
        labels = words(", ".join(dict.fromkeys(TABLE[key].label for key in same["metric"])))
        yield (case, labels, EMPTY, EMPTY, EMPTY, words(Verdict.MISSING), words(reason))


def _short_reason(row: Row) -> str:
    """`skipped in the first: over budget`, without the prediction, which differs by length."""
    if not row["cause"]:
        return str(row["reason"])
    side = "second" if units.has_value(row["first"]) else "first"
    return f"{Outcome.SKIPPED} in the {side}: {outcome_phrase(Outcome.SKIPPED, row['cause'])}"


def _largest_first(rows: Frame) -> Frame:
    """The rows ordered by how far their ratio is from 1."""
    far = rows["ratio"].where(rows["ratio"] >= 1, 1 / rows["ratio"])
    return rows.loc[far.sort_values(ascending=False, kind="stable").index]


def _compared(row: Row) -> tuple[Cell, ...]:
    metric = TABLE[row["metric"]]
    return (
        words(row["case"]),
        words(metric.label),
        *(number(row[side], lambda n: quantity(n, metric.unit)) for side in ("first", "second")),
        _ratio(row),
        words(verdict_label(Verdict(row["verdict"]), metric)),
        words(row["reason"]),
    )


def _ratio(row: Row) -> Cell:
    """The ratio with its confidence interval; counts have none."""
    point, low, high = (none_if_nan(row[name]) for name in ("ratio", "low", "high"))
    if point is None or low == high:
        return Cell(units.ratio(row["ratio"]), point)
    ends = (units.plain(row[name]) for name in ("low", "high"))
    return Cell(units.interval(units.ratio(row["ratio"]), *ends), point, low, high)
