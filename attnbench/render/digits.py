"""How many digits each form keeps, so that a faster one shows what it costs."""

from math import inf, log10
from typing import Any

from attnbench.analysis.summary import Frame
from attnbench.render.grid import Cell, Table, words


def digits(cases: Frame, dtype: str) -> Table | None:
    """A row per form that was weighed, fewest digits first; None where nothing is known."""
    known = cases[cases["error"].notna()]
    worst = known.groupby(["mechanism", "form", "options"], sort=False)["error"].max()
    if worst.empty:
        return None
    ordered: list[tuple[Any, float]] = sorted(worst.items(), key=lambda item: -item[1])
    return Table(
        name="digits",
        title=f"Digits that hold in {dtype}",
        columns=("Mechanism", "Form", "Options", "Digits"),
        keys=("mechanism", "form", "options", "relative_error"),
        rows=tuple(
            (
                *(words(part) for part in series),
                Cell(f"{-log10(error) if error else inf:.1f}", float(error)),
            )
            for series, error in ordered
        ),
        note="−log10 of ‖y − y₆₄‖ / ‖y₆₄‖, the output of one short sequence against the equations"
        " as written, in float64 with the same parameters, input and draws. Where rounding changes"
        " a hash or another discrete choice, that is in it. The CSV file has the relative error.",
    )
