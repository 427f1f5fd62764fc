"""A report as one self-contained HTML page: embedded figures, light and dark, printable.

All text is escaped, figures are images that cannot run code, and the page's security policy forbids
scripts and every external address.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape as escaped
from importlib.resources import files
from types import MappingProxyType

from attnbench.render.grid import Cell, Table, clean, pieces

TYPES = MappingProxyType({"svg": "image/svg+xml", "png": "image/png"})
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

CAPTIONS = MappingProxyType(
    {
        "fig2": "Time against length, with 95 % confidence intervals; open markers are predicted.",
        "memory": "Peak allocated memory per token against length; open markers are predicted.",
        "roofline": "Roofline: achieved FLOP/s against arithmetic intensity; markers grow with the"
        " length.",
    }
)


def page(
    name: str,
    warnings: Sequence[str],
    conditions: Sequence[str],
    pictures: Mapping[str, bytes],
    tables: Sequence[Table],
) -> bytes:
    """The whole document; `pictures` maps file names to PNG or SVG."""
    style = files("attnbench.render").joinpath("report.css").read_text("utf-8")
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{text(name)}</title>\n<style>\n{style}</style>\n</head>\n<body>",
        f"<h1>{text(name)}</h1>",
        _list(warnings, ' class="warnings"') if warnings else "",
        _list(conditions),
        _contents(tables),
        *(_figure(file, content) for file, content in pictures.items()),
        *map(table, tables),
        "</body>\n</html>\n",
    ]
    return "\n".join(part for part in parts if part).encode("utf-8", "replace")


def table(table: Table) -> str:
    """A heading, the grid in a box that scrolls where it is too wide, and the note."""
    head = f'<h2 id="{table.anchor}">{text(table.title)}</h2>'
    if not table.rows:
        return f"{head}\n<p>None.</p>"
    numeric = table.numeric
    names = "".join(
        f'<th scope="col"{_number(is_number)}>{breakable(column)}</th>'
        for column, is_number in zip(table.columns, numeric, strict=True)
    )
    rows = "\n".join(_row(row, numeric) for row in table.rows)
    note = f'\n<p class="note">{text(table.note)}</p>' if table.note else ""
    return (
        f'{head}\n<div class="wide"><table>\n<thead><tr>{names}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>{note}"
    )


def text(plain: str) -> str:
    """Text that shows literally, in an element or an attribute."""
    return escaped(clean(plain), quote=True)


def breakable(plain: str) -> str:
    """The text, with positions at which a long name may be broken."""
    return "<wbr>".join(map(text, pieces(plain)))


def _row(row: Sequence[Cell], numeric: Sequence[bool]) -> str:
    cells = "".join(
        f"<td{_number(is_number)}>{breakable(cell.text)}</td>"
        for cell, is_number in zip(row[1:], numeric[1:], strict=True)
    )
    return f'<tr><th scope="row">{breakable(row[0].text)}</th>{cells}</tr>'


def _number(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _list(lines: Sequence[str], attributes: str = "") -> str:
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul{attributes}>{items}</ul>"


def _contents(tables: Sequence[Table]) -> str:
    links = "".join(f'<li><a href="#{t.anchor}">{text(t.title)}</a></li>' for t in tables)
    return f"<nav><ul>{links}</ul></nav>"


def _figure(file: str, content: bytes) -> str:
    stem, _, suffix = file.rpartition(".")
    source = f"data:{TYPES[suffix]};base64,{b64encode(content).decode('ascii')}"
    caption = text(CAPTIONS.get(stem, stem))
    picture = f'<img src="{source}" alt="{caption}">'
    return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"
