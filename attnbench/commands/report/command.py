"""`attnbench report`: draws the figures and tables of a stored sweep again."""

from pathlib import Path
from typing import Annotated

from attnbench.commands import options
from attnbench.commands.options import argument, option, switch
from attnbench.commands.publishing import publish
from attnbench.errors import UsageError
from attnbench.report import ReportSize
from attnbench.running.request import axes, completion

ALWAYS = frozenset({"csv", "latex", "tex", "markdown", "md", "html", "json"})


def report(
    sweep: Annotated[Path, argument("SWEEP", "Folder of the sweep.")],
    formats: str = option(
        "FORMATS",
        "Figures as png, svg, pdf; cases for Bencher (bmf) and pyperf.",
        default="png",
        complete=completion.lists((*axes.FORMATS, *axes.EXPORTS)),
    ),
    size: str = option(
        "SIZE",
        "Width of figures and LaTeX tables: column (3.3 in) or text (6.8 in) of a two-column paper,"
        " page (5.5 in) of a one-column paper, or slides (10 in; tables 5.5 in).",
        default=ReportSize.PAGE,
        complete=completion.words(ReportSize),
    ),
    slopes: bool = switch(
        "--slopes", "Show in figures and charts how steep costs are that grow as N and N²."
    ),
    json_: bool = options.as_json(),
    against: str | None = option(
        "SERIES", "Baseline of speed-ups and crossovers: a mechanism or series."
    ),
    out: Path | None = option("FOLDER", "Folder for the report.  [default: the sweep's]"),
) -> None:
    """Redraw the figures and tables of a stored sweep."""
    if always := ALWAYS & {*axes.words_of(formats)}:
        others = ", ".join((*axes.FORMATS, *axes.EXPORTS))
        raise UsageError(
            f"--formats {formats!r}: {min(always)} is always written; further ones are {others}"
        )
    chosen = options.formats(formats, (*axes.FORMATS, *axes.EXPORTS))
    place = axes.word(size, "--size", ReportSize)
    publish(sweep, None, chosen, json_, against, out, place, slopes)
