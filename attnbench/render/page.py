"""Everything that `attnbench report` writes, from the analysis of a sweep."""

from collections.abc import Iterator, Mapping, Sequence

from attnbench.analysis.report import Analysis
from attnbench.render import cost_tables, delimited, html, latex, machine_tables, markdown
from attnbench.render.conditions import conditions, warnings
from attnbench.render.figures import MEMORY, TIME, cost_figure
from attnbench.render.grid import Table
from attnbench.render.growth_tables import complexity, crossovers, paper_tables
from attnbench.render.roofline import roofline_figure

# columns of the summary that only the program needs
INTERNAL = ("key", "match")


def report_files(
    analysis: Analysis,
    formats: Sequence[str] = ("png",),
    slopes: bool = False,
    everything: bool = False,
) -> dict[str, bytes]:
    """File name to content: figures in each of `formats` (png, svg, pdf), tables, all cases.

    `slopes` adds local exponents below Fig. 2, `everything` the tables that few need.
    """
    tables = report_tables(analysis, everything)
    files = {
        f"{name}.{suffix}": picture
        for suffix in formats
        for name, picture in _pictures(analysis, suffix, slopes)
    }
    embedded = _embeddable(files) or {
        f"{name}.png": picture for name, picture in _pictures(analysis, "png", slopes)
    }
    name, above = analysis.sweep.name, (warnings(analysis), conditions(analysis))
    pictures = [file for file in files if file.endswith(".png")]
    files["report.html"] = html.page(name, *above, embedded, tables)
    files["tables.md"] = markdown.page(name, *above, pictures, map(markdown.table, tables))
    files["tables.tex"] = latex.page(tables).encode()
    files |= {f"{table.name}.csv": delimited.table(table) for table in tables}
    files["cases.csv"] = delimited.frame(analysis.cases.drop(columns=list(INTERNAL)))
    return files


def _pictures(analysis: Analysis, suffix: str, slopes: bool) -> Iterator[tuple[str, bytes]]:
    """The figures for which the sweep has numbers."""
    cases, tokens = analysis.cases, analysis.sweep.request.tokens
    local_slopes = analysis.local_slopes if slopes else None
    yield "fig2", cost_figure(cases, TIME, tokens, suffix, local_slopes)
    if cases["allocated_peak_bytes"].notna().any():
        yield "memory", cost_figure(cases, MEMORY, tokens, suffix)
    if analysis.roof is not None and analysis.roofline is not None:
        picture = roofline_figure(analysis.roofline, analysis.roof, suffix, cases["series"])
        if picture is not None:
            yield "roofline", picture


def report_tables(analysis: Analysis, everything: bool = False) -> list[Table]:
    """Every table of the report, in reading order; `everything` adds those that few need."""
    cases, request, base = analysis.cases, analysis.sweep.request, analysis.baseline
    tables = [cost_tables.latency(cases, mode, request.tokens) for mode in analysis.modes]
    if base is not None and analysis.speedups is not None:
        speedups = analysis.speedups
        tables += [cost_tables.speedup(cases, mode, base, speedups) for mode in analysis.modes]
    tables += [cost_tables.memory(cases, mode) for mode in analysis.modes]
    tables.append(complexity(cases, analysis.exponents, analysis.sweep.cards))
    tables += paper_tables(analysis.exponents, analysis.sweep.cards, request.level)
    tables += [crossovers(p, base) for p in (analysis.crossovers, analysis.memory_crossovers)]
    if analysis.roof is not None and (roofline := analysis.roofline) is not None:
        modes = dict.fromkeys(roofline["mode"])
        tables += [machine_tables.over_bound(roofline, mode, analysis.roof) for mode in modes]
    if everything and analysis.roof is not None and len(analysis.rates):
        tables.append(machine_tables.rates(analysis.rates))
    if len(analysis.precision):
        tables.append(cost_tables.precision(analysis.precision, request.dtype))
    if len(analysis.kernels):
        tables.append(machine_tables.kernels(analysis.kernels))
    if everything:
        tables.append(machine_tables.predictions(analysis.prediction_errors))
    tables.append(cost_tables.outcomes(cases))
    return tables


def headlines(analysis: Analysis) -> list[Table]:
    """What a terminal shows after a sweep: times, and the cases that were not measured.

    If a series was chosen to compare with, crossovers with it are included.
    """
    cases, tokens = analysis.cases, analysis.sweep.request.tokens
    tables = [cost_tables.latency(cases, mode, tokens) for mode in analysis.modes]
    if analysis.against is not None:
        tables.append(crossovers(analysis.crossovers, analysis.against))
    lost = cost_tables.outcomes(cases)
    return [*tables, lost] if lost.rows else tables


def _embeddable(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The figures that an HTML page can hold, in one format: SVG if there is any, else PNG."""
    for suffix in html.TYPES:
        if figures := {name: files[name] for name in files if name.endswith(f".{suffix}")}:
            return figures
    return {}
