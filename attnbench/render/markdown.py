"""Tables as GitHub-flavoured Markdown."""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from attnbench.render.answers import TITLE
from attnbench.render.grid import Table, clean

# the last two alternatives are what GitHub turns into links by itself
SIGNS = re.compile(r"([\\`*|~$]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])|:(?=//)|(?<=[wW]{3})\.)")
HTML = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"))


def page(
    title: str,
    warnings: Sequence[str],
    conditions: Sequence[str],
    pictures: Iterable[str],
    sections: Sequence[str],
    lead: str = "",
    answers: Mapping[str, str] = MappingProxyType({}),
    first: int = 0,
) -> bytes:
    """A title, a lead sentence, answers, warnings, conditions and pictures, then sections.

    The first `first` sections belong to the answers.
    """
    lines = [f"# {escape(title)}", "", *([escape(lead), ""] if lead else ())]
    if answers:
        said = map(": ".join, answers.items())
        lines += [f"## {TITLE}", "", *(f"- {escape(text)}" for text in said), ""]
        lines += [*sections[:first], "## Conditions", ""]
    lines += [f"- Warning: {escape(warning)}" for warning in warnings]
    lines += [f"- {escape(condition)}" for condition in conditions]
    lines += ["", *(f"![{name.partition('.')[0]}]({name})" for name in pictures), ""]
    return "\n".join([*lines, *sections[first:]]).encode()


def table(table: Table) -> str:
    """A heading, the grid and its note."""
    note = f"\n{escape(table.note)}\n" if table.note else ""
    if not table.rows:
        return f"## {escape(table.title)}\n\nNone.\n{note}"
    rules = ["---:" if number else "---" for number in table.numeric]
    lines = [table.columns, rules, *([cell.text for cell in row] for row in table.rows)]
    grid = "\n".join(
        "| " + " | ".join(escape(text) if line is not rules else text for text in line) + " |"
        for line in lines
    )
    return f"## {escape(table.title)}\n\n{grid}\n{note}"


def escape(text: str) -> str:
    """Text that shows as it is: no emphasis, code, link, HTML, mathematics or cell border."""
    text = SIGNS.sub(r"\\\1", clean(text))
    for character, entity in HTML:
        text = text.replace(character, entity)
    # these at the start of a line would make a heading or a list
    return re.sub(r"^(\s*)([#+-]|\d+(?=[.)]\s))", r"\1\\\2", text)
