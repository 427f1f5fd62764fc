"""Tables and progress on a terminal; a table that is too wide is split into blocks of columns."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import rich.table
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from attnbench import units
from attnbench.render.grid import Table, clean, pieces

if TYPE_CHECKING:
    from attnbench.analysis.visits import Timed
    from attnbench.run import sweep

GAP = 2  # after a column
INDENT = 2  # of lines of prose after the first
BAR = 24  # width of the progress bar
WIDE = 100  # a terminal with room for the bar
LEAST_RATIO = 0.05  # of times, as a logarithm, that is told after one visit
REFRESH_PER_S = 2  # the machine is being measured, so the display must cost almost nothing


def table(table: Table, width: int) -> RenderableType:
    """The title, the grid in as many blocks as `width` requires, and the note.

    A table of numbers has the same rows at every width, so that tables can be compared.
    """
    table = without_shared(without_empty(table))
    parts: list[RenderableType] = [Text(clean(table.title), style="bold")]
    if not table.rows:
        parts.append(Text("none"))
    elif all(blocks := [_widths(table, block, width) for block in _blocks(table, width)]):
        parts += [part for block in blocks for part in (_grid(table, block), Text())][:-1]
    else:
        parts.append(_list(table, width))
    if table.note:
        parts.append(Text(clean(table.note), style="dim"))
    return Group(*parts)


def without_empty(table: Table) -> Table:
    """The table without lengths at which nothing was measured, unless that is all of them."""
    kept = [i for i in range(len(table.columns)) if i not in table.unmeasured]
    return _only(table, kept) if len(kept) > 1 else table


def without_shared(table: Table) -> Table:
    """The table without columns of words that are the same in every row; its title has them."""
    kept, shared = [0], []
    for i in range(1, len(table.columns)):
        texts = {row[i].text for row in table.rows}
        stays = table.across or table.numeric[i] or table.columns[i] in table.kept
        if stays or len(table.rows) < 2 or len(texts) > 1:
            kept.append(i)
        elif (text := texts.pop()) not in ("", units.NOTHING):
            shared.append(f"{table.columns[i]}: {text}")
    return replace(
        _only(table, kept),
        title="; ".join([table.title, *shared]),
        leading=sum(i < table.leading for i in kept),
    )


def _only(table: Table, kept: Sequence[int]) -> Table:
    """The table with these columns."""
    return replace(
        table,
        columns=tuple(table.columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
        keys=(),
    )


def _blocks(table: Table, width: int) -> list[list[int]]:
    """The columns in blocks that fit; the leading ones start each block. Words are one block."""
    leading, others = [*range(table.leading)], range(table.leading, len(table.columns))
    # a table across lengths counts as numbers even where few of them were measured
    if not table.across and 2 * sum(table.numeric) <= len(table.columns):
        return [[*leading, *others]]
    start = _name(table, width) + GAP
    start += sum(_width(table, column) + GAP for column in leading[1:])

    def fit(columns: Sequence[int]) -> bool:
        return start + sum(_narrowest(table, i) + GAP for i in columns) - GAP <= width

    groups = [others[i : i + table.together] for i in range(0, len(others), table.together)]
    blocks: list[list[int]] = [[]]
    for group in groups:
        for columns in [group] if fit(group) else ([column] for column in group):
            if blocks[-1] and not fit((*blocks[-1], *columns)):
                blocks.append([])
            blocks[-1] += columns
    return [[*leading, *block] for block in blocks]


def _widths(table: Table, columns: Sequence[int], width: int) -> dict[int, int]:
    """The width of each column, at least its longest piece; empty if they do not fit."""
    widths = {column: _least(table, column) for column in columns}
    if any(table.numeric):  # headings fold before names do
        widths[0] = _name(table, width)
    left = width + GAP - GAP * len(columns) - sum(widths.values())
    if left < 0:
        return {}
    # the remaining width goes first to the columns that need least of it
    wishes = {column: _width(table, column) - widths[column] for column in columns}
    for served, column in enumerate(sorted(columns, key=lambda column: wishes[column])):
        more = min(wishes[column], left // (len(columns) - served))
        widths[column] += more
        left -= more
    return widths


def _list(table: Table, width: int) -> Text:
    """One line per cell, for a terminal too narrow for columns of words."""
    rows = [zip(table.columns, row, strict=True) for row in table.rows]
    blocks = ["\n".join(folded(f"{name}: {c.text}", width) for name, c in row) for row in rows]
    return Text("\n\n".join(blocks))


def _grid(table: Table, widths: Mapping[int, int]) -> rich.table.Table:
    grid = rich.table.Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for column, width in widths.items():
        grid.add_column(
            Text(folded(table.columns[column], width)),
            justify="right" if column > 0 and table.aligned[column] else "left",
            no_wrap=True,
            overflow="fold",
        )
    for row in table.rows:
        grid.add_row(*(Text(folded(row[column].text, w)) for column, w in widths.items()))
    return grid


def folded(text: str, width: int) -> str:
    """The text in lines of at most `width` cells; only longer words are broken."""
    lines = [""]
    for piece in pieces(text):
        if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
        while cell_len(lines[-1].rstrip()) > width:
            start = set_cell_size(lines[-1], width).rstrip() or lines[-1][0]
            lines[-1:] = [start, lines[-1][len(start) :]]
    return "\n".join(line.rstrip() for line in lines)


def _texts(table: Table, column: int) -> list[str]:
    return [clean(t) for t in (table.columns[column], *(row[column].text for row in table.rows))]


def _width(table: Table, column: int) -> int:
    return max(map(cell_len, _texts(table, column)))


def _name(table: Table, width: int) -> int:
    """The width of the first column: a name is broken only if it takes more than half of all."""
    return max(_least(table, 0), min(_width(table, 0), width // 2))


def _narrowest(table: Table, column: int) -> int:
    """The width of a column in which only the heading is folded."""
    heading, *texts = _texts(table, column)
    return max(cell_len(part.rstrip()) for part in (*pieces(heading), *texts))


def _least(table: Table, column: int) -> int:
    """The width of a column's longest piece; numbers must not be broken at all."""
    heading, *texts = _texts(table, column)
    whole = column > 0 and table.numeric[column]
    parts = [*pieces(heading), *(texts if whole else (p for text in texts for p in pieces(text)))]
    return max((cell_len(part.rstrip()) for part in parts), default=1)


def prose(lines: Iterable[str], width: int) -> Text:
    """Paragraphs of text, whose lines after the first are indented."""
    indented = f"\n{' ' * INDENT}"
    return Text("\n".join(folded(line, width - INDENT).replace("\n", indented) for line in lines))


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
    """A live line on a terminal, with a bar where there is room; elsewhere a line per stage.

    The bar is the share of the time, and never moves back if more turns out to be left.
    """

    def __init__(
        self,
        console: Console,
        widgets: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console, self.clock, self.begun, self.share = console, clock, clock(), 0.0
        self.live = console.is_terminal or (console.is_jupyter and widgets)
        self.last = "", ""  # the stage and the counts of the last line
        # the line alone is cut where it does not fit, at its end
        text = TextColumn(
            "{task.description}",
            markup=False,
            style="cyan",
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        )
        columns: list[ProgressColumn] = [text]
        columns += [BarColumn(BAR)] * (console.width >= WIDE)
        self.progress = Progress(
            *columns,
            console=console,
            refresh_per_second=REFRESH_PER_S,
            transient=True,
            expand=True,
            disable=not self.live,
        )
        # until there is something to show
        self.task = self.progress.add_task("", visible=False, total=1.0)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def turn(self, now: "sweep.Progress") -> None:
        """Show the run in progress of a sweep."""
        counts = f"{units.many(now.done, 'run')}, round {now.round + 1}"
        self.show(now.running, f"N={now.seq_len:,} {now.mode}", counts, now.left_s)

    def first_times(self, timed: "Sequence[Timed]", stage: str, names: Mapping[str, str]) -> None:
        """A line that stays: a block's series with their times, as many as the width has room for.

        `N = 1,024 training   Fastformer 290 ms   Transformer 945 ms, 3.3× slower`.
        """
        texts = [f"{names[series]} {units.seconds(s)}{_slower(log)}" for series, s, log in timed]
        for shown in range(len(texts), 0, -1):
            more = [f"… and {len(texts) - shown} more"] * (shown < len(texts))
            line = clean("   ".join((stage, *texts[:shown], *more)))
            if cell_len(line) <= self.console.width or shown == 1:
                self.console.print(line, markup=False, highlight=False, soft_wrap=True)
                return

    def show(self, running: str, stage: str, counts: str, left_s: float) -> None:
        """Show the time spent, the predicted total, what is done, and what is running."""
        spent_s = self.clock() - self.begun
        of = f" of {units.span(spent_s + left_s)}" if left_s >= 1 else ", almost done"
        done = f"{units.span(spent_s)}{of} · {counts}"
        if self.live:
            self.share = max(self.share, spent_s / (spent_s + max(left_s, 1.0)))
            text = clean(" · ".join((done, f"{running} {stage}".strip())))
            self.progress.update(self.task, description=text, completed=self.share, visible=True)
        elif stage != self.last[0] and counts != self.last[1]:
            text = clean(f"{done} · {stage}")
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)
            self.last = stage, counts
