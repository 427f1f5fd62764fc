"""Two sweeps as tables: what matters first, then case by case, then crossovers that moved."""

from collections import Counter
from collections.abc import Iterator

from attnbench import units
from attnbench.analysis.compare import Comparison
from attnbench.analysis.crossover import Answer
from attnbench.analysis.summary import Frame, Row
from attnbench.analysis.verdict import Verdict
from attnbench.metrics import TABLE
from attnbench.records import Outcome
from attnbench.render.check_page import in_words
from attnbench.render.cost_tables import why
from attnbench.render.grid import Cell, Table, bare, quantity, words

TIME = "time_s"
UNPAIRED = (
    "The two sweeps were not measured in turns, so they are not paired: if the machine itself was"
    " slower during one of them, every ratio is shifted and no confidence interval shows it."
    " attnbench check --base measures two revisions in turns."
)
CHANGED = (Verdict.SLOWER, Verdict.FASTER)

COLUMNS = ("Case", "Metric", "First", "Second", "Ratio", "Verdict", "Reason")


def news(found: Comparison) -> Table:
    """What changed: whole curves, then times, then counts, then what only one sweep measured."""
    rows = found.rows
    changed = rows[rows["verdict"].isin(CHANGED)]
    timed = _largest_first(changed[changed["metric"] == TIME])
    return Table(
        name="comparison",
        title="What changed in the second sweep against the first",
        columns=COLUMNS,
        rows=(
            *_curves(found.curves),
            *(_compared(row) for _, row in timed.iterrows()),
            *_counted(changed[changed["metric"] != TIME]),
            *_one_sided(rows),
        ),
        note=" ".join([*tally(found), *_doubts(found), *_refused(found), UNPAIRED]),
    )


def every(found: Comparison) -> Table:
    """Case by case and metric by metric, in the order of the plan."""
    return Table(
        name="comparison_all",
        title="The second sweep against the first, case by case",
        columns=COLUMNS,
        rows=tuple(_compared(row) for _, row in found.rows.iterrows()),
        note=" ".join(_refused(found)),
    )


def crossovers(found: Comparison) -> Table:
    """Crossovers whose 95 % confidence intervals do not meet."""
    return Table(
        name="comparison_crossovers",
        title="Crossovers that moved: the length from which one is faster than the other, tokens",
        columns=("Faster", "Than", "Mode", "First", "Second"),
        rows=tuple(
            (
                *(words(row[name]) for name in ("series", "other", "mode")),
                *(_crossing(row, end) for end in ("_1", "_2")),
            )
            for _, row in found.moved.iterrows()
        ),
        note="Only lengths that both sweeps timed are used, and only crossings whose 95 % "
        "confidence intervals do not meet are listed.",
    )


def tally(found: Comparison) -> list[str]:
    """`time: 3 slower, 40 same, 2 missing.` of each metric that was compared."""
    lines = []
    for key, rows in found.rows.groupby("metric", sort=False):
        metric = TABLE[str(key)]
        counts = Counter(in_words(Verdict(verdict), metric) for verdict in rows["verdict"])
        parts = [f"{count} {word}" for word, count in counts.most_common()]
        lines.append(f"{metric.label[0].upper()}{metric.label[1:]}: {', '.join(parts)}.")
    return lines


def _doubts(found: Comparison) -> Iterator[str]:
    """Why times are unsure, once for each reason."""
    unsure = found.rows[(found.rows["verdict"] == Verdict.UNSURE) & (found.rows["reason"] != "")]
    for reason, rows in unsure.groupby("reason", sort=False):
        yield f"{units.many(len(rows), 'time')} unsure: {reason}."


def _refused(found: Comparison) -> list[str]:
    if not found.refusals:
        return []
    compared = TIME in set(found.rows["metric"])
    what = "Times were compared anyway, across" if compared else "Times were not compared, for"
    return [f"{what} {'; '.join(found.refusals)}."]


def _curves(rows: Frame) -> Iterator[tuple[Cell, ...]]:
    """One row for each curve that changed as a whole."""
    nothing = Cell(units.NOTHING)
    for _, row in _largest_first(rows[rows["verdict"].isin(CHANGED)]).iterrows():
        case = words(f"{row['series']}, {row['mode']}, mean of {row['lengths']} lengths")
        yield (case, words("time"), nothing, nothing, _ratio(row), words(row["verdict"]), Cell(""))


def _counted(rows: Frame) -> Iterator[tuple[Cell, ...]]:
    """One row for all cases of a series whose count changed the same way, by the most."""
    for (series, *_), same in rows.groupby(["series", "metric", "verdict"], sort=False):
        worst = _largest_first(same).iloc[0]
        many = f"{series}, {len(same)} cases, the most at {worst['mode']}, N = "
        case = worst["case"] if len(same) == 1 else many + units.tick(worst["seq_len"])
        yield (words(case), *_compared(worst)[1:])


def _one_sided(rows: Frame) -> Iterator[tuple[Cell, ...]]:
    """One row for all lengths of a curve that only one sweep measured, for the same reason."""
    alone = (rows["verdict"] == Verdict.MISSING) & (rows["first"].isna() != rows["second"].isna())
    gone = rows[alone]
    gone = gone.assign(reason=[_in_short(row) for _, row in gone.iterrows()])
    for (series, mode, reason), same in gone.groupby(["series", "mode", "reason"], sort=False):
        lengths = ", ".join(map(units.tick, same["seq_len"].unique()))
        nothing = Cell(units.NOTHING)
        case = words(f"{series}, {mode}, N = {lengths}")
        what = words(", ".join(dict.fromkeys(TABLE[key].label for key in same["metric"])))
        yield (case, what, nothing, nothing, nothing, words(Verdict.MISSING), words(reason))


def _in_short(row: Row) -> str:
    """`skipped in the first: over budget`, without the prediction, which differs by length."""
    if not row["cause"]:
        return str(row["reason"])
    side = "second" if row["first"] > 0 else "first"
    return f"{Outcome.SKIPPED} in the {side}: {why(Outcome.SKIPPED, row['cause'])}"


def _largest_first(rows: Frame) -> Frame:
    """By how far the ratio lies from 1."""
    far = rows["ratio"].where(rows["ratio"] >= 1, 1 / rows["ratio"])
    return rows.loc[far.sort_values(ascending=False, kind="stable").index]


def _compared(row: Row) -> tuple[Cell, ...]:
    metric = TABLE[row["metric"]]
    return (
        words(row["case"]),
        words(metric.label),
        *(Cell(quantity(row[side], metric.unit), bare(row[side])) for side in ("first", "second")),
        _ratio(row),
        words(in_words(Verdict(row["verdict"]), metric)),
        words(row["reason"]),
    )


def _ratio(row: Row) -> Cell:
    """The ratio with its interval; counts have none."""
    point, low, high = (bare(row[name]) for name in ("ratio", "low", "high"))
    if point is None or low == high:
        return Cell(units.ratio(row["ratio"]), point)
    ends = (units.plain(row[name]) for name in ("low", "high"))
    return Cell(units.interval(units.ratio(row["ratio"]), *ends), point, low, high)


def _crossing(row: Row, end: str) -> Cell:
    if row["answer" + end] != Answer.FROM:
        return Cell(str(row["answer" + end]))
    length, low, high = (row[name + end] for name in ("length", "low", "high"))
    ends = (units.length(round(value)) for value in (low, high))
    return Cell(units.interval(units.length(round(length)), *ends), length, low, high)
