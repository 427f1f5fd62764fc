"""Hostile names, and a small table that has them."""

import re
from itertools import accumulate

from attnbench.report.grid import Cell, Table, words

WIDTH = 396.0  # points of TeX


HOSTILE = (
    '=HYPERLINK("http://x")',
    "-2+3",
    "@SUM(A1)",
    "a|b",
    "<script>alert(1)</script>",
    "![x](http://x)",
    "[x](http://x)",
    "**bold** _it_ `code` ~s~ $x^2$",
    "\\input{/etc/passwd}",
    "100% & #1 {x} ~ ^ _y_",
    "\x1b[31mred\x1b]0;title\x07",
    "[red]rich[/red] [link=http://x]y[/link]",
    "one\ntwo\r\nthree\u2028four\u202egnp.exe",
    "中文 Ωmega ü",
    "# heading",
)


def table(*names: str) -> Table:
    rows = tuple((words(name), Cell("1.20 ±0.10", 1.2, 1.1, 1.3), Cell("–")) for name in names)
    return Table(name="t", title="Title", columns=("Name", "64", "128"), rows=rows, note="A note.")


def braces_balance(text: str) -> bool:
    braces = re.findall(r"(?<!\\)(?:\\\\)*[{}]", text)
    depths = [*accumulate(1 if brace[-1] == "{" else -1 for brace in braces)]
    return min(depths, default=0) >= 0 and (depths or [0])[-1] == 0
