"""Tables and progress on a terminal; a table that is too wide is split into blocks of columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

import rich.table
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from attnbench import units
from attnbench.render.grid import Table, clean, pieces

if TYPE_CHECKING:
    from attnbench.render.answers import Paragraph  # which loads pandas

GAP = 2  # after a column
LINES = 24  # of prose above the tables
REST = "…: everything is in tables.md and report.html."
INDENT = 2  # of its lines after the first
BAR = 24  # width of the bar of progress
WIDE, NARROW = 100, 60  # terminals with room for the bar, and for the time elapsed
REFRESH_PER_S = 2  # the machine is being measured, so the display must cost almost nothing


def table(table: Table, width: int) -> RenderableType:
    """The title, the grid in as many blocks as `width` requires, and the note.

    A table of numbers has the same rows at every width, so that tables can be compared.
    """
    table = without_shared(table)
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
        table,
        title="; ".join([table.title, *shared]),
        columns=tuple(table.columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
        keys=(),
        leading=sum(i < table.leading for i in kept),
    )


def _blocks(table: Table, width: int) -> list[list[int]]:
    """The columns in blocks that fit; the leading ones start each block. Words are one block."""
    leading, others = [*range(table.leading)], range(table.leading, len(table.columns))
    # a table across lengths counts as numbers even where few of them were measured
    if not table.across and 2 * sum(table.numeric) <= len(table.columns):
        return [[*leading, *others]]
    # headings and words of other columns fold before a name is broken
    start = max(_least(table, 0), min(_width(table, 0), width // 2)) + GAP
    start += sum(_width(table, column) + GAP for column in leading[1:])
    blocks: list[list[int]] = [[]]
    for column in others:
        needed = sum(_width(table, i) + GAP for i in (*blocks[-1], column))
        if blocks[-1] and start + needed - GAP > width:
            blocks.append([])
        blocks[-1].append(column)
    return [[*leading, *block] for block in blocks]


def _widths(table: Table, columns: Sequence[int], width: int) -> dict[int, int]:
    """The width of each column, at least its longest piece; empty if they do not fit."""
    widths = {column: _least(table, column) for column in columns}
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
    blocks = [
        "\n".join(
            folded(f"{name}: {cell.text}", width)
            for name, cell in zip(table.columns, row, strict=True)
        )
        for row in table.rows
    ]
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


def _least(table: Table, column: int) -> int:
    """The width of a column's longest piece; numbers must not be broken at all."""
    heading, *texts = _texts(table, column)
    whole = column > 0 and table.numeric[column]
    parts = [*pieces(heading), *(texts if whole else (p for text in texts for p in pieces(text)))]
    return max((cell_len(part.rstrip()) for part in parts), default=1)


def prose(title: str, paragraphs: "Sequence[Paragraph]", width: int) -> Text:
    """A title, and as many sentences of each paragraph as `LINES` lines of that width hold.

    Each paragraph gets one sentence, then the first ones get more; the last may be left out. What
    is left out is said to be in the report.
    """
    rest = folded(REST, width - INDENT).split("\n")
    most = LINES - len(rest)
    folds = [partial(_folded, paragraph, width=width - INDENT) for paragraph in paragraphs]
    shown = [fold(1) for fold in folds]
    for i, paragraph in enumerate(paragraphs):
        for said in range(2, len(paragraph.sentences) + 1):
            more = [*shown[:i], folds[i](said), *shown[i + 1 :]]
            if sum(map(len, more)) > most:
                break
            shown = more
    while len(shown) > 1 and sum(map(len, shown)) > most:
        shown.pop()
    if len(shown) < len(paragraphs) or any(fold[-1].endswith("…") for fold in shown):
        shown.append(rest)
    lines = "\n".join(f"\n{' ' * INDENT}".join(lines) for lines in shown)
    return Text.assemble((clean(title), "bold"), "\n", lines)


def _folded(paragraph: "Paragraph", said: int, width: int) -> list[str]:
    """The heading and the first sentences, in lines; an ellipsis stands for the others."""
    rest = ["…"] * (said < len(paragraph.sentences))
    text = paragraph._replace(sentences=(*paragraph.sentences[:said], *rest)).text
    return folded(text, width).split("\n")


def watched_line(widgets: bool) -> "ProgressLine | None":
    """A live line in a terminal, or a notebook with `widgets`; None where nobody looks."""
    line = ProgressLine(Console(stderr=True), widgets)
    return line if line.live else None


class ProgressLine:
    """A live line on a terminal, with a bar where there is room; elsewhere a line per stage."""

    def __init__(self, console: Console, widgets: bool = False) -> None:
        self.console = console
        self.live = console.is_terminal or (console.is_jupyter and widgets)
        self.last = ""
        # the line alone is cut where it does not fit, at its end
        text = TextColumn(
            "{task.description}",
            markup=False,
            style="cyan",
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        )
        columns: list[ProgressColumn] = [text]
        columns += [BarColumn(BAR)] * (console.width >= WIDE)
        columns += [TimeElapsedColumn()] * (console.width >= NARROW)
        self.progress = Progress(
            *columns,
            console=console,
            refresh_per_second=REFRESH_PER_S,
            transient=True,
            expand=True,
            disable=not self.live,
        )
        self.task = self.progress.add_task("", visible=False)  # until there is something to show

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def show(self, running: str, stage: str, done: int, total: int, left_s: float) -> None:
        """Show how much is done, the predicted time left, and then what is running."""
        left = f"{units.span(left_s)} left" if left_s >= 1 else "almost done"
        counts = f"{done}/{total} · {left}"
        if self.live:
            text = clean(f"{counts} · {running} {stage}")
            self.progress.update(
                self.task, description=text, completed=done, total=total, visible=True
            )
        elif stage != self.last:
            text = clean(f"{counts} · {stage}")
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)
        self.last = stage
