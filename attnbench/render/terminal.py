"""Tables for a terminal, as rich renderables; a narrow one gets the columns in several blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import rich.table
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from attnbench.render.grid import Cell, Table, clean

GAP = 2  # between two columns
LEAST = 12  # of the first column, which may fold
NARROW = 72  # below this columns of words become lists


def table(table: Table, width: int) -> RenderableType:
    """The title, the grid in as many blocks as `width` asks for, and the note."""
    parts: list[RenderableType] = [Text(clean(table.title), style="bold")]
    if not table.rows:
        parts.append(Text("none"))
    elif not _is_mostly_numbers(table):
        parts.append(_grid(table, range(len(table.columns))) if width >= NARROW else _list(table))
    else:
        # lengths may go down the page where that needs fewer blocks
        turned = min((table, _turned(table)), key=lambda t: len(list(_blocks(t, width))))
        grids = [_grid(turned, block) for block in _blocks(turned, width)]
        parts += [part for grid in grids for part in (grid, Text())][:-1]
    if table.note:
        parts.append(Text(clean(table.note), style="dim"))
    return Group(*parts)


def _is_mostly_numbers(table: Table) -> bool:
    return 2 * sum(_is_numeric(table, i) for i in range(len(table.columns))) > len(table.columns)


def _turned(table: Table) -> Table:
    """Rows as columns; the first column becomes the heading."""
    columns = ("", *(row[0].text for row in table.rows))
    rows = zip(*(row[1:] for row in table.rows), strict=True)
    heads = [Cell(name) for name in table.columns[1:]]
    turned = tuple((head, *row) for head, row in zip(heads, rows, strict=True))
    return replace(table, columns=columns, rows=turned)


def _list(table: Table) -> Text:
    """One line per cell, for a terminal too narrow for columns of words."""
    blocks = [
        "\n".join(
            f"{clean(name)}: {clean(cell.text)}"
            for name, cell in zip(table.columns, row, strict=True)
        )
        for row in table.rows
    ]
    return Text("\n\n".join(blocks))


def _blocks(table: Table, width: int) -> Iterator[Sequence[int]]:
    """Column numbers of each block; the first column leads every one."""
    first = min(_width(table, 0), max(LEAST, width // 2))
    block, used = [0], first
    for column in range(1, len(table.columns)):
        needed = GAP + _width(table, column)
        if used + needed > width and len(block) > 1:
            yield block
            block, used = [0], first
        block.append(column)
        used += needed
    yield block


def _grid(table: Table, columns: Sequence[int]) -> rich.table.Table:
    grid = rich.table.Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        number = column > 0 and _is_numeric(table, column)
        grid.add_column(
            Text(clean(table.columns[column])),
            justify="right" if number else "left",
            no_wrap=number,
            overflow="fold",
        )
    for row in table.rows:
        grid.add_row(*(Text(clean(row[column].text)) for column in columns))
    return grid


def _is_numeric(table: Table, column: int) -> bool:
    return any(row[column].is_number for row in table.rows)


def _width(table: Table, column: int) -> int:
    texts = [table.columns[column], *(row[column].text for row in table.rows)]
    return max(cell_len(clean(text)) for text in texts)
