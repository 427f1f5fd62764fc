"""Sweeps from Python: `attnbench.sweep` measures one, `attnbench.load` reads one."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from importlib.util import find_spec
from inspect import Parameter, Signature
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from attnbench.analysis.compare import compare
from attnbench.analysis.recommend import Choice, recommend
from attnbench.analysis.report import Analysis, analyse, concat_cases, variants
from attnbench.analysis.scaling import speedups
from attnbench.analysis.summary import Frame
from attnbench.api import measuring
from attnbench.api.servers import own_server
from attnbench.errors import UsageError
from attnbench.metrics import DRAWN, NAMED, TIME
from attnbench.records import PASSES
from attnbench.render import markdown
from attnbench.render.answers import TITLE, answer, paragraphs
from attnbench.render.conditions import warnings
from attnbench.render.names import named
from attnbench.render.terminal import watched_line
from attnbench.run.session import Progress
from attnbench.store import output
from attnbench.store.journal import load_results
from attnbench.workloads import axes, config, reading
from attnbench.workloads.option import FORMATS, modes
from attnbench.workloads.options import Options, option_specs
from attnbench.workloads.requests import request

# the columns of a summary by which programs tell cases apart
KEYS = ("key", "match")
VALUE = str | int | float | Sequence[str | int | float] | None
QUANTITIES = tuple(row.name for row in DRAWN)
T = TypeVar("T")
MOST = 3  # series that a list in the answers names in a notebook


@dataclass(frozen=True)
class Chart:
    """A picture of a sweep, which a notebook shows if it is an SVG or PNG."""

    suffix: str  # svg, png or pdf
    content: bytes  # of such a file

    def __repr__(self) -> str:
        return f"Chart({self.suffix}, {len(self.content):,} bytes)"

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file. Raises `StoreError`."""
        output.write(Path(path), self.content)

    def _repr_svg_(self) -> str | None:
        return self.content.decode() if self.suffix == "svg" else None

    def _repr_png_(self) -> bytes | None:
        return self.content if self.suffix == "png" else None


class Sweep:
    """A stored sweep; a notebook shows what it found, its times as tables, and a chart.

    All of it follows from the journal in `folder`, as it was when this object was made. With
    several variants (widths, heads, number types or batches), `cases`, `warnings` and a notebook's
    view cover all of them; comparisons and charts need one, which `at` chooses.
    """

    def __init__(self, folder: str | PathLike[str], at: str | None = None) -> None:
        """Raises `StoreError` if the folder holds no readable sweep, or one without cases.

        `at` is the name of a variant, by default all. Raises `UsageError` if there is none.
        """
        self.folder = Path(folder)
        parts = chosen(variants(load_results(self.folder)), at)
        self._analyses = {name: analyse(part) for name, part in parts.items()}

    @property
    def variants(self) -> tuple[str, ...]:
        """The names of the variants, such as `D512-bfloat16`; none if there is only one."""
        return tuple(self._analyses) if len(self._analyses) > 1 else ()

    def at(self, variant: str) -> "Sweep":
        """One of the variants, as a sweep of its own. Raises `UsageError`."""
        part = copy(self)
        part._analyses = chosen(self._analyses, variant)
        return part

    @property
    def cases(self) -> Frame:
        """One row per case, with estimates, counts and outcome, as in `cases.csv`."""
        return concat_cases(each.cases for each in self._analyses.values()).drop(columns=[*KEYS])

    def answer(self, at_length: int | str | None = None) -> str:
        """What the sweep found: a sentence for each question, then one table, in Markdown.

        The table is that of one length, by default the longest that all mechanisms reached. Raises
        `UsageError` if nothing was timed there.
        """
        length = None if at_length is None else axes.size(str(at_length), "at_length")
        parts = []
        for name, each in self._analyses.items():
            analysis = replace(each, at_length=length)
            parts += [f"# {name}"] * bool(self.variants)
            parts += [paragraph.text for paragraph in paragraphs(analysis.answers)]
            shown = named([answer(analysis)], analysis.answers.series)
            parts += map(markdown.table, shown)
        return "\n".join(parts)

    @property
    def warnings(self) -> list[str]:
        """Reasons to trust the numbers less, as text."""
        return [
            f"{name}: {line}" if self.variants else line
            for name, each in self._analyses.items()
            for line in warnings(each)
        ]

    def ratios(self, against: str | None = None) -> Frame:
        """How many times faster than a given series each other one is, by mode and length.

        Columns: `series`, `mode`, `seq_len`, `ratio`, `low` and `high`, the 95 % confidence
        interval, and `paired`, whether the two took turns. `against` is a series or mechanism of
        the sweep, by default the Transformer if it is there. Raises `UnknownMechanism`, and
        `UsageError` if there are several variants.
        """
        analysis = self._against(against)
        if analysis.speedups is not None:
            return analysis.speedups
        return speedups(analysis.cases, analysis.baseline or "", analysis.ratios)

    def crossovers(self, against: str | None = None) -> Frame:
        """The lengths from which one series is faster than another, with confidence intervals.

        Only those with the series `against`, if given. Raises what `ratios` raises.
        """
        return self._against(against).crossovers

    def recommend(
        self, length: int | str, mode: str | None = None, memory: int | str | None = None
    ) -> Frame:
        """The series to choose from at a length, best first, in each mode or one.

        Columns: `mode` and the fields of `analysis.recommend.Choice`; those that tie share a rank,
        and predicted ones have none. `memory` is the most bytes, or text such as "8GiB". Raises
        `UsageError` at what cannot be read, or if there are several variants.
        """
        one = self._one
        limit = axes.memory(memory, "memory") if isinstance(memory, str) else memory
        found = (
            recommend(
                *(one.cases, one.standings, one.sweep.request.batch_tokens),
                *(axes.size(str(length), "length", axes.LONGEST), str(each), limit),
            )
            for each in (one.modes if mode is None else modes(mode, "mode"))
        )
        rows = [{"mode": r.mode} | asdict(choice) for r in found for choice in r.choices]
        columns = ["mode", *(field.name for field in fields(Choice))]
        return Frame(rows, columns=columns)

    def compare(self, earlier: "Sweep", anyway: bool = False) -> Frame:
        """This sweep against an earlier one: a row for each case and metric, with its verdict.

        The columns are those of `analysis.compare.Comparison`. Times of different machines are
        compared only `anyway`. Raises `UsageError` if the sweeps have no case in common, or one of
        them several variants.
        """
        return compare(earlier._one, self._one, anyway=anyway).rows

    def plot(self, quantity: str = "time", suffix: str = "svg") -> Chart:
        """A chart of `time`, `memory` or another drawn metric by length, as svg, png or pdf.

        The time of a sweep that only decodes is that of a step, above the bytes of the state.
        Raises `UsageError` if that was not measured, or if there are several variants.
        """
        if quantity not in QUANTITIES:
            raise UsageError(f"quantity {quantity!r} is not one of {', '.join(QUANTITIES)}")
        if suffix not in FORMATS:
            raise UsageError(f"suffix {suffix!r} is not one of {', '.join(FORMATS)}")
        return drawn(self._one, quantity, suffix)

    def __repr__(self) -> str:
        measured = int((self.cases["outcome"] == "ok").sum())
        of = f", variants {', '.join(self.variants)}" if self.variants else ""
        return f"Sweep({str(self.folder)!r}: {measured} of {len(self.cases)} cases measured{of})"

    def _repr_html_(self) -> str:
        return "".join(shown(name, each) for name, each in self._analyses.items())

    @property
    def _one(self) -> Analysis:
        """The analysis of the only variant."""
        if self.variants:
            raise UsageError(
                f"the sweep in '{self.folder}' has several variants, {', '.join(self.variants)};"
                f" choose one, as in sweep.at({self.variants[0]!r})"
            )
        return next(iter(self._analyses.values()))

    def _against(self, series: str | None) -> Analysis:
        return self._one if series is None else analyse(self._one.sweep, series)


def chosen(parts: Mapping[str, T], variant: str | None) -> dict[str, T]:
    """The part of the variant, by default those of all. Raises `UsageError` with their names."""
    if variant is None:
        return dict(parts)
    names = [name for name in parts if name]
    if variant not in names:
        there = f"its variants are {', '.join(names)}" if names else "it has only one"
        raise UsageError(f"the sweep has no variant {variant!r}; {there}")
    return {variant: parts[variant]}


def drawn(analysis: Analysis, quantity: str, suffix: str) -> Chart:
    """The chart of one variant. Raises `UsageError` if that was not measured."""
    from attnbench.render.decoding import decode_figure
    from attnbench.render.figures import cost_figure
    from attnbench.render.panels import saved

    cases, tokens = analysis.cases, analysis.sweep.request.batch_tokens
    if cases["mode"].isin(PASSES).any():
        return Chart(suffix, saved(cost_figure(cases, NAMED[quantity], tokens), suffix))
    if NAMED[quantity].key == TIME:
        mode = str(cases["mode"].iloc[0])
        return Chart(suffix, saved(decode_figure(cases, mode), suffix))
    raise UsageError(
        f"there is no chart of the {quantity} of decoding; plot() has the bytes of the state,"
        f" and `cases` has `{NAMED[quantity].key}`"
    )


def shown(variant: str, analysis: Analysis) -> str:
    """HTML of what was found, and the tables and chart of times."""
    from attnbench.render.cost_tables import latency
    from attnbench.render.html import fragment
    from attnbench.render.page import captions

    of, tokens = f"{variant}: " * bool(variant), analysis.sweep.request.batch_tokens
    tables = [answer(analysis)]
    tables += [latency(analysis.cases, mode, tokens) for mode in analysis.modes]
    chart = "fig2" if set(PASSES) & {*analysis.modes} else analysis.modes[0]
    caption = captions(analysis.cases, [analysis.sweep])[chart]
    return fragment(
        f"{of}{TITLE}",
        # names are the targets of links, which a page has only once
        [
            replace(t, name=f"{variant} {t.name}".strip(), title=f"{of}{t.title}")
            for t in named(tables, analysis.answers.series)
        ],
        answers=paragraphs(analysis.answers, most=MOST),
        warnings=warnings(analysis),
        pictures={f"{chart}.png": (drawn(analysis, "time", "png").content, caption)},
    )


def load(folder: str | PathLike[str], at: str | None = None) -> Sweep:
    """A stored sweep, or only its variant `at`, such as `D512`.

    Raises `StoreError` if the folder holds none, or one without cases, and `UsageError` if it has
    no such variant.
    """
    return Sweep(folder, at)


def sweep(
    *,
    out: str | PathLike[str] | None = None,
    progress: bool | Callable[[Progress], None] = True,
    **options: Any,
) -> Sweep:
    """Measure a sweep, `attnbench.sweep(models=["fastformer"], lengths=[512, 1024])`; return it.

    The options are those of `attnbench sweep`, with underscores, as text, numbers or lists. `out`
    is the folder, by default `reports/<date>`. Terminals and notebooks show the `progress` unless
    it is False; a function is called with it whenever another process has its turn. An interrupted
    sweep keeps what it measured. Raises `UsageError`, `CannotRun` or `StoreError`.
    """
    refuse_useless(options)
    given = Options.of(options)
    requested = request(given)
    folder = Path(out or Path("reports") / f"{datetime.now():%Y%m%d-%H%M%S}")
    measuring.refuse_begun(folder)
    settings = requested.settings
    with own_server(settings.threads, settings.seed) as server:
        plan = reading.plan(requested, server)
        options_file = config.content(given, requested)
        with show_progress(progress) as observe:
            measuring.measure(
                requested, plan, server, folder, options_file=options_file, observe=observe
            )
    measuring.refuse_empty(folder)
    return Sweep(folder)


def signature() -> Signature:
    """The signature of `sweep` with each option that has an effect there."""
    own = inspect.signature(sweep)
    *first, _ = own.parameters.values()
    options, hints = Options(), get_type_hints(Options)
    named = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=getattr(options, name),
            annotation=hints[name] if option.kind.read is None else VALUE,
        )
        for name, option in option_specs().items()
        if option.affects_measurement
    ]
    return own.replace(parameters=[*first, *named])


sweep.__signature__ = signature()  # type: ignore[attr-defined]


@contextmanager
def show_progress(
    progress: bool | Callable[[Progress], None],
) -> Iterator[Callable[[Progress], None]]:
    """The callback for progress: a given function, or that of a line on a terminal or notebook."""
    if callable(progress):
        yield progress
        return
    line = watched_line(bool(find_spec("ipywidgets"))) if progress else None
    if line is None:
        yield lambda progress: None
        return
    with line:
        yield line.turn


def refuse_useless(given: Mapping[str, Any]) -> None:
    """Raises `UsageError` if an option has no effect from Python."""
    known = option_specs()
    for name in given:
        if name in known and not known[name].affects_measurement:
            raise UsageError(f"{name} has no effect here; it is for the command line")
