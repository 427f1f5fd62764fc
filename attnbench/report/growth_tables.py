"""Tables of how costs grow with length: exponents of N, crossovers, and the papers' own tables.

A paper's table keeps its layout, with the measured exponents next to what is printed.
"""

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from itertools import groupby
from typing import Any

from attnbench.analysis import Answer, Conclusion, Frame
from attnbench.records import PASSES, CardFacts, metrics, units
from attnbench.report.grid import EMPTY, Cell, Column, Table, bounded, table, words
from attnbench.report.phrases import between, faster_at, in_order

EXPONENTS = (
    "In brackets stand the lengths at which an exponent was measured, where these are not those of"
    " the sweep; “~” marks a curve that still bends; “not known”: fewer than four lengths."
)
SYMBOLS = "N, n: length; d, D: width; attnbench models NAME explains the others."


def printed_costs() -> list[dict[str, str]]:
    """Every row of the papers' tables of complexity, in their order (`records/published`)."""
    file = files("attnbench").joinpath("records", "published", "complexity.csv")
    return [*csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")))]


def complexity(cases: Frame, exponents: Sequence[Conclusion], cards: Sequence[CardFacts]) -> Table:
    """Table 7 of the Fastformer paper, with counted and measured costs.

    `exponents` are the conclusions on them.
    """
    length = int(cases["seq_len"].max())
    printed = {c.mechanism: c.complexity for c in cards}
    longest = cases[cases["seq_len"] == length].drop_duplicates("series").set_index("series")
    # of a module without a card they were counted where it ran
    counted = cases.dropna(subset="parameters").sort_values("seq_len").groupby("series")
    counted_rows = longest.assign(
        parameters=counted["parameters"].last(),
        flops_per_token_at_longest=longest["flops"] / longest["outputs"],
    )
    swept = mechanisms(cases)
    return table(
        counted_rows.reindex([*swept])
        .assign(mechanism=[*swept.values()])
        .reset_index()
        .to_dict("records"),
        [
            Column.words("Mechanism", "series"),
            Column("As printed", lambda row: words(printed.get(row["mechanism"], units.NOTHING))),
            Column.number("Parameters", "parameters", units.count),
            Column.number(
                f"FLOPs per token, N = {units.count(length)}",
                "flops_per_token_at_longest",
                units.flops,
            ),
            *_exponents(exponents),
        ],
        name="complexity",
        title="Complexity: printed, counted and measured",
        note=f"Exponents are slopes of log cost per sequence on log N over the longest tail of the"
        f" curve that shows no bend, with their 95 % confidence interval (time) or range (memory)."
        f" {EXPONENTS} FLOPs are of the forward pass in the form that was measured. {SYMBOLS}",
    )


def mechanisms(cases: Frame) -> dict[str, str]:
    """The mechanism of each series, in the order of the sweep."""
    first = cases.drop_duplicates("series")
    return dict(zip(first["series"], first["mechanism"], strict=True))


def crossovers(
    conclusions: Iterable[Conclusion], baselines: Collection[str] = (), of: str = ""
) -> Table:
    """The lengths at which one series becomes faster than another, for pairs that cross.

    `conclusions` are those on *faster from*. With a baseline, what is faster at all that was
    measured is shown too. `of` ends the title.
    """
    pairs: dict[tuple[str, str], dict[str, Conclusion]] = {}
    modes: dict[str, None] = {}
    for one in conclusions:
        pairs.setdefault((one.series[0], one.against[0]), {})[one.mode] = one
        modes[one.mode] = None

    def in_mode(mode: str, pair: tuple[str, str]) -> Cell:
        return faster_at(pairs[pair].get(mode))

    def is_shown(pair: tuple[str, str]) -> bool:
        answers = {one.answer for one in pairs[pair].values()}
        faster = {Answer.ALL, Answer.FASTER_AT} if {*pair} & {*baselines} else set[Answer]()
        return bool(answers & {Answer.FROM, *faster})

    names = [*dict.fromkeys(name for pair in pairs for name in pair)]

    def order(pair: tuple[str, str]) -> list[int]:
        return [names.index(name) for name in pair]

    return table(
        sorted(filter(is_shown, pairs), key=order),
        [
            Column("Faster", lambda pair: words(pair[0])),
            Column("Than", lambda pair: words(pair[1])),
            *(Column(mode.capitalize(), partial(in_mode, mode)) for mode in modes),
        ],
        name="crossovers",
        title=f"Crossover lengths (time{of}), tokens",
        note="The lengths at which the first needs less time than the second. A length between"
        " measured ones is interpolated; its brackets are the measured length at which it is shown"
        " not to be faster, and the one from which on it is. “to” ends what was measured of both."
        " Pairs that are not listed do not cross at the lengths at which both were timed, or cannot"
        " be told apart there; conclusions.csv has these lengths.",
    )


def _exponents(exponents: Sequence[Conclusion]) -> Iterator[Column]:
    """`Time exponent, training` of each metric and mode; the peak of decoding is its prompt's."""
    by_curve = {(one.series[0], one.quantity, one.mode): one for one in exponents}

    def concluded(metric: str, mode: str, row: Mapping[str, Any]) -> Cell:
        return exponent(by_curve.get((row["series"], metric, mode)))

    for metric in metrics.DRAWN:
        for mode in dict.fromkeys(one.mode for one in exponents):
            if metric.key != metrics.MEMORY or mode in PASSES:
                heading = f"{metric.name.capitalize()} exponent, {mode}"
                yield Column(heading, partial(concluded, metric.key, mode))


def exponent(conclusion: Conclusion | None) -> Cell:
    """An exponent with its interval, marked where the curve still bends.

    With the lengths that it holds at, where these are not those of the sweep.
    """
    if conclusion is None:
        return EMPTY
    scope = conclusion.scope
    value = conclusion.value
    if conclusion.answer is Answer.NOT_KNOWN:
        return Cell(str(Answer.NOT_KNOWN))
    text, *further = (units.exponent(end) for end in (value.point, value.low, value.high))
    shown = units.interval(text, *further) if units.has_value(value.low) else text
    mark = "~" if conclusion.answer is Answer.BENDS else ""
    lengths = in_order(between(scope.lengths, scope.of_sweep))
    where = "" if scope.lengths == scope.of_sweep else f" ({lengths})"
    cell = bounded(value.point, value.low, value.high)
    return cell._replace(text=f"{mark}{shown}{where}", lengths=lengths)


def paper_tables(
    cases: Frame, exponents: Sequence[Conclusion], cards: Sequence[CardFacts]
) -> Iterator[Table]:
    """The printed tables that list mechanisms of the sweep; `exponents` are conclusions.

    A paper's table is shown if its own mechanism was swept, the survey's if any that it lists was.
    """
    series = mechanisms(cases)
    swept = {*series.values()}
    for name, costs in groupby(printed_costs(), key=lambda cost: cost["table"]):
        shown = [cost for cost in costs if cost["mechanism"] in swept]
        if name.partition("_table")[0] in swept | {"survey"} and shown:
            yield _paper_table(name, shown, series, exponents, cards)


def _paper_table(
    name: str,
    costs: Sequence[Mapping[str, str]],
    mechanisms: Mapping[str, str],
    exponents: Sequence[Conclusion],
    cards: Sequence[CardFacts],
) -> Table:
    """One printed table of a paper, beside what was measured.

    name: of the table.
    costs: its rows, as printed.
    mechanisms: those of the sweep, by series.
    exponents: the conclusions on them.
    cards: of the mechanisms.
    """
    papers = {card.mechanism: f" ({card.authors}, {card.year})" for card in cards}
    slips = dict.fromkeys(cost["slip"] for cost in costs if cost["slip"])
    footnotes = {slip: f" ({i})" for i, slip in enumerate(slips, 1)}
    rows = [
        {
            "model": cost["name"] + papers.get(cost["mechanism"], ""),
            "complexity": cost["printed"] + footnotes.get(cost["slip"], ""),
            "decode": "✓" if cost["decode"] == "yes" else "✗",
            "class": cost["family"],
            "series": series,
        }
        for cost in costs
        for series, mechanism in mechanisms.items()
        if mechanism == cost["mechanism"]
    ]
    of_survey = [Column.words("Decode", "decode"), Column.words("Class", "class")]
    return table(
        rows,
        [
            Column.words("Model / Paper", "model"),
            Column.words("Complexity", "complexity"),
            *(of_survey if any(cost["family"] for cost in costs) else ()),
            Column.words("Measured", "series", "measured"),
            *_exponents(exponents),
        ],
        name=name,
        title=costs[0]["source"] + ", with measured exponents",
        note="".join(f"{mark.strip()} {slip} " for slip, mark in footnotes.items())
        + f"{EXPONENTS} {SYMBOLS}",
    )
