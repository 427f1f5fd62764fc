"""The papers' own tables of complexity, in their layout, printed and measured side by side.

An exponent is marked ↑ or ↓ where its 95 % confidence interval lies off the printed one by more
than `BEND`, on a tail that is straight: at these lengths the print is not what is seen. Outside the
core all is linear in N, so no print is held to less.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import log, sqrt

from attnbench.analysis.scaling import BEND, Tail
from attnbench.analysis.summary import Frame, Row
from attnbench.claims.published import PrintedCost, printed_costs
from attnbench.records import CardFacts, Level
from attnbench.render.grid import Cell, Table, words
from attnbench.render.growth_tables import exponent

KINDS = (("time_s", "Time"), ("allocated_peak_bytes", "Memory"))


def paper_tables(fits: Frame, cards: Sequence[CardFacts], level: Level) -> Iterator[Table]:
    """The printed tables that the sweep has mechanisms of; `fits` of `scaling`.

    A paper's table needs the paper's own mechanism, the survey's any mechanism that it lists.
    """
    swept = set(fits["mechanism"])
    for name, lines in groupby(printed_costs(), key=lambda line: line.table):
        shown = [line for line in lines if line.mechanism in swept]
        if name.partition("_table")[0] in swept | {"survey"} and shown:
            yield _table(name, shown, fits, cards, level)


def _table(
    name: str,
    lines: Sequence[PrintedCost],
    fits: Frame,
    cards: Sequence[CardFacts],
    level: Level,
) -> Table:
    modes = list(dict.fromkeys(fits["mode"]))
    slips = list(dict.fromkeys(line.slip for line in lines if line.slip))
    classed = any(line.family for line in lines)
    measured = [f"{what} ∝ N^, {mode}" for _, what in KINDS for mode in modes]
    rows = []
    for line in lines:
        mine = fits[fits["mechanism"] == line.mechanism]
        for series, found in mine.groupby("series", sort=False):
            by_kind = {(fit["metric"], fit["mode"]): fit for _, fit in found.iterrows()}
            rows.append(
                (
                    words(_paper(line, cards)),
                    words(line.printed + _mark(line, slips)),
                    *((_tick(line), words(line.family)) if classed else ()),
                    words(series),
                    *(
                        _exponent(by_kind.get((metric, mode)), line, level)
                        for metric, _ in KINDS
                        for mode in modes
                    ),
                )
            )
    head = ("Decode", "Class") if classed else ()
    return Table(
        name=name,
        title=f"{lines[0].source}, with the exponents measured",
        columns=("Model / Paper", "Complexity", *head, "Measured", *measured),
        rows=tuple(rows),
        note=" ".join([*(f"({i}) {slip}" for i, slip in enumerate(slips, 1)), _note(level)]),
    )


def _note(level: Level) -> str:
    slow = " Linear projections and the shell hold a curve down until its core outgrows them."
    return (
        f"↑ and ↓ mark an exponent that lies above or below the printed one by more than {BEND:g},"
        " its interval included; n log n counts as anything between n and its own slope at the"
        f" middle of the lengths.{'' if level is Level.CORE else slow} “~” marks a curve that still"
        " bends. Memory is held against the same print; forms that never store their scores stay"
        " below it."
    )


def _paper(line: PrintedCost, cards: Sequence[CardFacts]) -> str:
    """`Linformer (Wang et al., 2020)`."""
    card = next((card for card in cards if card.mechanism == line.mechanism), None)
    return f"{line.name} ({card.authors}, {card.year})" if card else line.name


def _mark(line: PrintedCost, slips: Sequence[str]) -> str:
    return f" ({slips.index(line.slip) + 1})" if line.slip else ""


def _tick(line: PrintedCost) -> Cell:
    return Cell("✓" if line.decode == "yes" else "✗")


def _exponent(fit: Row | None, line: PrintedCost, level: Level) -> Cell:
    cell = exponent(fit)
    if fit is None or cell.value is None or fit["tail"] != Tail.STRAIGHT:
        return cell
    least = 0.0 if level is Level.CORE else 1.0
    power = max(line.power, least)
    steepest = power + line.log / log(sqrt(fit["from_len"] * fit["to_len"]))
    if fit["low"] > steepest + BEND:
        return cell._replace(text=f"{cell.text} ↑")
    return cell._replace(text=f"{cell.text} ↓") if fit["high"] < power - BEND else cell
