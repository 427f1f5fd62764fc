"""A report as one HTML page that needs nothing else: figures inside, light and dark, fit to print.

All text is escaped, figures are images that can run nothing, and a policy in the page forbids
scripts and every address outside it.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape as escaped
from types import MappingProxyType

from attnbench.render.grid import Cell, Table, clean, pieces

TYPES = MappingProxyType({"svg": "image/svg+xml", "png": "image/png"})
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
WARNING = "Warning: "

CAPTIONS = MappingProxyType(
    {
        "fig2": "Time against length, with 95 % confidence intervals; open markers are predicted.",
        "memory": "Peak allocated memory against length; open markers are predicted.",
        "roofline": "Roofline: achieved FLOP/s against arithmetic intensity; large markers where"
        " the attention core has most of the FLOPs.",
    }
)

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --soft: #5c5c5c;
  --line: #d9d9d9; --band: #f5f5f3; --warn: #8a3b00; --warned: #fff4e5; --link: #00559e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e3; --paper: #161616; --soft: #a8a8a3;
  --line: #3a3a3a; --band: #1f1f1f; --warn: #ffc08a; --warned: #33230f; --link: #8cc4ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 76rem; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2.4rem 0 .6rem; overflow-wrap: anywhere; }
ul { margin: 0 0 1rem; padding-left: 1.2rem; }
li { overflow-wrap: anywhere; }
a { color: var(--link); }
nav ul { columns: 22rem; }
nav li { break-inside: avoid; }
.warnings { list-style: none; padding: .6rem .9rem; border-left: 3px solid var(--warn);
  color: var(--warn); background: var(--warned); }
figure { margin: 1.5rem 0; }
img { display: block; max-width: 100%; height: auto; padding: .5rem; background: #ffffff;
  border: 1px solid var(--line); border-radius: 4px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums;
  line-height: 1.35; }
th, td { padding: .28rem .6rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
thead th { border-bottom: 1.5px solid var(--ink); vertical-align: bottom; }
tbody th { font-weight: 600; }
tbody th, tbody td { overflow-wrap: break-word; }
tbody th { min-width: 9rem; }
tbody td:not(.number) { min-width: 6rem; }
thead .number { white-space: normal; }
figcaption { color: var(--soft); font-size: .85rem; margin-top: .3rem; }
tbody tr:nth-child(even) { background: var(--band); }
.number { text-align: right; white-space: nowrap; }
.note { color: var(--soft); font-size: .82rem; max-width: 60rem; }
@media print { body { max-width: none; padding: 0; font-size: 9pt; }
  :root { --ink: #000000; --paper: #ffffff; --soft: #333333; --line: #bbbbbb; --band: #ffffff;
    --warn: #000000; --warned: #ffffff; --link: #000000; }
  nav { display: none; } .wide { overflow: visible; } table { font-size: 6.5pt; width: 100%; }
  th, td { padding: .12rem .25rem; } .number { white-space: normal; }
  tbody th, tbody td:not(.number) { min-width: 0; }
  tr, figure, h2 { break-inside: avoid; } h2 { break-after: avoid; }
  img { border: 0; padding: 0; } @page { size: A4 landscape; margin: 12mm; } }
"""


def page(
    name: str, conditions: Sequence[str], pictures: Mapping[str, bytes], tables: Sequence[Table]
) -> bytes:
    """The whole document; `pictures` are PNG or SVG under their file names."""
    warned = [line.removeprefix(WARNING) for line in conditions if line.startswith(WARNING)]
    plain = [line for line in conditions if not line.startswith(WARNING)]
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{text(name)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
        f"<h1>{text(name)}</h1>",
        _list(warned, ' class="warnings"') if warned else "",
        _list(plain),
        _contents(tables),
        *(_figure(file, content) for file, content in pictures.items()),
        *map(table, tables),
        "</body>\n</html>\n",
    ]
    return "\n".join(part for part in parts if part).encode("utf-8", "replace")


def table(table: Table) -> str:
    """A heading, the grid in a box that scrolls if it is too wide, and its note."""
    head = f'<h2 id="{_anchor(table)}">{text(table.title)}</h2>'
    if not table.rows:
        return f"{head}\n<p>None.</p>"
    numbers = [any(row[i].is_number for row in table.rows) for i in range(len(table.columns))]
    names = "".join(
        f'<th scope="col"{_number(number)}>{breakable(column)}</th>'
        for column, number in zip(table.columns, numbers, strict=True)
    )
    rows = "\n".join(_row(row, numbers) for row in table.rows)
    note = f'\n<p class="note">{text(table.note)}</p>' if table.note else ""
    return (
        f'{head}\n<div class="wide"><table>\n<thead><tr>{names}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>{note}"
    )


def text(plain: str) -> str:
    """Text that shows as it is, in an element or an attribute."""
    return escaped(clean(plain), quote=True)


def breakable(plain: str) -> str:
    """The text, with places where a long name may go on in the next line."""
    return "<wbr>".join(map(text, pieces(plain)))


def _row(row: Sequence[Cell], numbers: Sequence[bool]) -> str:
    cells = "".join(
        f"<td{_number(number)}>{breakable(cell.text)}</td>"
        for cell, number in zip(row[1:], numbers[1:], strict=True)
    )
    return f'<tr><th scope="row">{breakable(row[0].text)}</th>{cells}</tr>'


def _number(number: bool) -> str:
    return ' class="number"' if number else ""


def _list(lines: Sequence[str], attributes: str = "") -> str:
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul{attributes}>{items}</ul>"


def _contents(tables: Sequence[Table]) -> str:
    links = "".join(f'<li><a href="#{_anchor(t)}">{text(t.title)}</a></li>' for t in tables)
    return f"<nav><ul>{links}</ul></nav>"


def _figure(file: str, content: bytes) -> str:
    stem, _, suffix = file.rpartition(".")
    source = f"data:{TYPES[suffix]};base64,{b64encode(content).decode('ascii')}"
    caption = text(CAPTIONS.get(stem, stem))
    picture = f'<img src="{source}" alt="{caption}">'
    return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"


def _anchor(table: Table) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", table.name)
