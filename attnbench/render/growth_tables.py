"""Tables of how costs grow with length: exponents of N, crossovers, and the papers' own tables.

A paper's table keeps its layout, with the measured exponents next to the printed ones. An exponent
is marked ↑ or ↓ where the tail is straight and the 95 % confidence interval differs from the
printed exponent by more than `BEND`. Everything outside the core is linear in N, so at other levels
no exponent below 1 is expected.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import groupby
from math import log, sqrt
from typing import Any

import msgspec

from attnbench import units
from attnbench.analysis.scaling import BEND, LEAST_EXPONENT, STEPS, CrossoverKind, Tail
from attnbench.analysis.summary import Frame, Row
from attnbench.metrics import DRAWN, MEMORY, TIME
from attnbench.records import PASSES, CardFacts, Level
from attnbench.render.grid import EMPTY, Cell, Column, Table, bounded, table, words


@dataclass(frozen=True, kw_only=True)
class PrintedCost:
    """A row of a paper's table of complexity.

    `power` is the printed exponent of N with all other symbols held fixed; `log` adds a logarithm.
    A `slip` says where the table contradicts the paper's text or omits a cost. Only the survey
    prints `decode`, yes or no, and the family.
    """

    table: str
    source: str
    mechanism: str
    name: str
    printed: str
    power: float
    log: bool
    decode: str
    family: str
    slip: str


def printed_costs() -> tuple[PrintedCost, ...]:
    """Every row, in the order of the tables."""
    file = files("attnbench").joinpath("published", "complexity.csv")
    rows = [*csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")))]
    return msgspec.convert(rows, tuple[PrintedCost, ...], strict=False)


def complexity(cases: Frame, fits: Frame, cards: Sequence[CardFacts]) -> Table:
    """Table 7 of the Fastformer paper, with counted and measured costs; `fits` are of `scaling`."""
    length, printed = int(cases["seq_len"].max()), {c.mechanism: c.complexity for c in cards}
    longest = cases[cases["seq_len"] == length].drop_duplicates("series").set_index("series")
    known = longest.assign(flops_per_token_at_longest=longest["flops"] / longest["outputs"])
    swept = fits.drop_duplicates("series").set_index("series")["mechanism"]
    return table(
        known.reindex(swept.index).assign(mechanism=swept).reset_index().to_dict("records"),
        [
            Column.words("Mechanism", "series"),
            Column("As printed", lambda row: words(printed.get(row["mechanism"], units.NOTHING))),
            Column.number("Parameters", "parameters", units.count),
            Column.number(
                f"FLOPs per token, N = {units.count(length)}",
                "flops_per_token_at_longest",
                units.flops,
            ),
            *_exponents(fits),
        ],
        name="complexity",
        title="Complexity: printed, counted and measured",
        note="Exponents are slopes of log cost per sequence on log N over the straight tail of "
        "the curve, with their 95 % confidence interval (time) or range (memory); “~” marks a "
        "curve that still bends and – one of fewer than four lengths. FLOPs are those of the "
        "forward pass in the form that was measured.",
    )


def crossovers(pairs: Frame, baselines: Sequence[str] = (), of: str = "") -> Table:
    """The length from which one series is cheaper than another, for pairs that cross.

    `pairs` are those of `scaling.crossovers`. With a baseline, what is always cheaper is shown too.
    `of` ends the title.
    """

    def in_mode(mode: str) -> Column:
        return Column(mode.capitalize(), lambda row: crossing(row.get(mode)))

    rows = []
    for (a, b), own in pairs.groupby(["series", "other"], sort=False):
        told = {CrossoverKind.FROM, *([CrossoverKind.ALWAYS] if {a, b} & {*baselines} else ())}
        if own["answer"].isin(told).any():
            modes = {row["mode"]: row for _, row in own.iterrows()}
            rows.append({"faster": a, "than": b, **modes})
    return table(
        rows,
        [
            Column.words("Faster", "faster"),
            Column.words("Than", "than"),
            *map(in_mode, dict.fromkeys(pairs["mode"])),
        ],
        name="crossovers",
        title=f"Crossover lengths (time{of}), tokens",
        note="The length from which the first needs less time than the second, interpolated between"
        " measured lengths, with a 95 % confidence interval; ≤ marks a crossing at or before the"
        " shortest length. Pairs that are not listed do not cross, or cannot be told apart.",
    )


def crossing(row: Row | None, suffix: str = "") -> Cell:
    """A crossover length with its confidence interval, or the answer in words.

    `suffix` ends the names of the columns of `row`. What is only a bound has no value.
    """
    if row is None:
        return EMPTY
    if row["answer" + suffix] != CrossoverKind.FROM:
        return Cell(str(row["answer" + suffix]))
    length, low, high = (row[name + suffix] for name in ("length", "low", "high"))
    text, *ends = (units.count(round(value)) for value in (length, low, high))
    if length <= row["from_len" + suffix]:
        return Cell(f"≤ {ends[1]}")
    return Cell(text if low == high else units.interval(text, *ends), length, low, high)


def _exponents(fits: Frame, level: Level | None = None) -> Iterator[Column]:
    """`Time exponent, training` of each metric and mode; the peak of decoding is its prompt's.

    A row has its `series`, and may have a printed `cost` to compare with at this level.
    """
    known = {(fit["series"], fit["metric"], fit["mode"]): fit for _, fit in fits.iterrows()}

    def fitted(metric: str, mode: str, row: Mapping[str, Any]) -> Cell:
        fit = known.get((row["series"], metric, mode))
        cell = exponent(fit)
        if fit is None or level is None or cell.value is None or fit["tail"] != Tail.STRAIGHT:
            return cell
        return cell._replace(text=cell.text + _departure(fit, row["cost"], level))

    for metric in DRAWN:
        for mode in dict.fromkeys(fits["mode"]):
            if metric.key != MEMORY or mode in PASSES:
                heading = f"{metric.name.capitalize()} exponent, {mode}"
                yield Column(heading, partial(fitted, metric.key, mode))


def exponent(fit: Row | None) -> Cell:
    """An exponent with its confidence interval, marked where the curve still bends."""
    if fit is None or not units.has_value(fit["exponent"]):
        return EMPTY
    text, *ends = (units.exponent(fit[name]) for name in ("exponent", "low", "high"))
    shown = units.interval(text, *ends) if units.has_value(fit["low"]) else text
    mark = "~" if fit["tail"] == Tail.BENDING else ""
    return bounded(fit["exponent"], fit["low"], fit["high"])._replace(text=mark + shown)


def _departure(fit: Row, cost: PrintedCost, level: Level) -> str:
    """` ↑` or ` ↓` where a measured exponent is not the printed one."""
    power = max(cost.power, LEAST_EXPONENT[level])
    if fit["metric"] == TIME and fit["mode"] not in PASSES:
        power = max(power - STEPS, 0.0)
    steepest = power + cost.log / log(sqrt(fit["from_len"] * fit["to_len"]))
    return " ↑" if fit["low"] > steepest + BEND else " ↓" if fit["high"] < power - BEND else ""


def paper_tables(fits: Frame, cards: Sequence[CardFacts], level: Level) -> Iterator[Table]:
    """The printed tables that list mechanisms of the sweep; `fits` comes from `scaling`.

    A paper's table is shown if its own mechanism was swept, the survey's if any that it lists was.
    """
    swept = set(fits["mechanism"])
    for name, costs in groupby(printed_costs(), key=lambda cost: cost.table):
        shown = [cost for cost in costs if cost.mechanism in swept]
        if name.partition("_table")[0] in swept | {"survey"} and shown:
            yield _paper_table(name, shown, fits, cards, level)


def _paper_table(
    name: str,
    costs: Sequence[PrintedCost],
    fits: Frame,
    cards: Sequence[CardFacts],
    level: Level,
) -> Table:
    papers = {card.mechanism: f" ({card.authors}, {card.year})" for card in cards}
    slips = list(dict.fromkeys(cost.slip for cost in costs if cost.slip))
    rows = [
        {
            "model": f"{cost.name}{papers.get(cost.mechanism, '')}",
            "complexity": cost.printed + (f" ({slips.index(cost.slip) + 1})" if cost.slip else ""),
            "decode": "✓" if cost.decode == "yes" else "✗",
            "class": cost.family,
            "series": series,
            "cost": cost,
        }
        for cost in costs
        for series in fits.loc[fits["mechanism"] == cost.mechanism, "series"].unique()
    ]
    of_survey = [Column.words("Decode", "decode"), Column.words("Class", "class")]
    slow = " Projections and the shell, linear in N, flatten a curve until its core dominates."
    return table(
        rows,
        [
            Column.words("Model / Paper", "model"),
            Column.words("Complexity", "complexity"),
            *(of_survey if any(cost.family for cost in costs) else ()),
            Column.words("Measured", "series", "measured"),
            *_exponents(fits, level),
        ],
        name=name,
        title=f"{costs[0].source}, with measured exponents",
        note="".join(f"({i}) {slip} " for i, slip in enumerate(slips, 1))
        + "↑ and ↓ mark an exponent whose 95 % confidence interval lies above or below the printed"
        f" exponent by more than {BEND:g}; for n log n that is anything from 1 to the slope of"
        f" n log n at the middle of the lengths.{'' if level is Level.CORE else slow} “~” marks a"
        " curve that still bends. Memory is compared with the same printed exponent; forms that"
        " never store their scores stay below it.",
    )
