"""Tables as LaTeX with booktabs: a piece for each, to be input, and a document that shows them.

Every character that is special to TeX is escaped. In the document a table that is too wide is made
smaller; one that is too tall is a `longtable`, which TeX breaks.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from attnbench.render.grid import Cell, Table, clean, pieces

PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{array,booktabs,graphicx,longtable,textcomp}
\usepackage[margin=2cm]{geometry}
\setlength{\tabcolsep}{3pt}
\begin{document}
"""
END = "\\end{document}\n"
SMALLER = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"

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

LONG = 30  # letters; columns with longer texts are paragraphs
PARAGRAPH = r">{\raggedright\arraybackslash}p{130pt}"
TALL = 50  # rows; a page has no room for more


class Best(NamedTuple):
    """The cells of a table that are bold, by row and heading, and what that says of them."""

    cells: frozenset[tuple[str, str]]
    note: str


NONE = Best(frozenset(), "")
NO_BEST: Mapping[str, Best] = MappingProxyType({})


def files(tables: Sequence[Table], best: Mapping[str, Best] = NO_BEST) -> dict[str, str]:
    """File name to text: a piece for `\\input` for each table, and a document that shows all.

    `best` are the bold cells of tables, by the names of the tables.
    """
    marked = [(table, _within(table, best.get(table.name, NONE))) for table in tables if table.rows]
    inputs = {f"{table.name}.tex": _piece(table, bold) for table, bold in marked}
    shown = [_shown(table, bold.note) for table, bold in marked]
    return {**inputs, "tables.tex": PREAMBLE + "\n".join(shown) + END}


def _within(table: Table, best: Best) -> Best:
    """The bold cells that the table has; none if there is nothing to compare with."""
    names = {row[0].text for row in table.rows}
    cells = best.cells & {(name, heading) for name in names for heading in table.columns}
    return best._replace(cells=cells) if cells and len(names) > 1 else NONE


def _environment(table: Table) -> str:
    return "longtable" if len(table.rows) > TALL else "tabular"


def _piece(table: Table, best: Best) -> str:
    """The grid alone, below comments on what it shows and needs."""

    def shown(name: str, heading: str, cell: Cell, folds: bool) -> str:
        parts = pieces(cell.text) if folds else [cell.text]
        text = r"\allowbreak{}".join(map(escape, parts))
        return rf"\textbf{{{text}}}" if (name, heading) in best.cells else text

    longest = [max(len(row[i].text) for row in table.rows) for i in range(len(table.columns))]
    folds = [length > LONG for length in longest]
    kinds = zip(folds, table.aligned, strict=True)
    declared = "".join(PARAGRAPH if fold else "r" if right else "l" for fold, right in kinds)
    rows = [map(shown, [row[0].text] * len(row), table.columns, row, folds) for row in table.rows]
    lines = [" & ".join(cells) + r" \\" for cells in (map(escape, table.columns), *rows)]
    kind = _environment(table)
    packages = "array,booktabs" + ",longtable" * (kind == "longtable")
    comments = [f"{escape(table.title)}; needs \\usepackage{{{packages}}}"]
    comments += [escape(best.note)] if best.note else []
    grid = [
        rf"\begin{{{kind}}}{{{declared}}}", r"\toprule", lines[0], r"\midrule", *lines[1:],
        r"\bottomrule", rf"\end{{{kind}}}",
    ]  # fmt: skip
    return "\n".join([*(f"% {comment}" for comment in comments), *grid, ""])


def _shown(table: Table, bold: str) -> str:
    """A table with its title and note: it floats, unless it is too tall for a page."""
    title, body = escape(table.title), f"\\input{{{table.name}}}"
    notes = [rf"\par\smallskip {escape(note)}" for note in (bold, table.note) if note]
    if _environment(table) == "longtable":
        heading = f"{{\\footnotesize\\noindent {title}\\nopagebreak"
        return "\n".join([heading, body, *notes, "\\par}\n"])
    heading = "\\begin{table}[htbp]\n\\centering\\footnotesize\n"
    heading += f"\\caption{{{title}}}\n\\label{{tab:{table.anchor}}}"
    return "\n".join([heading, f"{SMALLER}{{%\n{body}}}", *notes, "\\end{table}\n"])


def escape(text: str) -> str:
    """Text that TeX sets literally; letters beyond Latin-1 become their code points."""
    parts = [
        SPECIAL.get(c)
        or (c if c.isascii() or (c.isalpha() and c <= "ÿ") else f"{{[}}U+{ord(c):04X}{{]}}")
        for c in clean(text)
    ]
    # two of these in a row would form a ligature
    return re.sub(r"([-,])(?=\1)", r"\1{}", "".join(parts))
