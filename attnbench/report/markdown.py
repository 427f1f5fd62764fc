"""Tables as GitHub-flavoured Markdown."""

import html
import re
from collections.abc import Iterable

from attnbench.errors import clean
from attnbench.report.answers import TITLE
from attnbench.report.grid import Cell, Report, Table

# the last two alternatives are what GitHub turns into links by itself
SIGNS = re.compile(r"([\\`*|~$]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])|:(?=//)|(?<=[wW]{3})\.)")


def page(report: Report, pictures: Iterable[str]) -> bytes:
    """Answers with their table, warnings, conditions and pictures, then the other tables."""
    notes = [*(f"Warning: {warning}" for warning in report.warnings), *report.conditions]
    answers = _listed(map(": ".join, report.answers.items()))
    parts = [
        f"# {escape(report.title)}\n\n## {TITLE}\n\n{answers}\n",
        *map(table, report.leading),
        f"## Conditions\n\n{_listed(notes)}\n",
        *(f"![{name.partition('.')[0]}]({name})" for name in pictures),
        "",
        *map(table, report.tables),
    ]
    return "\n".join(parts).encode()


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escape(line)}" for line in lines)


def table(table: Table) -> str:
    """A heading, the grid and its note."""
    rules = ["---:" if number else "---" for number in table.numeric]
    head = [*map(escape, table.columns)]
    lines = [head, rules, *([_shown(cell) for cell in row] for row in table.rows)]
    grid = "\n".join(f"| {' | '.join(line)} |" for line in lines) if table.rows else "None."
    note = f"\n{escape(table.bold_note)}\n" if table.bold_note else ""
    return f"## {escape(table.title)}\n\n{grid}\n{note}"


def _shown(cell: Cell) -> str:
    return f"**{escape(cell.text)}**" if cell.best else escape(cell.text)


def escape(text: str) -> str:
    """Text that shows as it is: no emphasis, code, link, HTML, mathematics or cell border."""
    text = SIGNS.sub(r"\\\1", clean(text))
    # these at the start of a line would make a heading or a list
    return re.sub(r"^(\s*)([#+-]|\d+(?=[.)]\s))", r"\1\\\2", html.escape(text, quote=False))
