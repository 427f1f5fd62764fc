"""Tables and pages as Markdown that GitHub shows as they are meant."""

import html
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.errors import clean
from attnbench.report import markdown
from attnbench.report.grid import Cell, Report, Table
from tests.report.hostile import table


def test_markdown_has_a_line_for_each_row_and_numbers_to_the_right():
    assert "| --- | ---: | --- |" in markdown.table(table("a"))
    one = Table(name="t", title="T", columns=("a\nb",), rows=((Cell("c\r\n| d"),),))
    assert markdown.table(one).splitlines()[2:] == ["| a b |", "| --- |", r"| c  \| d |"]
    plain = "linear_transformer:eager[rank=16]"
    assert markdown.escape(plain) == plain


LINKS = re.compile(r"(?<!\\)([`*~$|]|\](?=[(\[:])|:(?=//))|(?<!\\)\bwww\.|<")


@given(st.text(st.sampled_from("ab 1.)#+-|*_`~$<>[](:/)w\\\n"), max_size=40))
def test_no_text_becomes_emphasis_code_a_link_or_a_cell(text):
    found = markdown.escape(text)
    assert "\n" not in found
    assert not LINKS.search(re.sub(r"\\\\", "", found))
    assert html.unescape(re.sub(r"\\(.)", r"\1", found)) == clean(text), "nothing is lost"


@pytest.mark.parametrize("text", ["# a", "- a", "+ a", "1. a", "12) a", "  - a"])
def test_the_start_of_a_line_makes_no_heading_and_no_list(text):
    assert re.match(r"\s*(\d*)\\", markdown.escape(text))


def test_a_page_has_answers_then_conditions_then_pictures_and_tables():
    one, other = (replace(table("a"), title=title) for title in ("First", "Second"))
    report = Report(
        title="A *sweep*",
        answers={"Fastest": "a at 128."},
        warnings=["few rounds"],
        conditions=["Measured on a machine."],
        leading=[one],
        tables=[other],
    )
    text = markdown.page(report, ["fig2.png", "memory.svg"]).decode()
    parts = [
        *("# A \\*sweep\\*", "- Fastest: a at 128.", "## First", "## Conditions"),
        *("- Warning: few rounds", "- Measured on a machine.", "![fig2](fig2.png)"),
        *("![memory](memory.svg)", "## Second"),
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_table_without_rows_says_none():
    assert "\n\nNone.\n" in markdown.table(Table(name="t", title="T", columns=("a",), rows=()))
