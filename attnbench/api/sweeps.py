"""Sweeps from Python: `attnbench.sweep` measures one, `attnbench.load` reads one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench.errors import UsageError
from attnbench.workloads.option import FORMATS, Panel

if TYPE_CHECKING:
    from attnbench.analysis.report import Analysis
    from attnbench.analysis.summary import Frame
    from attnbench.run.session import Progress

QUANTITIES = ("time", "memory")
ELSEWHERE = (Panel.CLUSTER, Panel.OUTPUT)  # options that need the command line


@dataclass(frozen=True)
class Chart:
    """A picture of a sweep, which a notebook shows if it is an SVG or PNG."""

    suffix: str  # svg, png or pdf
    content: bytes  # of such a file

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file. Raises `StoreError`."""
        from attnbench.store import output

        output.write(Path(path), self.content)

    def _repr_svg_(self) -> str | None:
        return self.content.decode() if self.suffix == "svg" else None

    def _repr_png_(self) -> bytes | None:
        return self.content if self.suffix == "png" else None


class Sweep:
    """A stored sweep; a notebook shows its times as tables and as a chart.

    What it says of its cases follows from the journal in `folder`, as it was when this was made.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        """Raises `StoreError` if the folder holds no readable sweep, or one without cases."""
        from attnbench.analysis.report import analyse
        from attnbench.store.journal import load_results

        self.folder = Path(folder)
        self._analysis = analyse(load_results(self.folder))

    @property
    def cases(self) -> "Frame":
        """One row per case, with estimates, counts and outcome: the columns of `cases.csv`."""
        return self._analysis.cases

    @property
    def warnings(self) -> list[str]:
        """Reasons to trust the numbers less, in words."""
        from attnbench.render.conditions import warnings

        return warnings(self._analysis)

    def ratios(self, against: str | None = None) -> "Frame":
        """How many times faster than a series each other one is, at each mode and length.

        Columns: `series`, `mode`, `seq_len`, `ratio`, `low` and `high`, the 95 % confidence
        interval, and `paired`, whether the two took turns. `against` is a series or mechanism of
        the sweep, by default the Transformer if it is there. Raises `UnknownMechanism`.
        """
        analysis = self._against(against)
        if analysis.speedups is not None:
            return analysis.speedups
        from attnbench.analysis.crossover import speedups

        return speedups(analysis.cases, analysis.baseline or "", analysis.ratios)

    def crossovers(self, against: str | None = None) -> "Frame":
        """The lengths from which one series is faster than another, with confidence intervals.

        Only those with the series `against`, if given. Raises `UnknownMechanism`.
        """
        return self._against(against).crossovers

    def plot(self, quantity: str = "time", suffix: str = "svg") -> Chart:
        """A chart of `time` or `memory` against length, as svg, png or pdf. Raises `UsageError`.

        Of a sweep that only decodes, step time and state.
        """
        if quantity not in QUANTITIES:
            raise UsageError(f"quantity {quantity!r} is not one of {', '.join(QUANTITIES)}")
        if suffix not in FORMATS:
            raise UsageError(f"suffix {suffix!r} is not one of {', '.join(FORMATS)}")
        from attnbench.records import PASSES
        from attnbench.render.decoding import decode_figure
        from attnbench.render.figures import MEMORY, TIME, cost_figure
        from attnbench.render.panels import saved

        if not self.cases["mode"].isin(PASSES).any():
            return Chart(suffix, saved(decode_figure(self.cases), suffix))
        drawn = TIME if quantity == "time" else MEMORY
        tokens = self._analysis.sweep.request.batch_tokens
        return Chart(suffix, saved(cost_figure(self.cases, drawn, tokens), suffix))

    def __repr__(self) -> str:
        measured = int((self.cases["outcome"] == "ok").sum())
        return f"Sweep({str(self.folder)!r}: {measured} of {len(self.cases)} cases measured)"

    def _repr_html_(self) -> str:
        from attnbench.render.cost_tables import latency
        from attnbench.render.html import fragment

        tokens = self._analysis.sweep.request.batch_tokens
        tables = [latency(self.cases, mode, tokens) for mode in self._analysis.modes]
        return fragment(self.warnings, {"fig2.png": self.plot(suffix="png").content}, tables)

    def _against(self, series: str | None) -> "Analysis":
        from attnbench.analysis.report import analyse

        return self._analysis if series is None else analyse(self._analysis.sweep, series)


def sweep(
    out: str | PathLike[str] | None = None,
    progress: "Callable[[Progress], None] | None" = None,
    **options: Any,
) -> Sweep:
    """Measure a sweep into the folder `out`, by default `reports/<date>`, and return it.

    `options` are those of `attnbench sweep`, with underscores, as text, numbers or lists. Nothing
    is printed; `progress` is called whenever another process has its turn. An interrupted sweep
    keeps what it measured. Raises `UsageError`, `CannotRun` or `StoreError`.
    """
    from attnbench.api import measuring
    from attnbench.api.servers import own_server
    from attnbench.workloads import config, reading
    from attnbench.workloads.asked import Asked
    from attnbench.workloads.requests import request

    refuse_useless(options)
    asked = Asked.of(options)
    requested = request(asked)
    folder = Path(out or Path("reports") / f"{datetime.now():%Y%m%d-%H%M%S}")
    measuring.refuse_begun(folder)
    settings = requested.settings
    with own_server(settings.threads, settings.seed) as server:
        plan = reading.plan(requested, server)
        options_file = config.content(asked, requested)
        measuring.measure(
            requested,
            plan,
            server,
            folder,
            options_file=options_file,
            observe=progress or (lambda progress: None),
        )
    measuring.refuse_empty(folder)
    return Sweep(folder)


def refuse_useless(given: Mapping[str, Any]) -> None:
    """Raises `UsageError` if an option has no effect from Python."""
    from attnbench.workloads.asked import options

    known = options()
    for name in given:
        if name in known and known[name].panel in ELSEWHERE:
            raise UsageError(f"{name} has no effect here; it is for the command line")
