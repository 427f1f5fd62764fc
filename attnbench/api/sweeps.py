"""Sweeps from Python: `attnbench.sweep` measures one, `attnbench.load` reads one."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.util import find_spec
from inspect import Parameter, Signature
from os import PathLike
from pathlib import Path
from typing import Any

from attnbench.analysis.compare import compare
from attnbench.analysis.recommend import recommend
from attnbench.analysis.report import Analysis, analyse
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
from attnbench.run.sweep import Progress
from attnbench.store import output
from attnbench.store.journal import load_results
from attnbench.workloads import axes, config, reading
from attnbench.workloads.kinds import FORMATS, modes
from attnbench.workloads.options import options as known_options
from attnbench.workloads.options import read
from attnbench.workloads.requests import request

# the columns of a summary by which programs tell cases apart
KEYS = ("key", "match", "sizes")
VALUE = str | int | float | Sequence[str | int | float] | None
QUANTITIES = tuple(row.name for row in DRAWN)
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


class Answer(str):
    """Markdown, which a notebook renders and anything else prints as it is."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_markdown_(self) -> str:
        return str(self)


class Sweep:
    """A stored sweep; a notebook shows what it found, its times as tables, and a chart.

    All of it follows from the journal in `folder`, as it was when this object was made.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        """Raises `StoreError` if the folder holds no readable sweep, or one without cases."""
        self.folder = Path(folder)
        self._analysis = analyse(load_results(self.folder))

    @property
    def cases(self) -> Frame:
        """One row per case, with estimates, counts and outcome, as in `cases.csv`."""
        return self._analysis.cases.drop(columns=[*KEYS])

    def answer(self, at_length: int | str | None = None) -> Answer:
        """What the sweep found: a sentence for each question, then one table, in Markdown.

        The table is that of one length, by default the longest that all mechanisms reached. Raises
        `UsageError` if nothing was timed there.
        """
        length = None if at_length is None else axes.size(str(at_length), "at_length")
        analysis = replace(self._analysis, at_length=length)
        said = [f"- {markdown.escape(found.text)}" for found in paragraphs(analysis.answers)]
        shown = named([answer(analysis)], analysis.answers.series)
        return Answer("\n".join([*said, "", *map(markdown.table, shown)]))

    @property
    def warnings(self) -> list[str]:
        """Reasons to trust the numbers less, as text."""
        return warnings(self._analysis)

    def ratios(self, against: str | None = None) -> Frame:
        """How many times faster than a given series each other one of its sizes is.

        Columns: `series`, `mode`, `seq_len`, `ratio`, `low` and `high`, the 95 % confidence
        interval, and `paired`, whether the two took turns. `against` is a series or mechanism of
        the sweep, by default the Transformer if it is there. Raises `UnknownMechanism`.
        """
        analysis = self._against(against)
        if analysis.speedups is not None:
            return analysis.speedups
        return speedups(analysis.cases, analysis.baselines, analysis.ratios)

    def crossovers(self, against: str | None = None) -> Frame:
        """The lengths from which one series is faster than another, with confidence intervals.

        Each pair once, in the order that crosses or wins; only those with the series `against`, if
        given. Raises what `ratios` raises.
        """
        return self._against(against).crossings

    def recommend(
        self, length: int | str, mode: str | None = None, memory: int | str | None = None
    ) -> Frame:
        """The series at a length of the sweep, best first, in each mode or one, for each sizes.

        The columns are those of `analysis.recommend.recommend`; what is excluded comes last, with
        the reason. `memory` is the most bytes of one case, or text such as "8GiB". Raises
        `UsageError` at what cannot be read.
        """
        one, seq_len = self._analysis, axes.size(str(length), "length", axes.LONGEST)
        limit = axes.memory(memory, "memory") if isinstance(memory, str) else memory
        chosen = one.modes if mode is None else modes(mode, "mode")
        return recommend(one, seq_len, chosen, limit)

    def compare(self, earlier: "Sweep", anyway: bool = False) -> Frame:
        """This sweep against an earlier one: a row for each case and metric, with its verdict.

        The columns are those of `analysis.compare.Comparison`. Times of different machines are
        compared only `anyway`. Raises `UsageError` if the sweeps have no case in common.
        """
        return compare(earlier._analysis, self._analysis, anyway=anyway).rows

    def plot(self, quantity: str = "time", suffix: str = "svg") -> Chart:
        """A chart of `time`, `memory` or another drawn metric by length, as svg, png or pdf.

        The time of a sweep that only decodes is that of a step, above the bytes of the state.
        Raises `UsageError` if that was not measured.
        """
        if quantity not in QUANTITIES:
            raise UsageError(f"quantity {quantity!r} is not one of {', '.join(QUANTITIES)}")
        if suffix not in FORMATS:
            raise UsageError(f"suffix {suffix!r} is not one of {', '.join(FORMATS)}")
        return drawn(self._analysis, quantity, suffix)

    def __repr__(self) -> str:
        measured = int((self.cases["outcome"] == "ok").sum())
        return f"Sweep({str(self.folder)!r}: {measured} of {len(self.cases)} cases measured)"

    def _repr_html_(self) -> str:
        return shown(self._analysis)

    def _against(self, series: str | None) -> Analysis:
        return self._analysis if series is None else analyse(self._analysis.sweep, series)


def drawn(analysis: Analysis, quantity: str, suffix: str) -> Chart:
    """The chart of a sweep. Raises `UsageError` if that was not measured."""
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


def shown(analysis: Analysis) -> str:
    """HTML of what was found, and the tables and chart of times."""
    from attnbench.render.cost_tables import latency
    from attnbench.render.html import fragment
    from attnbench.render.page import captions

    tokens = analysis.sweep.request.batch_tokens
    tables = [answer(analysis)]
    tables += [latency(analysis.cases, mode, tokens) for mode in analysis.modes]
    chart = "fig2" if set(PASSES) & {*analysis.modes} else analysis.modes[0]
    caption = captions(analysis.cases, analysis.sweep)[chart]
    return fragment(
        TITLE,
        named(tables, analysis.answers.series),
        answers=paragraphs(analysis.answers, most=MOST),
        warnings=warnings(analysis),
        pictures={f"{chart}.png": (drawn(analysis, "time", "png").content, caption)},
    )


def load(folder: str | PathLike[str]) -> Sweep:
    """A stored sweep. Raises `StoreError` if the folder holds none, or one without cases."""
    return Sweep(folder)


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
    given = read(options)
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
    named = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=VALUE
            if option.kind.read
            else bool
            if option.default is False
            else bool | None,
        )
        for name, option in known_options().items()
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
    known = known_options()
    for name in given:
        if name in known and not known[name].affects_measurement:
            raise UsageError(f"{name} has no effect here; it is for the command line")
