"""Everything that `attnbench report` writes, from the analysis of a sweep."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.analysis import Analysis, Question
from attnbench.records import PASSES, metrics, units
from attnbench.report import charts, cost_tables, delimited, exports, html, latex, markdown
from attnbench.report.answers import answer, cells, in_modes, lead, not_measured, sentences
from attnbench.report.conditions import conditions, rounds_text
from attnbench.report.cost_tables import per_step, timed_by
from attnbench.report.figures import cost_figure, decode_figure, saved
from attnbench.report.grid import Report, Table
from attnbench.report.growth_tables import complexity, crossovers, paper_tables
from attnbench.report.maps import KINDS, map_figure, maps
from attnbench.report.names import suspects_last, with_labels
from attnbench.report.phrases import listed
from attnbench.report.sizes import LAYOUTS, Layout, ReportSize
from attnbench.report.titles import title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ANSWER = "answer_"  # with which the names of the tables of answers begin


def report_files(
    analysis: Analysis,
    formats: Sequence[str] = ("png",),
    tables: Sequence[Table] = (),
    size: ReportSize = ReportSize.PAGE,
    slopes: bool = False,
) -> dict[str, bytes]:
    """File name to content: figures and exports in each of `formats`, tables, all cases.

    The formats are png, svg and pdf, and those of `exports`. `tables` are those of `report_tables`
    unless given. Figures and LaTeX tables fit the place of this `size`. With `slopes` figures show
    how steep costs are that grow as N and as N².
    """
    layout = replace(LAYOUTS[size], guides=slopes)
    cases = analysis.cases
    tables = tables or [*report_tables(analysis)]
    suspects = analysis.suspects
    described = captions(analysis)
    pictures = {
        f"{stem}.{end}": saved(figure, end, layout)
        for stem, figure in ((stem, drawn(stem, analysis, layout)) for stem in described)
        for end in dict.fromkeys((*formats, "png"))  # a page shows the PNG
        if end not in exports.FORMATS
    }
    files = {file: content for file, content in pictures.items() if file[-3:] in formats}
    labelled = with_labels(tables, cases["series"], suspects)
    leading = [table for table in labelled if table.name.startswith(ANSWER)]
    report = Report(
        title=title(analysis),
        answers=sentences(analysis),
        warnings=analysis.warnings,
        conditions=conditions(analysis),
        leading=leading,
        tables=[table for table in labelled if table not in leading],
        cells=cells(analysis),
        lead=lead(analysis),
    )
    by_caption = {text: pictures[f"{stem}.png"] for stem, text in described.items()}
    of_many = {text: by_caption.pop(text) for stem, text in described.items() if stem in KINDS}
    files |= exports.files(analysis, formats)
    files["tables.md"] = markdown.page(report, [name for name in files if name.endswith(".png")])
    files["report.html"] = html.page(report, by_caption, charts.charts(analysis, slopes), of_many)
    files |= {
        f"{one.name}.tex": latex.table(one, layout.table, layout.table_height).encode()
        for one in labelled
        if one.rows
    }
    if leading:
        both, groups = in_modes(leading, analysis.answers.fronts)
        answer = latex.table(both, layout.table, layout.table_height, groups)
        files["answer.tex"] = answer.encode()
    files |= {f"{one.name}.csv": delimited.table(one, suspects) for one in tables}
    files["conclusions.csv"] = delimited.table(listed(analysis.conclusions), suspects)
    return files | {"cases.csv": delimited.frame(analysis.reported)}


def captions(analysis: Analysis) -> dict[str, str]:
    """What each figure of a sweep shows, by the stem of its file, and how it was measured."""
    cases = analysis.cases
    passes = cases["mode"].isin(PASSES)
    timed = cases[metrics.TIME].notna()
    texts = {
        row.figure: f"{row.heading}{' per token' if row.per_token else ''} against length"
        for row in metrics.DRAWN
        if passes.any() and (row.key == metrics.TIME or cases.loc[passes, row.key].notna().any())
    }
    for mode in cases.loc[timed & ~passes, "mode"].unique():
        step = per_step(cases[cases["mode"] == mode])
        texts[str(mode)] = f"Time per {step} and size of the state against context"
    texts |= {stem: kind.caption for stem, kind in maps(analysis).items()}
    lengths = cases["seq_len"]
    method = [f"N = {units.between(lengths.min(), lengths.max())}", timed_by(cases)]
    if timed.any():
        method.append(rounds_text(cases))
    sessions = analysis.sweep.sessions
    method += dict.fromkeys(f"attnbench {s.attnbench}, torch {s.torch}" for s in sessions)
    return {stem: f"{text}. {'; '.join(method)}." for stem, text in texts.items()}


def drawn(stem: str, analysis: Analysis, layout: Layout) -> "Figure":
    """The figure of this stem of `captions`: of a metric, of a mode that steps, or a map."""
    if stem in KINDS:
        return map_figure(analysis, stem, layout)
    for metric in metrics.DRAWN:
        if metric.figure == stem:
            tokens = analysis.sweep.request.batch_tokens
            return cost_figure(analysis.cases, metric, tokens, layout)
    return decode_figure(analysis.cases, stem, layout)


def report_tables(analysis: Analysis) -> Iterator[Table]:
    """Every table of the report, in reading order: the answers first, suspects last in each."""
    return (suspects_last(table, analysis.suspects) for table in _tables(analysis))


def _tables(analysis: Analysis) -> Iterator[Table]:
    cases = analysis.cases
    request = analysis.sweep.request
    answers = analysis.answers
    modes = analysis.modes
    cards = analysis.sweep.cards
    yield from answer(analysis)
    for mode in modes:
        fastest = analysis.about(Question.FASTEST, mode)
        yield cost_tables.latency(cases, mode, request.batch_tokens, fastest)
        if (cases.loc[cases["mode"] == mode, "step"] > 1).any():
            yield cost_tables.per_token(cases, mode)
    if analysis.speedups is not None:
        for mode in modes:
            bases = analysis.baselines_by_mode[mode]
            yield cost_tables.speedup(cases, mode, bases, analysis.speedups, analysis.suspects)
    for key, question in {
        metrics.MEMORY: Question.LEAST_MEMORY,
        metrics.STATE: Question.SMALLEST_STATE,
    }.items():
        for mode in dict.fromkeys(cases.loc[cases[key].notna(), "mode"]):
            least = analysis.about(question, mode)
            yield cost_tables.measured(cases, mode, metrics.TABLE[key], least)
    exponents = analysis.about(Question.EXPONENT)
    yield complexity(cases, exponents, cards)
    yield from paper_tables(cases, exponents, cards)
    yield crossovers(
        analysis.about(Question.FASTER_FROM), analysis.baselines, cost_tables.per_layer(cases)
    )
    for row in (row for row in metrics.ROWS if row.table and cases[row.key].notna().any()):
        for mode in modes:
            yield cost_tables.measured(cases, mode, row)
    if len(analysis.precision):
        dtypes = " and ".join(dict.fromkeys(cases["dtype"]))
        yield cost_tables.precision(analysis.precision, dtypes)
    yield not_measured(answers.missing, answers.lengths)


def headlines(analysis: Analysis, tables: Iterable[Table]) -> list[Table]:
    """Of the tables of a report, those that a terminal shows: times, and what was not measured.

    If a series was chosen to compare with, crossovers with it are included.
    """
    shown = (ANSWER, "latency_", "not_measured", *(["crossovers"] if analysis.against else ()))
    return [table for table in tables if table.name.startswith(shown) and table.rows]
