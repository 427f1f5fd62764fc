"""Tables as LaTeX with booktabs, each a file to be input in a paper's own table.

Every character that is special to TeX is escaped.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from attnbench.errors import clean
from attnbench.records import units
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

# widths of letters of Computer Modern, in thousandths of the type size
WIDTHS = MappingProxyType({
    letter: width
    for width, letters in (
        (278, "ijl.,;:!'|[]"), (306, "f"), (333, " -"), (389, "()tr"), (394, "s"),
        (444, "cez†°²³"), (500, "0123456789ago/–…"), (528, "kqvxy"), (556, "bdhnpuS"),
        (625, "LFZ"), (722, "wABCDEGHJKNOPQRTUVXYI"), (833, "m%"), (1028, "WM—"),
    )
    for letter in letters
})  # fmt: skip
OTHERWISE = 778  # of any other letter
TYPE = 8.0 * 1.065  # points of \footnotesize; small type is wider than its size says
BOLD = 1.18  # how much wider bold letters are
MARK_WIDTH = 4.5  # points of a digit of a mark
GAP = 6.0  # points between columns
NAMES = 0.42  # of the width, which the leading columns may take
WORDS = 130.0  # points; columns with wider texts are paragraphs
MOST = 0.55  # of the width, which a column of words may take
LINE = 9.5  # points from a line of \\footnotesize to the next
RULES = 14.0  # points of the rules of a tabular, and of the space above and below it
PART = 1 / 3  # of the height of its place, which a part of a table may take that is higher

Group = tuple[str, int]  # a heading, and over how many columns it stands


@dataclass(frozen=True)
class _Column:
    """A column as TeX has it: its declaration, heading and cells, and how wide it is in points.

    above: how many lines of the heading, and then of each cell, stand above that line of a row
        which its cells share.
    below: the same for lines below it.
    """

    declared: str
    heading: str
    cells: Sequence[str]
    width: float
    above: Sequence[int]
    below: Sequence[int]


def table(
    table: Table, width: float, height: float = math.inf, groups: Sequence[Group] = ()
) -> str:
    """The grid, to be input, below comments on what it shows and needs.

    width, height: of the place where it is to stand, in points.

    It is in small type (\\footnotesize) and at most `width` points wide: intervals go below their
    numbers where that suffices, else it has several blocks of columns below each other, of which
    each starts with the leading ones. `groups` are headings above the columns that follow these; a
    block then ends with a group. What was not measured is a dash, and why stands in footnotes,
    numbered in the order of the cells.

    What is higher than its place would be cut off as a float. A comment says so, and each block has
    parts of at most a third of that height, all with the headings, so that it can be input in the
    text and pages end between its parts.
    """
    reasons = dict.fromkeys(_why(cell) for row in table.rows for cell in row if cell.reason)
    marks = {reason: str(i) for i, reason in enumerate(reasons, 1)}
    columns = [_column(table, i, marks, width) for i in range(len(table.columns))]
    if not table.across and _wide(columns) > width:
        folded = [_column(table, i, marks, width, fold=True) for i in range(len(columns))]
        if _wide(folded) < _wide(columns):
            columns = folded
    leading = columns[: table.leading]
    others = columns[table.leading :]
    blocks = [
        ([*leading, *block], headings)
        for block, headings in _blocks(leading, others, width, groups)
    ]
    notes = LINE * _paragraph(map(cut, marks), width)
    needed = sum(_height(block) for block, _ in blocks) + notes
    lines = [
        rf"% {escape(table.title)}; needs \usepackage{{array,booktabs,textcomp}}",
        *([rf"% {escape(table.bold_note)}"] if table.bold_note else []),
        rf"% about {round(max(_wide(block) for block, _ in blocks))} pt wide at 8 pt",
        *([_too_high(needed, height)] if needed > height else []),
        r"\begingroup\footnotesize\setlength{\tabcolsep}{3pt}%",
        *([r"\setlength{\parindent}{0pt}%"] if needed > height else []),
    ]
    parts = [
        (block, headings, rows)
        for block, headings in blocks
        for rows in _parts(block, height * PART if needed > height else math.inf)
    ]
    for i, (block, headings, rows) in enumerate(parts):
        lines += [r"\par\medskip"] * bool(i)
        lines += _tabular(block, rows, len(leading), headings)
    return "\n".join([*lines, *_footnotes(marks), r"\par\endgroup", ""])


def _too_high(needed: float, height: float) -> str:
    """The comment on a table that no float can hold."""
    return (
        f"% about {needed:,.0f} pt high, more than a page ({height:.0f} pt): input it in the text, "
        "not in a table environment; pages end between its parts"
    )


def _why(cell: Cell) -> str:
    """Why a number is missing: its cause in two or three words, and the reason in full."""
    return cell.reason if cell.reason.startswith(cell.text) else f"{cell.text}: {cell.reason}"


def _column(
    table: Table, i: int, marks: Mapping[str, str], width: float, *, fold: bool = False
) -> _Column:
    """One column of the table, which is a paragraph if its words are too long.

    marks: the mark of each reason.
    width: of the whole table, in points.
    fold: whether intervals stand below their numbers.
    """
    cells = [row[i] for row in table.rows]
    lines = [_lines(cell, fold=fold) for cell in cells]
    widest = max(
        (_width(line) * (BOLD if cell.best else 1) + _mark_width(cell, marks)
         for cell, texts in zip(cells, lines, strict=True) for line in texts),
        default=0.0,
    )  # fmt: skip
    limit = NAMES * width / table.leading if i < table.leading else min(WORDS, MOST * width)
    right = table.aligned[i]
    words = table.columns[i].split()
    if widest > limit and not right:
        declared = rf">{{\raggedright\arraybackslash}}p{{{limit:.0f}pt}}"
        widest = limit
        shown = [breakable(cell.text) for cell in cells]
        above = [0 for _ in cells]
        below = [_paragraph([cell.text], limit) - 1 for cell in cells]
    else:
        declared = "r" if right else "l"
        above = [len(texts) - 1 for texts in lines]
        below = [0 for _ in cells]
        shown = [_shown(cell, texts, marks) for cell, texts in zip(cells, lines, strict=True)]
    heading = _folded(words, max(widest, *map(_width, words), 0.0))
    widest = max(widest, *map(_width, heading), 0.0)
    return _Column(
        declared=declared,
        heading=_stacked(heading, declared),
        cells=shown,
        width=widest,
        above=[max(0, len(heading) - 1), *above],
        below=[0, *below],
    )


def _paragraph(texts: Iterable[str], width: float) -> int:
    """About how many lines of this width a paragraph of these texts has."""
    words = [word for text in texts for word in re.split(r"(?<=[/,.=:_])(?=[^\s\d])|\s", text)]
    return len(_folded(words, width))


def _lines(cell: Cell, *, fold: bool) -> list[str]:
    """The lines of a cell: a number, and with `fold` its interval below it."""
    if cell.reason:
        return [units.NOTHING]
    number, bracket, interval = cell.text.partition(" [")
    if fold and bracket and cell.is_number:
        return [number, f"[{interval}"]
    return [cell.text]


def _folded(words: Sequence[str], width: float) -> list[str]:
    """Words in lines of at most this width, or of one word each."""
    lines: list[str] = []
    for word in words:
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and _width(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _stacked(lines: Sequence[str], declared: str) -> str:
    """Lines below each other in one cell, aligned as the column is."""
    escaped = [*map(escape, lines)]
    if len(escaped) < 2:
        return "".join(escaped)
    aligned = "r" if declared == "r" else "l"
    below = r"\\".join(escaped)
    # the strut keeps the first line off the row above
    return rf"\shortstack[{aligned}]{{\strut {below}}}"


def _blocks(
    leading: Sequence[_Column], others: Sequence[_Column], width: float, groups: Sequence[Group]
) -> Iterator[tuple[Sequence[_Column], Sequence[Group]]]:
    """The columns of each block after the leading ones, with the headings above them.

    leading: columns that every block repeats.
    others: all other columns.
    width: of a block, in points.
    groups: headings, each with the number of columns below it.
    """
    if not others or _wide([*leading, *others]) <= width:
        yield others, groups
        return
    for heading, count in groups or [("", len(others))]:
        left = others[:count]
        others = others[count:]
        parts = [*_split(leading, left, width)]
        # as even as they fit, so that no block has a single column beside those of the others
        even = [*_evenly(left, len(parts))]
        if all(_wide([*leading, *part]) <= width for part in even):
            parts = even
        for part in parts:
            yield part, [(heading, len(part))] if heading else ()


def _split(
    leading: Sequence[_Column], columns: Sequence[_Column], width: float
) -> Iterator[Sequence[_Column]]:
    """As many columns as fit beside the leading ones, at least one, until all have been."""
    while columns:
        fits = 1
        while fits < len(columns) and _wide([*leading, *columns[: fits + 1]]) <= width:
            fits += 1
        yield columns[:fits]
        columns = columns[fits:]


def _evenly(columns: Sequence[_Column], parts: int) -> Iterator[Sequence[_Column]]:
    """The columns in so many parts, of which the first may have one more than the last."""
    least, more = divmod(len(columns), parts)
    for i in range(parts):
        count = least + (i < more)
        yield columns[:count]
        columns = columns[count:]


def _heights(columns: Sequence[_Column]) -> list[float]:
    """How high the headings of a block are with its rules, and then each of its rows, in points."""
    above = [max(counts) for counts in zip(*(one.above for one in columns), strict=True)]
    below = [max(counts) for counts in zip(*(one.below for one in columns), strict=True)]
    headings, *rows = (LINE * (1 + a + b) for a, b in zip(above, below, strict=True))
    return [headings + RULES, *rows]


def _height(columns: Sequence[_Column]) -> float:
    return sum(_heights(columns))


def _parts(columns: Sequence[_Column], height: float) -> Iterator[slice]:
    """The rows of each part of a block, which with its headings is at most so high.

    A row that is higher is a part of its own.
    """
    headings, *rows = _heights(columns)
    first = 0
    high = headings
    for i, row in enumerate(rows):
        if i > first and high + row > height:
            yield slice(first, i)
            first = i
            high = headings
        high += row
    yield slice(first, len(rows))


def _tabular(
    columns: Sequence[_Column], rows: slice, leading: int, groups: Sequence[Group]
) -> Iterator[str]:
    """The lines of these rows of a block, with `groups` above the headings of its columns."""
    yield rf"\begin{{tabular}}{{@{{}}{''.join(one.declared for one in columns)}@{{}}}}"
    yield r"\toprule"
    if groups:
        over = (rf"\multicolumn{{{count}}}{{c}}{{{escape(text)}}}" for text, count in groups)
        yield " & ".join([*[""] * leading, *over]) + r" \\"
        first = leading + 1
        for _, count in groups:
            yield rf"\cmidrule(lr){{{first}-{first + count - 1}}}"
            first += count
    yield " & ".join(one.heading for one in columns) + r" \\"
    yield r"\midrule"
    for cells in zip(*(one.cells[rows] for one in columns), strict=True):
        yield " & ".join(cells) + r" \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _wide(columns: Sequence[_Column]) -> float:
    """The width of columns side by side, in points."""
    return sum(one.width for one in columns) + GAP * (len(columns) - 1)


def _width(text: str) -> float:
    """About how wide a text is, in points."""
    return sum(WIDTHS.get(letter, OTHERWISE) for letter in clean(text)) * TYPE / 1000


def _mark_width(cell: Cell, marks: Mapping[str, str]) -> float:
    return MARK_WIDTH * len(marks[_why(cell)]) if cell.reason else 0.0


def _footnotes(marks: Mapping[str, str]) -> Iterator[str]:
    """A paragraph with each reason behind its mark, cut at its end if it is long."""
    if marks:
        texts = [
            f"{_mark(mark)}{breakable(cut(reason).rstrip('.'))}" for reason, mark in marks.items()
        ]
        if any(cut(reason) != reason for reason in marks):
            texts.append("cases.csv has each in full")
        yield rf"\par\smallskip{{\raggedright {'; '.join(texts)}.\par}}"


def _mark(mark: str) -> str:
    return rf"\textsuperscript{{{mark}}}"


def _shown(cell: Cell, lines: Sequence[str], marks: Mapping[str, str]) -> str:
    text = _stacked(lines, "r")
    if cell.reason:
        return text + _mark(marks[_why(cell)])
    return rf"\textbf{{{text}}}" if cell.best else text


def breakable(text: str) -> str:
    """Text of a paragraph, in which lines may end within paths, names and lists."""
    return re.sub(r"(\\_|[/,.=:])(?=[^\s\d])", r"\1\\allowbreak{}", escape(text))


def escape(text: str) -> str:
    """Text that TeX sets literally; letters beyond Latin-1 become their code points."""
    parts = [
        SPECIAL.get(c)
        or (c if c.isascii() or (c.isalpha() and c <= "ÿ") else f"{{[}}U+{ord(c):04X}{{]}}")
        for c in clean(text)
    ]
    # two of these in a row would form a ligature
    return re.sub(r"([-,])(?=\1)", r"\1{}", "".join(parts))
