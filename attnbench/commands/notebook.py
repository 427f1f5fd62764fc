"""Sweeps from Python: `attnbench.sweep` measures one, `attnbench.load` reads one."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from attnbench.analysis import Analysis, Conclusion, Frame, Question, analyse
from attnbench.analysis.scaling import speedups
from attnbench.commands.sweeping.cluster import folder as fleets
from attnbench.errors import UsageError
from attnbench.records import PASSES, Cluster, metrics, storage
from attnbench.report import answers, markdown, names, terminal
from attnbench.running import session
from attnbench.running.plan import plan
from attnbench.running.request.axes import FORMATS
from attnbench.running.request.options import options as known_options
from attnbench.running.request.options import read
from attnbench.running.request.requests import request, to_toml
from attnbench.running.session import measuring_server
from attnbench.running.sweep import Progress

Value: TypeAlias = str | int | float | Sequence[str | int | float] | None

QUANTITIES = tuple(row.name for row in metrics.DRAWN)


@dataclass(frozen=True)
class Chart:
    """A picture of a sweep, which a notebook shows if it is an SVG or PNG."""

    suffix: str  # svg, png or pdf
    content: bytes  # of such a file

    def __repr__(self) -> str:
        return f"Chart({self.suffix}, {len(self.content):,} bytes)"

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file. Raises `StoreError`."""
        storage.output.write(Path(path), self.content)

    def _repr_svg_(self) -> str | None:
        return self.content.decode() if self.suffix == "svg" else None

    def _repr_png_(self) -> bytes | None:
        return self.content if self.suffix == "png" else None


class MarkdownText(str):
    """Markdown, which a notebook renders and anything else prints as it is."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_markdown_(self) -> str:
        return str(self)


class StoredSweep:
    """A stored sweep; a notebook shows what it found.

    All of it follows from the journal in `folder`, as it was when this object was made.
    """

    def __init__(self, folder: str | PathLike[str], journal: storage.Journal | None = None) -> None:
        """The sweep in the folder; while it is open, `journal` is its journal.

        Raises `StoreError` if the folder holds no readable sweep, or one without cases.
        """
        self.folder = Path(folder)
        self._analysis = analyse(journal.held() if journal else storage.load_results(self.folder))

    @property
    def cases(self) -> Frame:
        """One row per case, with the columns of `cases.csv`, which the manual explains."""
        return self._analysis.reported

    def answer(self, against: str | None = None) -> MarkdownText:
        """What the sweep found, in Markdown: a sentence for each question, warnings, tables.

        There is a table for each mode, at the longest length that all mechanisms reached in it.
        `against` is a series or mechanism to compare with. Raises `UnknownMechanism`.
        """
        analysis = self._compared(against)
        said = [": ".join(pair) for pair in answers.sentences(analysis).items()]
        said += [f"Warning: {line}" for line in analysis.warnings]
        shown = names.with_labels(
            answers.answer(analysis), analysis.answers.series, analysis.suspects
        )
        lines = [f"- {markdown.escape(line)}" for line in said]
        return MarkdownText("\n".join([*lines, "", *map(markdown.table, shown)]))

    def crossovers(self, against: str | None = None) -> Frame:
        """At which lengths one series is faster than another: a row for each mode and ordered pair.

        Columns: `mode`, `series`, `other`, `answer`; `length` with its interval `low` to `high`,
        from or up to which it is; `from_len`, `to_len` and `lengths`, the first, last and number of
        the lengths at which both were timed; `decided_by`, the options of a sweep that would decide
        what is not known, or widen these lengths. `against` keeps the pairs with one series or
        mechanism as `other`. Raises `UnknownMechanism`.
        """
        analysis = self._compared(against)
        found = analysis.crossovers.copy()
        if against is not None:
            found = found[found["other"].isin(analysis.against)].reset_index(drop=True)
        return found

    def conclusions(self) -> Frame:
        """What may be concluded, as in `conclusions.csv`: a row for each question and its scope.

        Columns: `question`, `answer`, `mode`, `basis`, `quantity`, `rival`, `reason`, `decided_by`
        as in `analysis.conclusions.Conclusion`; `series`, `against`, `missing` and `left_out`,
        tuples of names, lengths and names; `lengths`, those at which all that it speaks of was
        measured, `of_sweep`, those of the sweep, `sizes` and `step`; `value`, `low` and `high`.
        """
        return Frame([_row(each) for each in self._analysis.conclusions])

    def exponents(self) -> Frame:
        """With which power of N each cost grows, where at least four lengths were measured.

        The rows of `conclusions` on it: `answer` is `grows as a power`, `still bends` or `not
        known`, and `value` the power, over `lengths`.
        """
        found = self._analysis.about(Question.EXPONENT)
        return Frame([_row(each) for each in found])

    def _compared(self, against: str | None) -> Analysis:
        """The analysis of the sweep, with this series or mechanism to compare with, if one."""
        whole = self._analysis
        return whole if against is None else analyse(whole.sweep, against)

    def ratios(self, against: str | None = None) -> Frame:
        """How many times faster every other series of the same sizes is than a given one.

        Columns: `series`, `mode`, `seq_len`, `ratio`, `low` and `high`, the 95 % confidence
        interval, and `paired`, whether the two took turns. `against` is a series or mechanism of
        the sweep, by default the Transformer if it is there. Raises `UnknownMechanism`.
        """
        analysis = self._compared(against)
        return speedups(analysis.judged, analysis.baselines_by_mode, analysis.ratios)

    def plot(self, quantity: str = "time", suffix: str = "svg") -> Chart:
        """A chart of `time`, `memory` or another drawn metric by length, as svg, png or pdf.

        Where a sweep only decodes, the time is of a step, above the bytes of the state.
        Raises `UsageError` if that was not measured.
        """
        from attnbench.report import figures

        if quantity not in QUANTITIES:
            raise UsageError(f"quantity {quantity!r} is not one of {', '.join(QUANTITIES)}")
        if suffix not in FORMATS:
            raise UsageError(f"suffix {suffix!r} is not one of {', '.join(FORMATS)}")
        cases = self._analysis.cases
        metric = metrics.NAMED[quantity]
        if cases["mode"].isin(PASSES).any():
            figure = figures.cost_figure(cases, metric, self._analysis.sweep.request.batch_tokens)
        elif metric.key == metrics.TIME:
            figure = figures.decode_figure(cases, str(cases["mode"].iloc[0]))
        else:
            raise UsageError(f"decoding has no chart of {quantity}; `cases` has {metric.key!r}")
        return Chart(suffix, figures.saved(figure, suffix))

    def __repr__(self) -> str:
        measured = int((self.cases["outcome"] == "ok").sum())
        return f"Sweep({str(self.folder)!r}: {measured} of {len(self.cases)} cases measured)"

    def _repr_markdown_(self) -> str:
        return str(self.answer())


def _row(conclusion: Conclusion) -> dict[str, object]:
    """A conclusion as a row: its scope and value as columns, and names of what was left out."""
    scope = conclusion.scope
    value = conclusion.value
    plain = ("question", "answer", "mode", "basis", "quantity", "rival", "reason", "decided_by")
    return {
        **{name: str(getattr(conclusion, name)) for name in plain},
        **{name: getattr(conclusion, name) for name in ("series", "against", "missing")},
        "left_out": tuple(each.series for each in conclusion.left_out),
        "lengths": scope.lengths,
        "of_sweep": scope.of_sweep,
        "sizes": scope.sizes,
        "step": scope.step,
        "value": value.point,
        "low": value.low,
        "high": value.high,
    }


def load(folder: str | PathLike[str]) -> StoredSweep:
    """A stored sweep. Raises `StoreError` if the folder holds none, or one without cases."""
    return StoredSweep(folder)


def sweep(
    *,
    out: str | PathLike[str] | None = None,
    progress: bool | Callable[[Progress], None] = True,
    **options: Value,
) -> StoredSweep:
    """Measure a sweep, `attnbench.sweep(models=["fastformer"], lengths=[512, 1024])`; return it.

    The options are those of `attnbench sweep`, with underscores, as text, numbers or lists. `out`
    is the folder, by default `reports/<date>`. Terminals and notebooks show the `progress` unless
    it is False; a function is called with it whenever another process has its turn. An interrupted
    sweep keeps what it measured. Raises `UsageError`, `CannotRun` or `StoreError`.
    """
    caller = sys._getframe(1)
    if "ATTNBENCH_FOLDER" in os.environ and caller.f_code.co_name == "<module>":
        raise UsageError(
            f"{caller.f_code.co_filename!r} calls attnbench.sweep when it is imported, as it is to"
            ' be measured; put the call below if __name__ == "__main__":'
        )
    given = read(options)
    for name in given:
        if known_options()[name].record is Cluster:
            raise UsageError(f"{name} has no effect here; it is for the command line")
    requested = request(given)
    folder = Path(out or Path("reports") / f"{datetime.now():%Y%m%d-%H%M%S}")
    fleets.refuse_begun(folder)
    settings = requested.settings
    line = terminal.watched_line(bool(find_spec("ipywidgets"))) if progress is True else None
    observe = progress if callable(progress) else line.turn if line else lambda progress: None
    with measuring_server(settings.threads, settings.seed) as server:
        planned = plan(requested, server)
        with line or nullcontext():
            journal = session.measure(
                requested, planned, server, folder, options_file=to_toml(given), observe=observe
            )
    with journal:
        session.refuse_empty(journal.held(), folder)
        return StoredSweep(folder, journal)
