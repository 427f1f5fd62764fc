"""Everything that `attnbench report` writes, from a sweep alone."""

from collections.abc import Iterator, Mapping, Sequence

from attnbench.analysis.crossover import crossovers
from attnbench.analysis.foresight import scores
from attnbench.analysis.moved import named, of
from attnbench.analysis.ratios import Ratios
from attnbench.analysis.roofline import rates, roof, roofline
from attnbench.analysis.scaling import expectations, judged, local_slopes, scaling
from attnbench.analysis.summary import Frame, summary
from attnbench.records import Sweep
from attnbench.render import delimited, findings, floors, html, latex, markdown, scored, tables
from attnbench.render.conditions import conditions
from attnbench.render.digits import digits
from attnbench.render.figures import fig2, memory_figure
from attnbench.render.grid import Table
from attnbench.render.papers import paper_tables
from attnbench.render.roofline import roofline_figure

# columns of the summary that say nothing to a reader of a CSV file
INNER = ("key",)


def report_files(
    sweep: Sweep,
    formats: Sequence[str] = ("png",),
    against: str | None = None,
    slopes: bool = False,
    cases: Frame | None = None,
) -> dict[str, bytes]:
    """File name to content: figures in each of `formats` (png, svg, pdf), tables, all cases.

    `against` is the mechanism or series that others are compared with; `slopes` adds local
    exponents below Fig. 2; `cases` is the summary of the sweep, if it is known already. Raises
    `UnknownMechanism` if the sweep has no `against`.
    """
    cases = summary(sweep) if cases is None else cases
    grids = report_tables(sweep, cases, against)
    files = {
        f"{name}.{suffix}": picture
        for suffix in formats
        for name, picture in _pictures(sweep, cases, suffix, slopes)
    }
    inside = _inside(files) or {
        f"{name}.png": picture for name, picture in _pictures(sweep, cases, "png", slopes)
    }
    above = conditions(sweep, cases)
    files["report.html"] = html.page(sweep.name, above, inside, grids)
    files["tables.md"] = _page(sweep.name, above, grids, [f for f in files if f.endswith(".png")])
    files["tables.tex"] = latex.page(grids).encode()
    files |= {f"{grid.name}.csv": delimited.table(grid) for grid in grids}
    files["cases.csv"] = delimited.frame(cases.drop(columns=list(INNER)))
    return files


def _pictures(sweep: Sweep, cases: Frame, suffix: str, slopes: bool) -> Iterator[tuple[str, bytes]]:
    """The figures that the sweep has numbers for."""
    tokens = sweep.request.tokens
    local = None
    if slopes:
        local, powers = local_slopes(cases), expectations(sweep.cards, sweep.request.level)
        local["expected"] = [powers.get((name, "time_s")) for name in local["mechanism"]]
    yield "fig2", fig2(cases, tokens, suffix, slopes=local)
    if cases["allocated_peak_bytes"].notna().any():
        yield "memory", memory_figure(cases, tokens, suffix)
    peaks = roof(sweep, cases)
    if peaks is not None:
        picture = roofline_figure(roofline(cases, peaks), peaks, suffix, cases["series"])
        if picture is not None:
            yield "roofline", picture


def report_tables(sweep: Sweep, cases: Frame, against: str | None = None) -> list[Table]:
    """Every table of the report, in reading order; `cases` is the summary of the sweep."""
    request = sweep.request
    modes = list(dict.fromkeys(cases["mode"]))
    base = named(cases, against) if against else baseline(cases)
    ratios = Ratios(sweep)
    grids = [tables.latency(cases, mode, request.tokens) for mode in modes]
    if base is not None and cases["series"].nunique() > 1:
        grids += [tables.speedup(cases, mode, base, ratios) for mode in modes]
    grids += [tables.memory(cases, mode) for mode in modes]
    fits = judged(scaling(cases), sweep.cards, request.level)
    grids.append(findings.complexity(cases, fits, sweep.cards))
    grids += paper_tables(fits, sweep.cards, request.level)
    for metric in ("time_s", "allocated_peak_bytes"):
        found = crossovers(cases, metric, ratios=ratios)
        grids.append(findings.crossovers(of(found, base) if against else found, base))
    grids += _floors(sweep, cases)
    if (kept := digits(cases, request.dtype)) is not None:
        grids.append(kept)
    grids.append(scored.predictions(scores(cases)))
    grids.append(tables.outcomes(cases))
    return grids


def _floors(sweep: Sweep, cases: Frame) -> Iterator[Table]:
    peaks = roof(sweep, cases)
    if peaks is None:
        return
    lines = roofline(cases, peaks)
    for mode in dict.fromkeys(lines["mode"]):
        yield floors.over_floor(lines, mode, peaks)
    found = rates(cases)
    if len(found):
        yield floors.apart(found)


def headlines(sweep: Sweep, against: str | None = None, cases: Frame | None = None) -> list[Table]:
    """What a terminal shows when a sweep has ended: times, and the cases that did not end well.

    With `against`, the crossovers with that mechanism or series too.
    """
    cases = summary(sweep) if cases is None else cases
    modes = list(dict.fromkeys(cases["mode"]))
    grids = [tables.latency(cases, mode, sweep.request.tokens) for mode in modes]
    if against:
        base = named(cases, against)
        grids.append(findings.crossovers(of(crossovers(cases, ratios=Ratios(sweep)), base), base))
    ended = tables.outcomes(cases)
    return [*grids, ended] if ended.rows else grids


def baseline(cases: Frame) -> str | None:
    """The series that others are compared with: the transformer's first, else the first of all."""
    series = list(dict.fromkeys(cases["series"]))
    softmax = cases.loc[cases["mechanism"] == "transformer", "series"]
    return next(iter([*softmax, *series]), None)


def _inside(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The figures that a page can hold, all in one format: SVG if there is any, else PNG."""
    for suffix in html.TYPES:
        found = {name: files[name] for name in files if name.endswith(f".{suffix}")}
        if found:
            return found
    return {}


def _page(
    name: str, above: Sequence[str], grids: Sequence[Table], pictures: Sequence[str]
) -> bytes:
    lines = [f"# {markdown.escape(name)}", ""]
    lines += [f"- {markdown.escape(line)}" for line in above]
    lines += [""] + [f"![{name.partition('.')[0]}]({name})" for name in pictures] + [""]
    return ("\n".join(lines) + "\n" + "\n".join(map(markdown.table, grids))).encode()
