"""The verdict on a user's function: sentences, the panel of its errors, and how fast it is."""

from collections.abc import Iterator, Mapping
from math import ceil, inf, isfinite
from types import MappingProxyType
from typing import Any

import numpy as np

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.scaling import CrossoverKind
from attnbench.render.cost_tables import speedup
from attnbench.render.grid import EMPTY, Cell, Column, Table, clean, table, words

PANEL = (
    "Errors are against float64: of the output relative to the largest output, of a gradient to the"
    " largest of all gradients. Ours: the mechanism's usual form on the same inputs. Right: within"
    " the tolerance of the number type, or ten times our error; a verdict names what exceeds that."
    " Under stress fewer digits, down to half of them, are steady."
)
AXES = MappingProxyType({"bhnd": "[B, H, N, d]", "bnhd": "[B, N, H, d]"})
ALIKE = 0.1  # what differs by no more at any length is as fast
Row = Mapping[str, Any]


def sentences(found: Row) -> Iterator[str]:
    """The verdict, and how the function was called."""
    said = "; ".join(_said(part, found["panel"]) for part in ("right", "steady"))
    yield f"{_claim(found)} ({found['dtype']}, {found['device']}): {said}."
    (_, least), *others = found["errors"].items()
    text = f"Called with {AXES[found['axes']]}, {'causal' if found['causal'] else 'not causal'}"
    worse = [f"as {way} it errs by {_error(error).text}" for way, error in others if error > least]
    text += f" ({'; '.join(worse)})" if worse else ""
    if found["untaken"]:
        text += f"; without {', '.join(found['untaken'])}, which it does not take"
    if not found["trains"]:
        text += "; it has no backward pass, so its output alone is judged"
    yield f"{text}."


def _claim(found: Row) -> str:
    """`f as kimi_delta`."""
    return f"{clean(found['form'])} as {found['mechanism']}"


def _said(part: str, rows: list[Row]) -> str:
    """`right`, or where it is not."""
    bad = [row for row in rows if row["part"] == part and not row["passes"]]
    where = [f"{row['inputs']} at N = {units.count(row['tokens'])}" for row in bad]
    return f"NOT {part} ({units.few(where, 3)})" if bad else part


def panel(found: Row) -> Table:
    """A row for each of the inputs: the errors of the function and of our form, and the verdict."""
    return table(
        found["panel"],
        [
            Column.words("Inputs", "inputs"),
            Column.number("N", "tokens", units.count),
            Column.words("Worst", "worst"),
            Column("Error", lambda row: _error(row["errors"].get(row["worst"]))),
            Column("Ours", lambda row: _error(row["rival"].get(row["worst"]))),
            Column("Verdict", lambda row: words(_verdict(row))),
        ],
        name="panel",
        title=f"Errors of {_claim(found)}",
        note=PANEL,
    )


def _verdict(row: Row) -> str:
    """`wrong: dk, dv`."""
    return f"{row['verdict']}: {row['reason']}" if row["reason"] else row["verdict"]


def _error(value: float | None) -> Cell:
    if value is None:
        return EMPTY
    return Cell(f"{value:.1e}", value) if isfinite(value) else Cell("not finite")


def speed(race: Analysis | None) -> Iterator[str]:
    """From which length the function is faster."""
    if race is None or race.speedups is None:
        yield "Not raced: what is not right has no speed."
        return
    crossings, ratios = crossovers(race), race.speedups
    for mode in race.modes:
        row = crossings.get(mode, {"answer": ""})
        ends = ratios.loc[ratios["mode"] == mode, ["low", "high"]].to_numpy(float)
        apart = np.exp(np.abs(np.log(ends)).max()) - 1 if ends.size else inf
        match row["answer"]:
            case CrossoverKind.FROM:
                lengths = (units.count(round(row[key])) for key in ("length", "low", "high"))
                yield "Faster in {} from N = {} [{}, {}].".format(mode, *lengths)
            case CrossoverKind.ALWAYS:
                yield f"Faster in {mode} at every length."
            case CrossoverKind.NEVER:
                yield f"Not faster in {mode} at the longest length."
            case _ if apart <= ALIKE:
                yield f"As fast in {mode} within {ceil(100 * apart)} %."
            case _:
                yield f"Whether it is faster in {mode}, and from where, is unsure; raise --budget."


def crossovers(race: Analysis) -> dict[str, Any]:
    """By mode, `scaling.crossovers` of the function with the mechanism's form."""
    own = race.crossovers[race.crossovers["other"].isin(race.baselines)]
    return {str(mode): row for mode, row in own.set_index("mode").to_dict("index").items()}


def ratios(race: Analysis) -> Iterator[Table]:
    """How many times faster it is than our form, for each mode."""
    if race.speedups is not None:
        for mode in race.modes:
            yield speedup(race.cases, mode, race.baselines, race.speedups)


def data(found: Row, race: Analysis | None) -> dict[str, Any]:
    """All of it as plain data."""
    return {
        **found,
        "text": [*sentences(found), *speed(race)],
        "speedups": race.speedups if race else [],
        "crossovers": crossovers(race) if race else {},
    }
