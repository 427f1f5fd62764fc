"""Tables and progress on a terminal; a table that is too wide is split into blocks of columns."""

import math
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import rich.table
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.text import Text

from attnbench.errors import clean
from attnbench.records import units
from attnbench.report.grid import Table

if TYPE_CHECKING:
    from attnbench.analysis.visits import TimedSeries
    from attnbench.running import sweep

GAP = 2  # after a column
INDENT = 2  # of lines of prose after the first
SHORTEST = 8  # letters in a line of a name
LEAST_RATIO = 0.05  # of times, as a logarithm, that is told after one visit
TOLD = 4  # series in a line
REFRESH_PER_S = 2  # the machine is being measured, so the display must cost almost nothing


def table(table: Table, width: int) -> RenderableType:
    """The title, the grid in as many blocks of columns as `width` requires, and the note.

    The leading columns start each block. Headings are folded, and words where they must be; numbers
    never are.
    """
    columns = [*range(len(table.columns))]
    leading = columns[: table.leading]
    left = columns[table.leading :]
    parts: list[RenderableType] = []
    while table.rows and (left or not parts):
        fits = len(left)
        names = width // 2
        while fits > 1 and _least(_grid(table, [*leading, *left[:fits]], names)) > width:
            fits -= 1
        while names > SHORTEST and _least(_grid(table, [*leading, *left[:fits]], names)) > width:
            names -= 1
        parts += [Text(), _grid(table, [*leading, *left[:fits]], names)]
        left = left[fits:]
    note = [Text(clean(table.note), style="dim")] if table.note else []
    return Group(Text(clean(table.title), style="bold"), *(parts[1:] or [Text("none")]), *note)


def _grid(table: Table, columns: Sequence[int], names: int) -> rich.table.Table:
    """These columns, of which the first is at most `names` letters wide.

    The lines of a name that is longer are indented, so that none looks like a row of its own.
    """
    grid = rich.table.Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for i in columns:
        number = i > 0 and table.aligned[i]
        heading = clean(table.columns[i])
        texts = [*(_shown(row[i].text, i, names) for row in table.rows), *heading.split()]
        grid.add_column(
            Text(heading),
            justify="right" if number else "left",
            overflow="fold",
            width=None if i and not number else max(map(cell_len, "\n".join(texts).split("\n"))),
        )
    for row in table.rows:
        grid.add_row(*(Text(_shown(row[i].text, i, names)) for i in columns))
    return grid


def _shown(text: str, column: int, names: int) -> str:
    """The text of a cell; that of the first column in lines of so many letters."""
    text = clean(text)
    if column or cell_len(text) <= names:
        return text
    return textwrap.fill(text, names, subsequent_indent=" " * INDENT, break_on_hyphens=False)


def _least(grid: rich.table.Table) -> int:
    """The least width in which no number and no word is broken."""
    screen = Console(width=1_000)
    return Measurement.get(screen, screen.options, grid).minimum


def prose(lines: Iterable[str], width: int) -> Text:
    """Paragraphs of text, whose lines after the first are indented."""
    indent = " " * INDENT
    folded = (textwrap.fill(clean(line), width, subsequent_indent=indent) for line in lines)
    return Text("\n".join(folded))


def _slower(log_ratio: float | None) -> str:
    """`, 3.3× slower`; nothing for a ratio that is unknown, or too small for one visit to tell."""
    if log_ratio is None or log_ratio < LEAST_RATIO:
        return ""
    return f", {units.plain(math.exp(log_ratio), 2)}× slower"


def watched_line(widgets: bool) -> "ProgressLine | None":
    """A live line in a terminal, or a notebook with `widgets`; None elsewhere."""
    line = ProgressLine(Console(stderr=True), widgets)
    return line if line.live else None


class ProgressLine:
    """A live line on a terminal; elsewhere a line per stage."""

    def __init__(
        self,
        console: Console,
        widgets: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console, self.clock, self.begun = console, clock, clock()
        self.live = console.is_terminal or (console.is_jupyter and widgets)
        self.last = "", ""  # the stage and the counts of the last line
        self.display = Live(console=console, refresh_per_second=REFRESH_PER_S, transient=True)

    def __enter__(self) -> Self:
        if self.live:
            self.display.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.display.stop()

    def turn(self, now: "sweep.Progress") -> None:
        """Show the run in progress of a sweep."""
        counts = f"{units.many(now.done, 'run')}, round {now.round + 1}"
        self.show(now.running, f"N={now.seq_len:,} {now.mode}", counts, now.left_s)

    def first_times(
        self, timed: "Sequence[TimedSeries]", stage: str, names: Mapping[str, str]
    ) -> None:
        """A line that stays: the first `TOLD` of a block's series with their times.

        `N = 1,024 training   Fastformer 290 ms   Transformer 945 ms, 3.3× slower`.
        """
        texts = [f"{names[series]} {units.seconds(s)}{_slower(log)}" for series, s, log in timed]
        if more := len(texts[TOLD:]):
            texts[TOLD:] = [f"… and {more} more"]
        if texts:
            self.stay("   ".join((stage, *texts)))

    def stay(self, text: str) -> None:
        """A line that stays, unless it is empty."""
        if text:
            self.console.print(clean(text), markup=False, highlight=False, soft_wrap=True)

    def show(self, running: str, stage: str, counts: str, left_s: float) -> None:
        """Show the time spent, of how much, what is done, and what is running.

        running: what is measured now.
        stage: where, such as its length and mode.
        counts: how much is done, in words.
        left_s: the time that is left [s]; inf where that is unknown.
        """
        spent_s = self.clock() - self.begun
        of = "" if math.isinf(left_s) else f" of {units.span(spent_s + left_s)}"
        of = of if left_s >= 1 else ", almost done"
        done = f"{units.span(spent_s)}{of} · {counts}"
        if self.live:
            text = clean(" · ".join((done, f"{running} {stage}".strip())))
            # cut at its end where it does not fit
            self.display.update(Text(text, style="cyan", no_wrap=True, overflow="ellipsis"))
        elif stage != self.last[0] and counts != self.last[1]:
            text = clean(f"{done} · {stage}")
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)
            self.last = stage, counts
