"""Tables of how costs grow with length: exponents of N, and crossovers."""

from collections.abc import Callable, Sequence
from typing import Any

from attnbench import units
from attnbench.analysis.crossover import Answer
from attnbench.analysis.scaling import METRICS, Tail
from attnbench.analysis.summary import Frame, Row
from attnbench.records import CardFacts
from attnbench.render.grid import Cell, Table, bare, words

TIME, MEMORY, _ = METRICS


def complexity(summary: Frame, judged: Frame, cards: Sequence[CardFacts]) -> Table:
    """Table 7 of the Fastformer paper with what was counted and measured.

    `judged` is of `scaling.judged`.
    """
    length = int(summary["seq_len"].max())
    at = summary[summary["seq_len"] == length].drop_duplicates("series").set_index("series")
    by_name = {card.mechanism: card for card in cards}
    kinds = [(what, mode) for what in (TIME, MEMORY) for mode in dict.fromkeys(judged["mode"])]
    rows = []
    for series, found in judged.groupby("series", sort=False):
        card = by_name.get(found["mechanism"].iloc[0])
        fits = {(fit["metric"], fit["mode"]): fit for _, fit in found.iterrows()}
        here: Any = at.loc[str(series)] if series in at.index else None
        rows.append(
            (
                words(series),
                words(card.complexity if card else units.NOTHING),
                _number(here, "parameters", units.count),
                _number(here, "flops", units.flops, per_token=True),
                *(exponent(fits.get(kind)) for kind in kinds),
                words(_disagreements(found)),
            )
        )
    measured = [f"{'Time' if what == TIME else 'Memory'} ∝ N^, {mode}" for what, mode in kinds]
    counted = f"FLOPs per token, N = {units.length(length)}"
    return Table(
        name="complexity",
        title="Complexity: as printed, as counted, as measured",
        columns=("Mechanism", "As printed", "Parameters", counted, *measured, "Disagrees"),
        rows=tuple(rows),
        note="Exponents are slopes of log cost per sequence on log N over the straight tail of "
        "the curve, with their 95 % confidence interval (time) or range (memory); “~” marks a "
        "curve that still bends and – one of fewer than four lengths. FLOPs are of the forward "
        "pass in the form that was measured.",
    )


def crossovers(found: Frame, baseline: str | None = None) -> Table:
    """From which length one series is cheaper than another, for the pairs that have an answer.

    `found` holds every ordered pair; of the two orders the one that crosses, or wins, is shown.
    Pairs without a crossing are shown against `baseline` alone.
    """
    modes = list(dict.fromkeys(found["mode"]))
    what = "faster" if set(found["metric"]) <= {TIME} else "smaller"
    answers = {(r["series"], r["other"], r["mode"]): r for _, r in found.iterrows()}
    rows = []
    for one, other in dict.fromkeys(zip(found["series"], found["other"], strict=True)):
        mine, back = ([answers.get((*p, m)) for m in modes] for p in ((one, other), (other, one)))
        crosses = any(r is not None and r["answer"] in (Answer.FROM, Answer.UNCLEAR) for r in mine)
        if _rank(mine) >= _rank(back) and (crosses or baseline in (one, other)):
            rows.append((words(one), words(other), *map(_crossing, mine)))
            answers = {k: r for k, r in answers.items() if k[:2] != (other, one)}
    return Table(
        name="crossovers" if what == "faster" else "crossovers_memory",
        title=f"The length from which one is {what} than the other, tokens",
        columns=(what.capitalize(), "Than", *(mode.capitalize() for mode in modes)),
        rows=tuple(rows),
        note="Interpolated between measured lengths, with a 95 % confidence interval; ≤ marks a "
        "crossing at or before the shortest. Pairs that are not listed do not cross.",
    )


def _rank(answers: Sequence[Row | None]) -> int:
    """How informative a row of answers is: a crossing more than a win, a win more than nothing."""
    worth = {Answer.FROM: 100, Answer.ALWAYS: 10, Answer.UNCLEAR: 1}
    return sum(worth.get(Answer(r["answer"]), 0) for r in answers if r is not None)


def _crossing(row: Row | None) -> Cell:
    if row is None:
        return Cell(units.NOTHING)
    if row["answer"] != Answer.FROM:
        return Cell(str(row["answer"]))
    ends = (units.length(round(row[end])) for end in ("low", "high"))
    edge = "≤ " if row["length"] <= row["from_len"] else ""
    text = units.interval(edge + units.length(round(row["length"])), *ends)
    return Cell(text, row["length"], row["low"], row["high"])


def _number(
    row: Row | None, key: str, text: Callable[[float], str], per_token: bool = False
) -> Cell:
    if row is None:
        return Cell(units.NOTHING)
    value = float(row[key] / row["tokens"] if per_token else row[key])
    return Cell(text(value), value)


def exponent(fit: Row | None) -> Cell:
    """An exponent with its interval, marked where its curve still bends."""
    if fit is None or not units.known(fit["exponent"]):
        return Cell(units.NOTHING)
    text = units.exponent(fit["exponent"])
    if units.known(fit["low"]):
        text = units.interval(text, units.exponent(fit["low"]), units.exponent(fit["high"]))
    mark = "~" if fit["tail"] == Tail.BENDING else ""
    return Cell(mark + text, fit["exponent"], bare(fit["low"]), bare(fit["high"]))


def _disagreements(fits: Frame) -> str:
    """`time, training: card says 2` for each exponent that is off."""
    return "; ".join(
        f"{'time' if fit['metric'] == TIME else 'memory'}, {fit['mode']}: "
        f"card says {fit['expected']:g}"
        for _, fit in fits[fits["disagrees"]].iterrows()
    )
