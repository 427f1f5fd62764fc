"""Everything that `attnbench report` writes, from the analysis of a sweep."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench import units
from attnbench.analysis.report import AT, Analysis
from attnbench.analysis.summary import Frame
from attnbench.metrics import DRAWN, PEAKS, ROWS, TIME
from attnbench.modes import find
from attnbench.records import PASSES, FigureSize, Sweep
from attnbench.render import charts, cost_tables, decoding, delimited, html, latex, markdown, stacks
from attnbench.render.answers import Paragraph, answer, not_measured, paragraphs
from attnbench.render.cases import outcomes, predictions
from attnbench.render.conditions import conditions, origin, warnings
from attnbench.render.cost_tables import timed_by
from attnbench.render.decoding import decode_figure
from attnbench.render.figures import cost_figure
from attnbench.render.grid import Table
from attnbench.render.growth_tables import complexity, crossovers, paper_tables
from attnbench.render.names import named
from attnbench.render.panels import saved
from attnbench.render.symbols import explained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# columns of the summary that only the program needs
INTERNAL = ("key", "match", "batch_scale")

# what is bold in LaTeX
SIMULTANEOUS = (
    "Bold: the fastest at each length and those that tie with it, by 95 % confidence intervals"
    " that hold for all pairs together."
)
LEAST = "Bold: the least at each length."
CLOSE = f"{LEAST[:-1]}, and what needs at most {units.percent(PEAKS)} more."


def report_files(
    analysis: Analysis,
    formats: Sequence[str] = ("png",),
    slopes: bool = False,
    size: FigureSize = FigureSize.TEXT,
    tables: Sequence[Table] = (),
) -> dict[str, bytes]:
    """File name to content: figures in each of `formats` (png, svg, pdf), tables, all cases.

    `size` is that of the figures. `slopes` adds local exponents below Fig. 2. `tables` are those of
    `report_tables` unless given.
    """
    return _files(
        analysis.sweep.name,
        (paragraphs(analysis.answers), warnings(analysis), conditions(analysis)),
        _pictures(analysis, slopes, size),
        captions(analysis.cases, [analysis.sweep]),
        tables or report_tables(analysis),
        analysis.cases,
        formats,
        charts.charts(analysis),
        best(analysis),
        origin(analysis.sweep),
    )


def best(analysis: Analysis) -> dict[str, latex.Best]:
    """The cheapest series at each length and those that tie with it, by the name of the table."""
    answers = analysis.answers
    faster = answers.fastest if answers.intervals else ()
    kinds = [
        (faster, ("latency", "speedup"), SIMULTANEOUS),
        (answers.least_memory, ("memory",), CLOSE),
        (answers.least_state, ("state",), LEAST),
    ]
    return {
        name if name == "state" else f"{name}_{mode}": latex.Best(
            frozenset(
                (series, units.count(winner.seq_len))
                for winner in winners
                if winner.mode == mode
                for series in (winner.first, *(rival.series for rival in winner.ties))
            ),
            note,
        )
        for winners, names, note in kinds
        for mode in dict.fromkeys(winner.mode for winner in winners)
        for name in names
    }


def devices_files(
    analyses: Mapping[str, Analysis],
    cases: Frame,
    formats: Sequence[str],
    size: FigureSize,
) -> dict[str, bytes]:
    """The costs on several devices side by side, from the analysis of each by its name.

    `cases` are those of `variants.side_by_side`; times are per batch of the first device.
    """
    first, *_ = analyses.values()
    lines = [
        [f"{device}: {line}" for device, analysis in analyses.items() for line in said(analysis)]
        for said in (warnings, conditions)
    ]
    answers = [
        Paragraph(f"{device}, {answer.heading[0].lower()}{answer.heading[1:]}", answer.sentences)
        for device, analysis in analyses.items()
        for answer in paragraphs(analysis.answers)
    ]
    tokens = first.sweep.request.batch_tokens
    return _files(
        " and ".join(analyses),
        (answers, lines[0], lines[1]),
        _costs(cases, tokens, size),
        captions(cases, [analysis.sweep for analysis in analyses.values()]),
        devices_tables(analyses, cases),
        cases,
        formats,
        charts.page_data(cases, charts.costs(cases, tokens)) | {"planes": charts.planes(cases)},
    )


def _files(
    name: str,
    above: tuple[Sequence[Paragraph], Sequence[str], Sequence[str]],
    figures: Iterable[tuple[str, "Figure"]],
    captions: Mapping[str, str],
    tables: Sequence[Table],
    cases: Frame,
    formats: Sequence[str],
    interactive: Mapping[str, Any],
    best: Mapping[str, latex.Best] = latex.NO_BEST,
    head: Sequence[str] = (),
) -> dict[str, bytes]:
    """The files of a report, below its answers, warnings and conditions; a figure is drawn once."""
    answers, warned, conditions = above
    drawn = dict(figures)
    files = {
        f"{stem}.{end}": saved(figure, end) for end in formats for stem, figure in drawn.items()
    }
    # an HTML page holds SVG if there is any, else PNG
    end = next((end for end in html.TYPES if end in formats), "png")
    pictures = {
        f"{stem}.{end}": (
            files.get(f"{stem}.{end}") or saved(figure, end),
            captions.get(stem, f"{stem.capitalize()}."),
        )
        for stem, figure in drawn.items()
    }
    shown = [file for file in files if file.endswith(".png")]
    labelled = named(tables, cases["series"])
    first = sum(table.name == "answer" for table in labelled)
    sections = [*map(markdown.table, labelled)]
    files["tables.md"] = markdown.page(
        name, warned, conditions, shown, sections, answers=answers, first=first
    )
    files |= {file: text.encode() for file, text in latex.files(tables, best).items()}
    sheets = {f"{table.name}.csv": delimited.table(table) for table in tables}
    recorded = cases.drop(columns=list(INTERNAL)).dropna(axis="columns", how="all")
    sheets["cases.csv"] = delimited.frame(recorded)
    sheets["outcomes.csv"] = delimited.frame(outcomes(cases))
    files["report.html"] = html.page(
        name,
        labelled[first:],
        head=head,
        answer=next(iter(labelled[:first]), None),
        answers=answers,
        warnings=warned,
        conditions=[line for line in conditions if line not in head],
        pictures=pictures,
        charts=interactive,
        files=sheets,
    )
    return files | sheets


def captions(cases: Frame, sweeps: Sequence[Sweep]) -> dict[str, str]:
    """What each figure of these cases shows, by the stem of its file, and how it was measured."""
    sessions = [session for sweep in sweeps for session in sweep.sessions]
    versions = dict.fromkeys(f"attnbench {s.attnbench}, torch {s.torch}" for s in sessions)
    rounds, lengths = cases.loc[cases[TIME].notna(), "rounds"], cases["seq_len"]
    how = [f"N = {units.between(lengths.min(), lengths.max())}", timed_by(cases)]
    if len(rounds):
        most = units.many(int(rounds.max()), "round")
        how.append(most if rounds.min() == rounds.max() else f"{rounds.min()} to {most}")
    shown = {
        row.figure: f"{row.heading}{' per token' * row.per_token} against length"
        f"{', with 95 % confidence intervals' * row.interval}"
        f"{'; open markers are predicted' * bool(row.predicted and cases[row.key].isna().any())}"
        for row in DRAWN
    }
    shown |= {
        mode: "Time per output token, with 95 % confidence intervals, and size of the state against"
        " context"
        for mode in dict.fromkeys(cases["mode"])
        if find(mode).steps
    }
    return {stem: f"{text}. {'; '.join([*how, *versions])}." for stem, text in shown.items()}


def _pictures(analysis: Analysis, slopes: bool, size: FigureSize) -> Iterator[tuple[str, "Figure"]]:
    """The figures for which the sweep has numbers."""
    cases, tokens = analysis.cases, analysis.sweep.request.batch_tokens
    yield from _costs(cases, tokens, size, analysis.local_slopes if slopes else None)


def _costs(
    cases: Frame, tokens: int | None, size: FigureSize, slopes: Frame | None = None
) -> Iterator[tuple[str, "Figure"]]:
    passes = cases[cases["mode"].isin(PASSES)]
    for metric in DRAWN:
        if len(passes) and (metric.key == TIME or passes[metric.key].notna().any()):
            below = slopes if metric.key == TIME else None
            yield metric.figure, cost_figure(cases, metric, tokens, size, below)
    for mode, steps in cases[~cases["mode"].isin(PASSES)].groupby("mode", sort=False):
        if steps[TIME].notna().any():
            yield str(mode), decode_figure(cases, str(mode), size)


def report_tables(analysis: Analysis, everything: bool = False) -> list[Table]:
    """Every table of the report, in reading order; `everything` adds those that few need."""
    cases, request, base = analysis.cases, analysis.sweep.request, analysis.baseline
    tokens = request.batch_tokens
    tables = [answer(analysis)]
    tables += [cost_tables.latency(cases, mode, tokens) for mode in analysis.modes]
    if base is not None and analysis.speedups is not None:
        speedups = analysis.speedups
        tables += [cost_tables.speedup(cases, mode, base, speedups) for mode in analysis.modes]
    tables += [cost_tables.memory(cases, mode) for mode in analysis.modes]
    if len(analysis.decoding):
        for mode in dict.fromkeys(analysis.decoding["mode"]):
            tables += [decoding.first_token(cases, mode), decoding.state(cases, mode)]
    if cases["filled"].any():
        tables += [decoding.fills(cases)]
    if len(analysis.stacks):
        tables += [stacks.split(analysis.stacks), *stacks.sums(analysis.stacks)]
    cards = analysis.sweep.cards
    papers = paper_tables(analysis.exponents, cards, request.level, analysis.decoding)
    costs = [complexity(cases, analysis.exponents, cards), *papers]
    tables += [explained(table, cases, cards) for table in costs]
    tables += [crossovers(p, base) for p in (analysis.crossovers, analysis.memory_crossovers)]
    further = [row for row in ROWS if row.table and cases[row.key].notna().any()]
    tables += [cost_tables.measured(cases, mode, row) for row in further for mode in analysis.modes]
    if len(analysis.precision):
        tables.append(cost_tables.precision(analysis.precision, request.dtype))
    if len(analysis.kernels):
        tables.append(cost_tables.kernels(analysis.kernels))
    if everything:
        tables.append(predictions(analysis.prediction_errors))
    tables.append(not_measured(analysis.answers.missing, analysis.answers.lengths))
    return tables


def devices_tables(analyses: Mapping[str, Analysis], cases: Frame) -> list[Table]:
    """Times and peaks of every series on every device, and the cases that were not measured."""
    first, *_ = analyses.values()
    modes = dict.fromkeys(mode for analysis in analyses.values() for mode in analysis.modes)
    tokens = first.sweep.request.batch_tokens
    tables = [cost_tables.latency(cases, mode, tokens) for mode in modes]
    tables += [cost_tables.memory(cases, mode) for mode in modes]
    missing = [
        replace(lost, series=f"{lost.series}{AT}{device}")
        for device, analysis in analyses.items()
        for lost in analysis.answers.missing
    ]
    return [*tables, not_measured(missing, sorted(set(cases["seq_len"])))]


def headlines(analysis: Analysis, tables: Iterable[Table]) -> list[Table]:
    """Of the tables of a report, those that a terminal shows: times, and what was not measured.

    If a series was chosen to compare with, crossovers with it are included.
    """
    names = {"answer", "filled", "stacks", "not_measured"}
    names |= {f"latency_{mode}" for mode in analysis.modes}
    if analysis.against is not None:
        names.add("crossovers")
    return [table for table in tables if table.name in names and table.rows]
