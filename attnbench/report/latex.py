"""Tables as LaTeX with booktabs, each a file to be input in a paper's own table.

Every character that is special to TeX is escaped.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from attnbench.errors import clean
from attnbench.report.grid import Cell, Table, cut

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
    "✓": r"$\surd$", "✗": r"$\times$",
})  # fmt: skip

LONG = 30  # letters; columns with longer texts are paragraphs
PARAGRAPH = "p{130pt}"


def table(table: Table) -> str:
    """The grid, to be input, below comments on what it shows and needs.

    Why numbers are missing stands in footnotes below it, numbered in the order of the cells.
    """
    reasons = dict.fromkeys(cell.reason for row in table.rows for cell in row if cell.reason)
    marks = {reason: str(i) for i, reason in enumerate(reasons, 1)}
    longest = [max(len(row[i].text) for row in table.rows) for i in range(len(table.columns))]
    kinds = zip(longest, table.aligned, strict=True)
    declared = "".join(PARAGRAPH if n > LONG else "r" if right else "l" for n, right in kinds)
    head, *rows = [map(Cell, table.columns), *table.rows]
    lines = [" & ".join(_shown(cell, marks) for cell in row) + r" \\" for row in (head, *rows)]
    return "\n".join([
        rf"% {escape(table.title)}; needs \usepackage{{booktabs,textcomp}}",
        rf"% {escape(table.bold_note)}",
        rf"\begin{{tabular}}{{{declared}}}", r"\toprule", lines[0], r"\midrule", *lines[1:],
        r"\bottomrule", r"\end{tabular}", *_footnotes(marks), "",
    ])  # fmt: skip


def _footnotes(marks: Mapping[str, str]) -> Iterator[str]:
    """A paragraph in small type, with each reason behind its mark, cut at its end if it is long."""
    if marks:
        texts = [
            f"{_mark(mark)}{escape(cut(reason).rstrip('.'))}" for reason, mark in marks.items()
        ]
        if any(cut(reason) != reason for reason in marks):
            texts.append("cases.csv has each in full")
        yield rf"\par\smallskip{{\footnotesize {'; '.join(texts)}.\par}}"


def _mark(mark: str) -> str:
    return rf"\textsuperscript{{{mark}}}"


def _shown(cell: Cell, marks: Mapping[str, str]) -> str:
    if cell.reason:
        return escape(cell.text) + _mark(marks[cell.reason])
    return rf"\textbf{{{escape(cell.text)}}}" if cell.best else escape(cell.text)


def escape(text: str) -> str:
    """Text that TeX sets literally; letters beyond Latin-1 become their code points."""
    parts = [
        SPECIAL.get(c)
        or (c if c.isascii() or (c.isalpha() and c <= "ÿ") else f"{{[}}U+{ord(c):04X}{{]}}")
        for c in clean(text)
    ]
    # two of these in a row would form a ligature
    return re.sub(r"([-,])(?=\1)", r"\1{}", "".join(parts))
