"""Tables as LaTeX with booktabs: a piece for each, to be input, and a document that shows them.

Every character that is special to TeX is escaped.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from types import MappingProxyType
from typing import NamedTuple

from attnbench.render.cost_tables import BOUNDS, WIDE
from attnbench.render.grid import Cell, Table, clean, pieces
from attnbench.render.names import SERIES
from attnbench.render.styles import labels
from attnbench.units import NOTHING, magnitude, supported_places, to_places

PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{array,booktabs,textcomp}
\usepackage[margin=2cm]{geometry}
\begin{document}
"""
END = "\\end{document}\n"
DASH = "—"  # in place of a number

SPECIAL = MappingProxyType({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "[": "{[}", "]": "{]}",
    "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}",
    "“": r"\textquotedblleft{}", "”": r"\textquotedblright{}",
    "–": r"\textendash{}", "—": r"\textemdash{}",
    "…": r"\ldots{}", "†": r"\textdagger{}", "°": r"\textdegree{}",
    "²": r"\textsuperscript{2}", "³": r"\textsuperscript{3}", "µ": r"\textmu{}",
    "−": "$-$", "‖": r"$\Vert$", "₄": "$_4$", "₆": "$_6$",
    "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "∝": r"$\propto$", "√": r"$\surd$",
    "≤": r"$\le$", "≥": r"$\ge$", "σ": r"$\sigma$", "ε": r"$\epsilon$",
    "✓": r"$\surd$", "✗": r"$\times$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
})  # fmt: skip

# in letters at \footnotesize: a narrow text width, and the space between columns
TEXT, SPACE = 90, 3
LONG = 30  # letters; columns with longer texts are paragraphs
LETTER = 4.3  # points
TALL = 40  # lines; a taller table is cut

SIDES = "Superscripts and subscripts are the two sides of the 95 % confidence interval"


class Best(NamedTuple):
    """The cells of a table that are bold, by series and heading, and what that says of them."""

    cells: frozenset[tuple[str, str]]
    note: str


NONE = Best(frozenset(), "")
NO_BEST: Mapping[str, Best] = MappingProxyType({})


class _Column(NamedTuple):
    """A column as TeX: declaration, heading, cells, width in letters, and lines of a row."""

    declared: str
    head: str
    cells: list[str]
    width: int
    lines: int = 1


def files(tables: Sequence[Table], best: Mapping[str, Best] = NO_BEST) -> dict[str, str]:
    """File name to text: a piece for `\\input` for each table, and a document that shows all.

    `best` are the bold cells of tables, by the names of the tables.
    """
    marked = [(table, _within(table, best.get(table.name, NONE))) for table in tables if table.rows]
    shown = [(table, _columns(table, bold.cells), bold.note) for table, bold in marked]
    inputs = {f"{one[0].name}.tex": _piece(*one) for one in shown}
    return {**inputs, "tables.tex": PREAMBLE + "\n".join(starmap(_shown, shown)) + END}


def _within(table: Table, best: Best) -> Best:
    """The bold cells that the table has; none if there is nothing to compare with."""
    names = {row[0].text for row in table.rows}
    cells = best.cells & {(name, heading) for name in names for heading in table.columns}
    return best._replace(cells=cells) if cells and len(names) > 1 else NONE


def _piece(table: Table, columns: Sequence[_Column], bold: str) -> str:
    """The grid alone, one `tabular` below another where it is wider than a text or too tall.

    Numbers are aligned at the decimal point and followed by their uncertainty, one for each side
    where they differ. Lengths at which nothing was measured have no column.
    """
    first, *rest = columns
    grids = [
        _tabular([first, *block], slice(i, i + step))
        for block in _blocks(first, rest)
        for step in [_rows_at_once([first, *block])]
        for i in range(0, len(table.rows), step)
    ]
    comment = f"% {escape(table.title)}; needs \\usepackage{{array,booktabs}}\n"
    comment += f"% {escape(bold)}\n" if bold else ""
    return comment + "\\par\\medskip\n".join(grids)


def _blocks(first: _Column, rest: Sequence[_Column]) -> list[Sequence[_Column]]:
    """The columns in groups of one size that fit next to the first, or one by one."""
    for size in range(len(rest), 0, -1):
        blocks = [rest[i : i + size] for i in range(0, len(rest), size)]
        if all(sum(column.width for column in (first, *block)) <= TEXT for block in blocks):
            even = -(-len(rest) // len(blocks))
            return [rest[i : i + even] for i in range(0, len(rest), even)]
    return [[column] for column in rest] or [[]]


def _shown(table: Table, columns: Sequence[_Column], bold: str) -> str:
    """A table with its title and note: it floats, unless it is too tall for a page."""
    bounds = table.note.replace(BOUNDS, SIDES).replace(f"; {WIDE}", ".")
    notes = (bold, bounds, _unmeasured(table))
    lines = [f"\\input{{{table.name}}}", *(rf"\par\smallskip {escape(n)}" for n in notes if n)]
    title = escape(table.title)
    if len(table.rows) > _rows_at_once(columns):
        start = f"\\begin{{center}}\\footnotesize\n{title}\\par\\nobreak\\medskip"
        return "\n".join([start, *lines, "\\end{center}\n"])
    start = f"\\begin{{table}}[htbp]\n\\centering\\footnotesize\n\\caption{{{title}}}"
    label = f"\\label{{tab:{table.anchor}}}"
    return "\n".join([start, label, *lines, "\\end{table}\n"])


def _columns(table: Table, bold: frozenset[tuple[str, str]]) -> list[_Column]:
    """Numbers take two columns each, which meet at the decimal point."""
    return [
        _numbers(table, i, bold) if numeric else _words(table, i)
        for i, numeric in enumerate(table.numeric)
        if i not in table.unmeasured
    ]


def _rows_at_once(columns: Iterable[_Column]) -> int:
    """How many rows a page has room for."""
    return max(1, TALL // max(column.lines for column in columns))


def _unmeasured(table: Table) -> str:
    """What a dash stands for, and which lengths have no column."""
    if not table.across:
        return ""
    lengths = [table.columns[i] for i in table.unmeasured]
    cells = (cell for row in table.rows for cell in row[1:] if not cell.is_number)
    words = ", ".join(dict.fromkeys(cell.text for cell in cells if cell.text != NOTHING))
    left_out = f" Nothing was measured at {', '.join(lengths)} tokens." if lengths else ""
    return (f"{DASH} not measured: {words}." if words else "") + left_out


def _tabular(columns: Sequence[_Column], part: slice) -> str:
    declared = "".join(column.declared for column in columns)
    rows = zip(*(column.cells[part] for column in columns), strict=True)
    lines = [_line([column.head for column in columns]), r"\midrule", *map(_line, rows)]
    grid = "\n".join([r"\toprule", *lines, r"\bottomrule"])
    return f"\\begin{{tabular}}{{{declared}}}\n{grid}\n\\end{{tabular}}\n"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _numbers(table: Table, i: int, bold: frozenset[tuple[str, str]]) -> _Column:
    head, cells = table.columns[i], [row[i] for row in table.rows]
    shown = [
        _number(row[i], (row[0].text, head) in bold)
        or _centred(DASH if table.across else row[i].text)
        for row in table.rows
    ]
    # raised and lowered, both sides of an interval are as wide as one
    widest = [cell.text.partition(", ")[0] for cell in cells if cell.is_number or not table.across]
    return _Column("r@{}l", _centred(head), shown, _width([head, *widest]))


def _words(table: Table, i: int) -> _Column:
    head, texts = table.columns[i], [row[i].text for row in table.rows]
    if head in SERIES:
        every = [r[j].text for r in table.rows for j, c in enumerate(table.columns) if c in SERIES]
        names = labels(every, longest=3 * LONG)
        texts = [names[text] for text in texts]
    width = _width([head, *texts])
    if width <= LONG + SPACE:
        return _Column("l", escape(head), [*map(escape, texts)], width)
    declared = rf">{{\raggedright\arraybackslash}}p{{{LONG * LETTER:.0f}pt}}"
    folded = [r"\allowbreak{}".join(map(escape, pieces(text))) for text in texts]
    return _Column(declared, escape(head), folded, LONG + SPACE, lines=-(-width // LONG))


def _width(texts: Iterable[str]) -> int:
    return SPACE + max(map(len, texts))


def _centred(text: str) -> str:
    """Words in place of a number."""
    return rf"\multicolumn{{2}}{{c}}{{{escape(text)}}}"


def _number(cell: Cell, bold: bool) -> str:
    """The value of a cell and its uncertainty, which is never bold; empty for words."""
    if not isinstance(cell.value, int | float) or not cell.is_number:
        return ""
    text, uncertainty, mark = cell.text, "", ""
    if cell.interval:
        above, below = cell.interval[1] - cell.value, cell.value - cell.interval[0]
        places = supported_places(cell.value, max(above, below))
        text = to_places(cell.value, max(places, 1 - magnitude(cell.value)))
        up, down = (to_places(side, places).replace(",", "{,}") for side in (above, below))
        uncertainty = f"$^{{+{up}}}_{{-{down}}}$" if up != down else rf"$\,\pm\,${up}"
        mark = rf"\,{escape(cell.mark.strip())}" if cell.mark else ""
    whole, point, fraction = text.partition(".")
    left, right = (
        rf"\textbf{{{escape(part)}}}" if bold and part else escape(part)
        for part in (whole, point + fraction)
    )
    return f"{left} & {right}{uncertainty}{mark}"


def escape(text: str) -> str:
    """Text that TeX sets literally; letters beyond Latin-1 become their code points."""
    parts = [
        SPECIAL.get(c)
        or (c if c.isascii() or (c.isalpha() and c <= "ÿ") else f"{{[}}U+{ord(c):04X}{{]}}")
        for c in clean(text)
    ]
    # two of these in a row would form a ligature
    return re.sub(r"([-,])(?=\1)", r"\1{}", "".join(parts))
