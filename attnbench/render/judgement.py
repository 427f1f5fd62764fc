"""The verdict on a user's function: sentences, the panel of its errors, and how fast it is."""

from collections.abc import Iterator, Mapping
from functools import partial
from math import isfinite
from types import MappingProxyType
from typing import Any

from attnbench import units
from attnbench.analysis.judgement import Judgement
from attnbench.analysis.scaling import CrossoverKind
from attnbench.render.cost_tables import INTERVALS, speedup_cell, timed_by
from attnbench.render.grid import EMPTY, Cell, Column, Table, clean, table, words

PANEL = (
    "Errors are the largest, relative to the largest number of the same tensor, against float64."
    " Ours: the mechanism's usual form on the same inputs. Right: within its tolerance, or ten"
    " times our error. Under stress fewer digits, down to half of them, are steady."
)
AXES = MappingProxyType({"bhnd": "[B, H, N, d]", "bnhd": "[B, N, H, d]"})
PARTS = ("right", "steady")
Row = Mapping[str, Any]


def sentences(found: Judgement) -> Iterator[str]:
    """The verdict, and how the function was called."""
    panel = found.found["panel"]
    bad = {part: [r for r in panel if r["part"] == part and not r["passes"]] for part in PARTS}
    said = "; ".join(_said(part, rows) for part, rows in bad.items())
    yield f"{clean(found.name)} as {found.mechanism} ({found.dtype}, {found.device}): {said}."
    ways, untaken = found.found["errors"], [*found.found["untaken"]]
    least, causal = min(ways.values()), "causal" if found.found["causal"] else "not causal"
    others = [f"as {way} it errs by {_error(e).text}" for way, e in ways.items() if e > least]
    text = f"Called with {AXES[found.found['axes']]}, {causal}"
    text += f" ({'; '.join(others)})" if others else ""
    if untaken:
        text += f"; without {', '.join(untaken)}, which it does not take"
    if not found.trains:
        text += "; it has no backward pass, so its output alone is judged"
    yield f"{text}."


def _said(part: str, rows: list[Row]) -> str:
    """`right`, or where it is not."""
    where = [f"{row['inputs']} at N = {units.count(row['tokens'])}" for row in rows]
    return f"NOT {part} ({units.few(where, 3)})" if rows else part


def panel(found: Judgement) -> Table:
    """A row for each of the inputs: the errors of the function and of our form, and the verdict."""
    return table(
        found.found["panel"],
        [
            Column.words("Inputs", "inputs"),
            Column.number("N", "tokens", units.count),
            Column("Output", lambda row: _error(row["errors"].get("output"))),
            Column("Ours", lambda row: _error(row["rival"].get("output")), "ours"),
            Column("Gradient", lambda row: words(_gradient(row) or units.NOTHING)),
            Column("Error", lambda row: _error(row["errors"].get(_gradient(row)))),
            Column("Ours", lambda row: _error(row["rival"].get(_gradient(row))), "our_error"),
            Column("Verdict", lambda row: words(": ".join(filter(None, _verdict(row))))),
        ],
        name="panel",
        title=f"Errors of {clean(found.name)} as {found.mechanism}",
        note=PANEL,
    )


def _gradient(row: Row) -> str:
    """The gradient that has the largest error of what is allowed."""
    errors, allowed = row["errors"], row["allowed"]
    gradients = [name for name in errors if name != "output"]
    return max(gradients, key=lambda name: errors[name] / allowed[name], default="")


def _verdict(row: Row) -> tuple[str, str]:
    return row["verdict"], row["reason"]


def _error(value: float | None) -> Cell:
    if value is None:
        return EMPTY
    return Cell(f"{value:.1e}", value) if isfinite(value) else Cell("not finite")


def speed(found: Judgement) -> Iterator[str]:
    """From which length it is faster."""
    if found.race is None:
        yield "Not raced: what is not right has no speed."
        return
    for mode in found.race.modes:
        crossing = found.crossover(mode)
        match crossing.answer:
            case CrossoverKind.FROM:
                ends = (units.count(round(n)) for n in crossing[1:])
                yield "Faster in {} from N = {} [{}, {}].".format(mode, *ends)
            case CrossoverKind.ALWAYS:
                yield f"Faster in {mode} at every length."
            case CrossoverKind.NEVER:
                yield f"Not faster in {mode} at the longest length."
            case CrossoverKind.UNCLEAR:
                yield f"Whether it is faster in {mode}, and from where, is unsure; raise --budget."


def ratios(found: Judgement) -> Table:
    """How many times faster it is than our form, a row for each length."""
    assert found.race is not None, "asked only after a race"
    rows = [] if found.speedups is None else found.speedups.to_dict("records")
    known = {(row["mode"], row["seq_len"]): row for row in rows}

    def cell(mode: str, length: int) -> Cell:
        row = known.get((mode, length))
        return speedup_cell(row["ratio"], row["low"], row["high"]) if row else EMPTY

    columns = [
        Column(f"{mode.capitalize()}: speed-up", partial(cell, mode)) for mode in found.race.modes
    ]
    return table(
        sorted({*found.race.cases["seq_len"]}),
        [Column("N", lambda length: Cell(units.count(length), int(length))), *columns],
        name="speed",
        title=f"Against {found.race.baselines[0]}",
        note=f"Ratios of {timed_by(found.race.cases)} at level core; both took turns. {INTERVALS}",
    )


def data(found: Judgement) -> dict[str, Any]:
    """All of it as plain data."""
    modes = found.race.modes if found.race else []
    return {
        "function": found.function,
        "mechanism": found.mechanism,
        "dtype": found.dtype,
        "device": found.device,
        "right": found.right,
        "steady": found.steady,
        "text": [*sentences(found), *speed(found)],
        **{name: value for name, value in found.found.items() if name != "outcome"},
        "speedups": [] if found.speedups is None else found.speedups,
        "crossovers": {mode: found.crossover(mode)._asdict() for mode in modes},
    }
