"""Tables as LaTeX with booktabs; every character that is special to TeX is escaped."""

import re
from collections.abc import Sequence
from types import MappingProxyType

from attnbench.render.grid import Table, clean

PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{booktabs,graphicx,textcomp}
\usepackage[margin=2cm]{geometry}
\begin{document}
"""
END = "\\end{document}\n"

SPECIAL = MappingProxyType({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "[": "{[}", "]": "{]}",
    "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}",
    "“": r"\textquotedblleft{}", "”": r"\textquotedblright{}",
    "–": r"\textendash{}", "…": r"\ldots{}", "†": r"\textdagger{}", "°": r"\textdegree{}",
    "²": r"\textsuperscript{2}", "³": r"\textsuperscript{3}", "µ": r"\textmu{}",
    "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$", "∝": r"$\propto$", "√": r"$\surd$",
    "≤": r"$\le$", "≥": r"$\ge$", "σ": r"$\sigma$", "ε": r"$\epsilon$",
    "✓": r"$\surd$", "✗": r"$\times$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
})  # fmt: skip

# a table with more columns than this is scaled to the width of the text
WIDE = 4


def page(tables: Sequence[Table]) -> str:
    """A document of all tables that compiles as it is; each table can be copied out of it."""
    return PREAMBLE + "\n".join(map(table, tables)) + END


def table(table: Table) -> str:
    """A `table` environment with booktabs rules and the note below the grid."""
    if not table.rows:
        return f"% {escape(table.title)}: none\n"
    columns = "".join("r" if number else "l" for number in table.numeric)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _line(table.columns), r"\midrule"]
    lines += [_line([cell.text for cell in row]) for row in table.rows]
    grid = "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])
    if len(table.columns) > WIDE:
        grid = f"\\resizebox{{\\textwidth}}{{!}}{{%\n{grid}}}"
    note = rf"\par\smallskip\footnotesize {escape(table.note)}" + "\n" if table.note else ""
    return (
        "\\begin{table}[htbp]\n\\centering\n"
        rf"\caption{{{escape(table.title)}}}"
        f"\n\\label{{tab:{table.anchor}}}\n{grid}\n{note}\\end{{table}}\n"
    )


def escape(text: str) -> str:
    """Text that TeX sets literally; letters beyond Latin-1 become their code points."""
    parts = [
        SPECIAL.get(c) or (c if _is_latin(c) else f"{{[}}U+{ord(c):04X}{{]}}") for c in clean(text)
    ]
    # two of these in a row would form a ligature
    return re.sub(r"([-,])(?=\1)", r"\1{}", "".join(parts))


def _line(texts: Sequence[str]) -> str:
    return " & ".join(map(escape, texts)) + r" \\"


def _is_latin(character: str) -> bool:
    return character.isascii() or (character.isalpha() and ord(character) < 256)
