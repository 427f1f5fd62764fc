"""Tables of how costs grow with length: exponents of N, crossovers, and the papers' own tables.

A paper's table keeps its layout, with the measured exponents next to the printed ones. An exponent
is marked ↑ or ↓ where the tail is straight and the 95 % confidence interval differs from the
printed exponent by more than `BEND`. Everything outside the core is linear in N, so at other levels
no exponent below 1 is expected.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from math import log, sqrt
from typing import Any, NamedTuple

from attnbench import units
from attnbench.analysis.scaling import BEND, LEAST_EXPONENT, STEPS, CrossoverKind, Tail
from attnbench.analysis.summary import Frame, Row
from attnbench.metrics import DRAWN, MEMORY, TIME
from attnbench.records import PASSES, CardFacts, Level
from attnbench.render.grid import EMPTY, Cell, Column, Table, none_if_nan, number, table, words
from attnbench.render.printed import PrintedCost, printed_costs


def complexity(summary: Frame, fits: Frame, cards: Sequence[CardFacts]) -> Table:
    """Table 7 of the Fastformer paper, with counted and measured costs.

    `fits` comes from `scaling`.
    """
    length = int(summary["seq_len"].max())
    longest = summary[summary["seq_len"] == length].drop_duplicates("series")
    cases: Mapping[Any, Any] = longest.set_index("series").to_dict("index")
    by_name = {card.mechanism: card for card in cards}

    def printed(own: Frame) -> Cell:
        card = by_name.get(own["mechanism"].iloc[0])
        return words(card.complexity if card else units.NOTHING)

    def parameters(own: Frame) -> Cell:
        case = cases.get(_series(own))
        return number(float(case["parameters"]), units.count) if case else EMPTY

    def per_token(own: Frame) -> Cell:
        case = cases.get(_series(own))
        return number(float(case["flops"] / case["outputs"]), units.flops) if case else EMPTY

    counted = f"FLOPs per token, N = {units.count(length)}"
    return table(
        (own for _, own in fits.groupby("series", sort=False)),
        [
            Column("Mechanism", lambda own: words(_series(own)), "series"),
            Column("As printed", printed),
            Column("Parameters", parameters),
            Column(counted, per_token, "flops_per_token_at_longest"),
            *_exponent_columns(fits, lambda kind, own: exponent(_fit(own, kind))),
        ],
        name="complexity",
        title="Complexity: printed, counted and measured",
        note="Exponents are slopes of log cost per sequence on log N over the straight tail of "
        "the curve, with their 95 % confidence interval (time) or range (memory); “~” marks a "
        "curve that still bends and – one of fewer than four lengths. FLOPs are those of the "
        "forward pass in the form that was measured.",
    )


def crossovers(pairs: Frame, baselines: Sequence[str] = (), of: str = "") -> Table:
    """The length from which one series is cheaper than another, for pairs that have an answer.

    `pairs` are in `scaling.one_order`; those without a crossing are shown only if one of them is a
    baseline. `of` ends the title.
    """

    def in_mode(mode: str) -> Column:
        return Column(mode.capitalize(), lambda row: crossing(row[2].get(mode)))

    modes = list(dict.fromkeys(pairs["mode"]))
    rows = []
    for (a, b), own in pairs.groupby(["series", "other"], sort=False):
        crosses = own["answer"].isin((CrossoverKind.FROM, CrossoverKind.UNCLEAR)).any()
        if crosses or {a, b} & {*baselines}:
            rows.append((a, b, {row["mode"]: row for _, row in own.iterrows()}))
    return table(
        rows,
        [
            Column("Faster", lambda row: words(row[0])),
            Column("Than", lambda row: words(row[1])),
            *map(in_mode, modes),
        ],
        name="crossovers",
        title=f"Crossover lengths (time{of}), tokens",
        note="The length from which the first needs less time than the second, interpolated between"
        " measured lengths, with a 95 % confidence interval; ≤ marks a crossing at or before the"
        " shortest length. Pairs that are not listed do not cross.",
    )


def crossing(row: Row | None, suffix: str = "") -> Cell:
    """A crossover length with its confidence interval, or the answer in words.

    `suffix` ends the names of the columns of `row`.
    """
    if row is None:
        return EMPTY
    if row["answer" + suffix] != CrossoverKind.FROM:
        return Cell(str(row["answer" + suffix]))
    length, low, high = (row[name + suffix] for name in ("length", "low", "high"))
    text, *ends = (units.count(round(value)) for value in (length, low, high))
    if length <= row["from_len" + suffix]:
        return Cell(f"≤ {ends[1]}")  # the value is only a bound
    return Cell(text if low == high else units.interval(text, *ends), length, low, high)


def _exponent_columns(
    fits: Frame, cell: Callable[[tuple[str, str], Any], Cell]
) -> Iterator[Column]:
    """`Time exponent, training` of each metric and mode; the peak of decoding is its prompt's."""
    for row in DRAWN:
        for mode in dict.fromkeys(fits["mode"]):
            if row.key != MEMORY or mode in PASSES:
                heading = f"{row.name.capitalize()} exponent, {mode}"
                yield Column(heading, partial(cell, (row.key, mode)))


def _fit(fits: Frame, kind: tuple[str, str]) -> Row | None:
    """The fit of a metric and mode, if there is one."""
    same = fits[(fits["metric"] == kind[0]) & (fits["mode"] == kind[1])]
    return None if same.empty else same.iloc[-1]


def _series(fits: Frame) -> str:
    return str(fits["series"].iloc[0])


def exponent(fit: Row | None) -> Cell:
    """An exponent with its confidence interval, marked where the curve still bends."""
    if fit is None or not units.has_value(fit["exponent"]):
        return EMPTY
    text = units.exponent(fit["exponent"])
    if units.has_value(fit["low"]):
        text = units.interval(text, units.exponent(fit["low"]), units.exponent(fit["high"]))
    mark = "~" if fit["tail"] == Tail.BENDING else ""
    low, high = (none_if_nan(fit[name]) for name in ("low", "high"))
    return Cell(mark + text, fit["exponent"], low, high)


class PrintedRow(NamedTuple):
    """A line of a printed table, and the fits of one series of its mechanism."""

    cost: PrintedCost
    fits: Frame


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
    by_name = {card.mechanism: card for card in cards}
    slips = list(dict.fromkeys(cost.slip for cost in costs if cost.slip))

    def model(row: PrintedRow) -> Cell:
        card = by_name.get(row.cost.mechanism)
        return words(f"{row.cost.name} ({card.authors}, {card.year})" if card else row.cost.name)

    def complexity(row: PrintedRow) -> Cell:
        slip = row.cost.slip
        return words(row.cost.printed + (f" ({slips.index(slip) + 1})" if slip else ""))

    of_survey = [
        Column("Decode", lambda row: Cell("✓" if row.cost.decode == "yes" else "✗")),
        Column("Class", lambda row: words(row.cost.family)),
    ]
    return table(
        (
            PrintedRow(cost, rows)
            for cost in costs
            for _, rows in fits[fits["mechanism"] == cost.mechanism].groupby("series", sort=False)
        ),
        [
            Column("Model / Paper", model),
            Column("Complexity", complexity),
            *(of_survey if any(cost.family for cost in costs) else ()),
            Column("Measured", lambda row: words(_series(row.fits))),
            *_exponent_columns(
                fits, lambda kind, row: _against_printed(_fit(row.fits, kind), row.cost, level)
            ),
        ],
        name=name,
        title=f"{costs[0].source}, with measured exponents",
        note=" ".join([*(f"({i}) {slip}" for i, slip in enumerate(slips, 1)), _note(level)]),
    )


def _note(level: Level) -> str:
    slow = " Projections and the shell, linear in N, flatten a curve until its core dominates."
    return (
        "↑ and ↓ mark an exponent whose 95 % confidence interval lies above or below the printed"
        f" exponent by more than {BEND:g}; for n log n that is anything from 1 to the slope of"
        f" n log n at the middle of the lengths.{'' if level is Level.CORE else slow} “~” marks a"
        " curve that still bends. Memory is compared with the same printed exponent; forms that"
        " never store their scores stay below it."
    )


def _against_printed(fit: Row | None, cost: PrintedCost, level: Level) -> Cell:
    cell = exponent(fit)
    if fit is None or cell.value is None or fit["tail"] != Tail.STRAIGHT:
        return cell
    power = max(cost.power, LEAST_EXPONENT[level])
    if fit["metric"] == TIME and fit["mode"] not in PASSES:
        power = max(power - STEPS, 0.0)
    steepest = power + cost.log / log(sqrt(fit["from_len"] * fit["to_len"]))
    mark = "↑" if fit["low"] > steepest + BEND else "↓" if fit["high"] < power - BEND else ""
    return cell._replace(text=f"{cell.text} {mark}") if mark else cell
