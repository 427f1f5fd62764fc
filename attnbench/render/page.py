"""Everything that `attnbench report` writes, from the analysis of a sweep."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import starmap
from operator import call
from typing import TYPE_CHECKING, TypeVar

from attnbench import units
from attnbench.analysis.report import Analysis
from attnbench.analysis.summary import Frame
from attnbench.metrics import DRAWN, MEMORY, ROWS, STATE, TABLE, TIME
from attnbench.modes import find
from attnbench.records import PASSES, FigureSize, Sweep
from attnbench.render import charts, cost_tables, delimited, html, latex, markdown
from attnbench.render.answers import answer, not_measured, sentences
from attnbench.render.cases import outcomes
from attnbench.render.conditions import conditions, origin, warnings
from attnbench.render.cost_tables import timed_by
from attnbench.render.figures import cost_figure, decode_figure
from attnbench.render.grid import Table
from attnbench.render.growth_tables import complexity, crossovers, paper_tables
from attnbench.render.names import named
from attnbench.render.panels import saved
from attnbench.render.symbols import explained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# columns of the summary that only the program needs
INTERNAL = ("key", "match", "sizes", "batch_scale")

T = TypeVar("T")


Failures = list[Exception] | None  # of parts of a report; None: the first one is raised


def report_files(
    analysis: Analysis,
    formats: Sequence[str] = ("png",),
    size: FigureSize = FigureSize.TEXT,
    tables: Sequence[Table] = (),
    failed: Failures = None,
) -> dict[str, bytes]:
    """File name to content: figures in each of `formats` (png, svg, pdf), tables, all cases.

    `size` is that of the figures, and `tables` are those of `report_tables` unless given. A figure
    that cannot be made is left out, and added to `failed`.
    """
    sweep, cases = analysis.sweep, analysis.cases
    interactive = next(kept(map(charts.charts, [analysis]), failed), None)
    figures = _figures(cases, sweep.request.batch_tokens, size)
    drawn, described = _drawn(figures, formats, failed), captions(cases, sweep)
    answers, warned, said = sentences(analysis.answers), warnings(analysis), conditions(analysis)
    tables = tables or report_tables(analysis)
    files = {file: content for file, content in drawn.items() if file[-3:] in formats}
    shown = [file for file in files if file.endswith(".png")]
    labelled = named(tables, cases["series"])
    first = sum(table.name == "answer" for table in labelled)
    lines = map(": ".join, answers.items())
    files["tables.md"] = markdown.page(sweep.name, lines, warned, said, shown, labelled)
    files |= {file: text.encode() for file, text in latex.files(labelled).items()}
    sheets = {f"{table.name}.csv": delimited.table(table) for table in tables}
    recorded = cases.drop(columns=list(INTERNAL)).dropna(axis="columns", how="all")
    sheets["cases.csv"] = delimited.frame(recorded)
    sheets["outcomes.csv"] = delimited.frame(outcomes(cases))
    head = origin(sweep)
    files["report.html"] = html.page(
        sweep.name,
        labelled[first:],
        head=head,
        answer=next(iter(labelled[:first]), None),
        answers=[(heading, [text]) for heading, text in answers.items()],
        warnings=warned,
        conditions=[line for line in said if line not in head],
        pictures={
            file: (content, described.get(stem := file[:-4], f"{stem.capitalize()}."))
            for file, content in drawn.items()
            if file.endswith(".png")
        },
        charts=interactive,
        files=sheets,
    )
    return files | sheets


def kept(parts: Iterator[T], failed: Failures) -> Iterator[T]:
    """The parts that can be made; an error of any other is added to `failed`, if it is given."""
    while True:
        try:
            part = next(parts)
        except StopIteration:
            return
        except Exception as error:
            if failed is None:
                raise
            failed.append(error)
        else:
            yield part


def captions(cases: Frame, sweep: Sweep) -> dict[str, str]:
    """What each figure of these cases shows, by the stem of its file, and how it was measured."""
    versions = dict.fromkeys(f"attnbench {s.attnbench}, torch {s.torch}" for s in sweep.sessions)
    rounds, lengths = cases.loc[cases[TIME].notna(), "rounds"], cases["seq_len"]
    how = [f"N = {units.between(lengths.min(), lengths.max())}", timed_by(cases)]
    if len(rounds):
        most = units.many(int(rounds.max()), "round")
        how.append(most if rounds.min() == rounds.max() else f"{rounds.min()} to {most}")
    shown = {}
    for row in DRAWN:
        text = f"{row.heading} per token" if row.per_token else row.heading
        text += " against length"
        if row.interval:
            text += ", with 95 % confidence intervals"
        if row.predicted and cases[row.key].isna().any():
            text += "; open markers are predicted"
        shown[row.figure] = text
    shown |= {
        mode: "Time per output token, with 95 % confidence intervals, and size of the state against"
        " context"
        for mode in dict.fromkeys(cases["mode"])
        if find(mode).steps
    }
    return {stem: f"{text}. {'; '.join([*how, *versions])}." for stem, text in shown.items()}


def _drawn(
    figures: Iterable[tuple[str, Callable[[], "Figure"]]],
    formats: Sequence[str],
    failed: Failures = None,
) -> dict[str, bytes]:
    """The files of each figure: in each of `formats`, and the PNG that a page shows."""
    ends = dict.fromkeys((*formats, "png"))

    def files(stem: str, draw: Callable[[], "Figure"]) -> dict[str, bytes]:
        figure = draw()
        return {f"{stem}.{end}": saved(figure, end) for end in ends}

    every = kept(starmap(files, figures), failed)
    return {name: content for each in every for name, content in each.items()}


def _figures(
    cases: Frame, tokens: int | None, size: FigureSize
) -> Iterator[tuple[str, Callable[[], "Figure"]]]:
    """The stem of each figure for which these cases have numbers, and what draws it."""
    passes = cases[cases["mode"].isin(PASSES)]
    for metric in DRAWN:
        if len(passes) and (metric.key == TIME or passes[metric.key].notna().any()):
            yield metric.figure, partial(cost_figure, cases, metric, tokens, size)
    for mode, steps in cases[~cases["mode"].isin(PASSES)].groupby("mode", sort=False):
        if steps[TIME].notna().any():
            yield str(mode), partial(decode_figure, cases, str(mode), size)


def report_tables(analysis: Analysis, failed: Failures = None) -> list[Table]:
    """Every table of the report, in reading order.

    A table that cannot be made is left out, and its error added to `failed`, if that is given.
    """
    return [*kept(map(call, _tables(analysis)), failed)]


def _tables(analysis: Analysis) -> Iterator[Callable[[], Table]]:
    cases, request, bases = analysis.cases, analysis.sweep.request, analysis.baselines
    modes, tokens = analysis.modes, request.batch_tokens
    yield partial(answer, analysis)
    found = analysis.answers
    for mode in modes:
        yield partial(cost_tables.latency, cases, mode, tokens, found.fastest)
    if (speedups := analysis.speedups) is not None:
        yield from (partial(cost_tables.speedup, cases, mode, bases, speedups) for mode in modes)
    for key, least in {MEMORY: found.least_memory, STATE: found.least_state}.items():
        for mode in dict.fromkeys(cases.loc[cases[key].notna(), "mode"]):
            yield partial(cost_tables.measured, cases, mode, TABLE[key], least)
    cards = analysis.sweep.cards
    papers = paper_tables(analysis.exponents, cards, request.level)
    for table in (complexity(cases, analysis.exponents, cards), *papers):
        yield partial(explained, table, cases, cards)
    yield partial(crossovers, analysis.crossings, bases, cost_tables.per_layer(cases))
    for row in (row for row in ROWS if row.table and cases[row.key].notna().any()):
        yield from (partial(cost_tables.measured, cases, mode, row) for mode in modes)
    if len(analysis.precision):
        dtypes = " and ".join(dict.fromkeys(cases["dtype"]))
        yield partial(cost_tables.precision, analysis.precision, dtypes)
    if len(analysis.kernels):
        yield partial(cost_tables.kernels, analysis.kernels)
    yield partial(not_measured, found.missing, found.lengths)


def headlines(analysis: Analysis, tables: Iterable[Table]) -> list[Table]:
    """Of the tables of a report, those that a terminal shows: times, and what was not measured.

    If a series was chosen to compare with, crossovers with it are included.
    """
    names = {"answer", "not_measured"}
    names |= {f"latency_{mode}" for mode in analysis.modes}
    if analysis.against:
        names.add("crossovers")
    return [table for table in tables if table.name in names and table.rows]
