"""Tables of how costs grow with length: exponents of N, crossovers, and the papers' own tables.

A paper's table keeps its layout, with the measured exponents next to the printed ones. An exponent
is marked ↑ or ↓ where the tail is straight and the 95 % confidence interval differs from the
printed exponent by more than `BEND`. Everything outside the core is linear in N, so at other levels
no exponent below 1 is expected.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import log, sqrt
from types import MappingProxyType
from typing import Any

from attnbench import units
from attnbench.analysis.scaling import BEND, LEAST_EXPONENT, METRICS, STEPS, Crossed, Tail
from attnbench.analysis.summary import Frame, Row
from attnbench.claims.published import PrintedCost, printed_costs
from attnbench.records import CardFacts, Level, Mode
from attnbench.render.cost_tables import milliseconds
from attnbench.render.grid import EMPTY, Cell, Table, bare, number, words

TIME, MEMORY, _ = METRICS
METRIC_NAMES: Mapping[str, str] = MappingProxyType({TIME: "time", MEMORY: "memory"})


def complexity(summary: Frame, judged: Frame, cards: Sequence[CardFacts]) -> Table:
    """Table 7 of the Fastformer paper, with counted and measured costs.

    `judged` comes from `scaling.judged`.
    """
    length = int(summary["seq_len"].max())
    longest = summary[summary["seq_len"] == length].drop_duplicates("series").set_index("series")
    by_name = {card.mechanism: card for card in cards}
    rows = []
    for series, fits in judged.groupby("series", sort=False):
        card = by_name.get(fits["mechanism"].iloc[0])
        parameters = per_token = EMPTY
        if series in longest.index:
            case: Any = longest.loc[str(series)]
            parameters = number(float(case["parameters"]), units.count)
            per_token = number(float(case["flops"] / case["outputs"]), units.flops)
        rows.append(
            (
                words(series),
                words(card.complexity if card else units.NOTHING),
                *(parameters, per_token),
                *map(exponent, _by_kind(fits, judged)),
                words(_disagreements(fits)),
            )
        )
    counted = f"FLOPs per token, N = {units.length(length)}"
    head = ("Mechanism", "As printed", "Parameters", counted)
    return Table(
        name="complexity",
        title="Complexity: printed, counted and measured",
        columns=(*head, *_headings(judged), "Differs from paper"),
        keys=(
            *("series", "as_printed", "parameters", "flops_per_token_at_longest"),
            *(f"{METRIC_NAMES[metric]}_exponent_{mode}" for metric, mode in _kinds(judged)),
            "disagrees",
        ),
        rows=tuple(rows),
        note="Exponents are slopes of log cost per sequence on log N over the straight tail of "
        "the curve, with their 95 % confidence interval (time) or range (memory); “~” marks a "
        "curve that still bends and – one of fewer than four lengths. FLOPs are those of the "
        "forward pass in the form that was measured.",
    )


def crossovers(pairs: Frame, baseline: str | None = None) -> Table:
    """The length from which one series is cheaper than another, for pairs that have an answer.

    `pairs` holds every ordered pair; of the two orders the one that crosses, or wins, is shown.
    Pairs without a crossing are shown only if `baseline` is one of them.
    """
    modes = list(dict.fromkeys(pairs["mode"]))
    timed = set(pairs["metric"]) <= {TIME}
    answers = {(r["series"], r["other"], r["mode"]): r for _, r in pairs.iterrows()}
    rows = []
    for a, b in dict.fromkeys(zip(pairs["series"], pairs["other"], strict=True)):
        mine, back = ([answers.get((*pair, m)) for m in modes] for pair in ((a, b), (b, a)))
        crosses = any(
            r is not None and r["answer"] in (Crossed.FROM, Crossed.UNCLEAR) for r in mine
        )
        if _rank(mine) >= _rank(back) and (crosses or baseline in (a, b)):
            rows.append((words(a), words(b), *map(crossing, mine)))
            answers = {key: row for key, row in answers.items() if key[:2] != (b, a)}
    return Table(
        name="crossovers" if timed else "crossovers_memory",
        title=f"Crossover lengths ({'time' if timed else 'memory'}), tokens",
        columns=("Faster" if timed else "Smaller", "Than", *(mode.capitalize() for mode in modes)),
        rows=tuple(rows),
        note=f"The length from which the first needs less {'time' if timed else 'memory'} than the"
        " second, interpolated between measured lengths"
        f"{', with a 95 % confidence interval' if timed else '; peaks are exact'}; ≤ marks a"
        " crossing at or before the shortest length. Pairs that are not listed do not cross.",
    )


def _rank(answers: Sequence[Row | None]) -> int:
    """How informative a row is: a crossing counts more than a win, a win more than nothing."""
    worth = {Crossed.FROM: 100, Crossed.ALWAYS: 10, Crossed.UNCLEAR: 1}
    return sum(worth.get(Crossed(r["answer"]), 0) for r in answers if r is not None)


def crossing(row: Row | None, suffix: str = "") -> Cell:
    """A crossover length with its confidence interval, or the answer in words.

    `suffix` ends the names of the columns of `row`.
    """
    if row is None:
        return EMPTY
    if row["answer" + suffix] != Crossed.FROM:
        return Cell(str(row["answer" + suffix]))
    length, low, high = (row[name + suffix] for name in ("length", "low", "high"))
    at_most = bool(length <= row["from_len" + suffix])
    text, *ends = (units.length(round(value)) for value in (length, low, high))
    shown = "≤ " * at_most + (text if low == high else units.interval(text, *ends))
    return Cell(shown, length, low, high, at_most)


def _headings(fits: Frame) -> list[str]:
    """`Time exponent, training` of each metric and mode."""
    kinds = _kinds(fits)
    return [f"{METRIC_NAMES[metric].capitalize()} exponent, {mode}" for metric, mode in kinds]


def _kinds(fits: Frame) -> list[tuple[str, str]]:
    """The metrics and modes of exponents; the peak of decoding is that of its prompt."""
    modes = dict.fromkeys(fits["mode"])
    kinds = [(metric, mode) for metric in METRIC_NAMES for mode in modes]
    return [kind for kind in kinds if kind != (MEMORY, Mode.DECODE)]


def _by_kind(fits: Frame, every: Frame) -> list[Row | None]:
    """The fits of one series in the order of the headings of `every`, None where one is missing."""
    known = {(fit["metric"], fit["mode"]): fit for _, fit in fits.iterrows()}
    return [known.get(kind) for kind in _kinds(every)]


def exponent(fit: Row | None) -> Cell:
    """An exponent with its confidence interval, marked where the curve still bends."""
    if fit is None or not units.known(fit["exponent"]):
        return EMPTY
    text = units.exponent(fit["exponent"])
    if units.known(fit["low"]):
        text = units.interval(text, units.exponent(fit["low"]), units.exponent(fit["high"]))
    mark = "~" if fit["tail"] == Tail.BENDING else ""
    return Cell(mark + text, fit["exponent"], bare(fit["low"]), bare(fit["high"]))


def _disagreements(fits: Frame) -> str:
    """`time, training: published exponent 2` for each exponent that differs from the card's."""
    return "; ".join(
        f"{METRIC_NAMES[fit['metric']]}, {fit['mode']}: published exponent {fit['expected']:g}"
        for _, fit in fits[fits["disagrees"]].iterrows()
    )


def paper_tables(
    fits: Frame, cards: Sequence[CardFacts], level: Level, steps: Frame | None = None
) -> Iterator[Table]:
    """The printed tables that list mechanisms of the sweep; `fits` comes from `scaling`.

    A paper's table is shown if its own mechanism was swept, the survey's if any that it lists was.
    `steps`, from `decoding`, are shown next to the survey's ticks for what can decode.
    """
    swept = set(fits["mechanism"])
    for name, costs in groupby(printed_costs(), key=lambda cost: cost.table):
        shown = [cost for cost in costs if cost.mechanism in swept]
        if name.partition("_table")[0] in swept | {"survey"} and shown:
            yield _paper_table(name, shown, fits, cards, level, steps)


def _paper_table(
    name: str,
    costs: Sequence[PrintedCost],
    fits: Frame,
    cards: Sequence[CardFacts],
    level: Level,
    steps: Frame | None,
) -> Table:
    by_name = {card.mechanism: card for card in cards}
    decoded = {row["series"]: row for _, row in steps.iterrows()} if steps is not None else {}
    slips = list(dict.fromkeys(cost.slip for cost in costs if cost.slip))
    classed = any(cost.family for cost in costs)
    rows = []
    for cost in costs:
        card = by_name.get(cost.mechanism)
        model = f"{cost.name} ({card.authors}, {card.year})" if card else cost.name
        footnote = f" ({slips.index(cost.slip) + 1})" if cost.slip else ""
        tick = Cell("✓" if cost.decode == "yes" else "✗")
        same = fits[fits["mechanism"] == cost.mechanism]
        for series, own in same.groupby("series", sort=False):
            decodes = (tick, *_decoded(decoded.get(series))) if decoded else (tick,)
            rows.append(
                (
                    words(model),
                    words(cost.printed + footnote),
                    *((*decodes, words(cost.family)) if classed else ()),
                    words(series),
                    *(_against_printed(fit, cost, level) for fit in _by_kind(own, fits)),
                )
            )
    measured = ("Step, ms", "State") if decoded else ()
    head = ("Decode", *measured, "Class") if classed else ()
    return Table(
        name=name,
        title=f"{costs[0].source}, with measured exponents",
        columns=("Model / Paper", "Complexity", *head, "Measured", *_headings(fits)),
        rows=tuple(rows),
        note=" ".join([*(f"({i}) {slip}" for i, slip in enumerate(slips, 1)), _note(level)]),
    )


def _decoded(row: Row | None) -> tuple[Cell, Cell]:
    """Time of a step and size of the state at the longest context, with its length."""
    if row is None:
        return EMPTY, EMPTY
    step, at = milliseconds(row), f" at {units.length(row['seq_len'])}"
    return step._replace(text=step.text + at), number(row["state_bytes"], units.size)


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
    if (fit["mode"], fit["metric"]) == (Mode.DECODE, TIME):
        power = max(power - STEPS, 0.0)
    steepest = power + cost.log / log(sqrt(fit["from_len"] * fit["to_len"]))
    if fit["low"] > steepest + BEND:
        return cell._replace(text=f"{cell.text} ↑")
    return cell._replace(text=f"{cell.text} ↓") if fit["high"] < power - BEND else cell
