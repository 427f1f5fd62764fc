"""Markdown, CSV, LaTeX and terminal output of one table, with hostile names."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from attnbench.errors import clean
from attnbench.report import delimited, latex, markdown, terminal
from attnbench.report.grid import Cell, Table, words
from tests.report.hostile import HOSTILE, WIDTH, braces_balance, table


def printed(one: Table, width: int, **options: object) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, **options)
    console.print(terminal.table(one, width))
    return stream.getvalue()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_a_table_or_acts(name: str):
    _, _, *grid = markdown.table(table(name)).splitlines()
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 4 for line in grid[:3])
    assert "<" not in grid[2]
    assert not re.search(r"(?<!\\)\](?=\()|(?<!\\)[`*~$]", grid[2])

    head, row = csv.reader(io.StringIO(delimited.table(table(name)).decode(), newline=""))
    assert head == ["name", "64", "64_low", "64_high", "128"]
    assert row[1:] == ["1.2", "1.1", "1.3", ""]
    assert row[0] in (clean(name), "'" + clean(name))
    assert row[0][0] not in "=+-@"

    text = latex.table(table(name), WIDTH)
    body = text[text.index("\\midrule") : text.index("\\bottomrule")]
    assert braces_balance(text)
    assert len(re.findall(r"(?<!\\)&", body)) == 2
    assert not re.search(r"(?<!\\)[%#]", body)
    commands = set(re.findall(r"\\([A-Za-z]+|.)", body))
    harmless = ("midrule", "allowbreak", "pm", *"\\%#&_{}$")
    assert all(c in harmless or c.startswith("text") for c in commands)
    assert all(ord(c) < 256 for c in body)

    text = printed(table(name), 120)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2028\u202e]", text)
    assert "[red]" not in name or "[red]rich" in text


def test_the_best_are_bold_and_the_note_says_so():
    row = (words("a"), Cell("1.25 ±0.30", 1.25, 0.95, 1.55, best=True))
    one = Table(name="t", title="T", columns=("Mechanism", "128"), rows=(row,))
    assert r"a & \textbf{1.25 $\pm$0.30} \\" in latex.table(one, WIDTH)
    assert "| a | **1.25 ±0.30** |" in markdown.table(one)
    for text in (latex.table(one, WIDTH), markdown.table(one)):
        assert "Bold: the best at each length, and what ties with it." in text
    assert "Bold" not in markdown.table(table("a"))


def test_no_colour_is_written_where_it_is_switched_off():
    assert "\x1b" not in printed(table("a"), 80)
    assert "\x1b[3" not in printed(table("a"), 80, force_terminal=True, no_color=True)


@given(st.text(max_size=80))
def test_cleaned_text_is_one_printable_line(text: str):
    found = clean(text)
    assert found.isprintable()
    assert clean(found) == found


@pytest.mark.parametrize("writer", [markdown.table, delimited.table])
def test_an_empty_table_is_written_too(writer):
    assert writer(Table(name="t", title="T", columns=("a", "b"), rows=()))


COUNTS = st.floats(0.01, 99_999).map(lambda x: Cell(f"{x:,.3g} ±{x / 9:,.2g}", x))
SERIES = st.sampled_from(
    (
        "bigbird:eager[block=8,global_tokens=16,random_tokens=16]",
        "fastformer",
        "transformer:compiled",
        "longformer:transformers[global_tokens=16,window=16]",
        "poolingformer:blocked[pool_window=256,window=16]",
        "/home/somebody/my_mechanisms/attention.py:Mine",
    )
)
OUTCOMES = st.sampled_from(("skipped", "out of memory", "over budget", "exceeds memory"))
REASONS = st.sampled_from(("not run: already timed out at N = 32,768", "would exceed --budget"))


@st.composite
def tables(draw):
    """Tables of numbers by length, of numbers and words, and of words, as reports have them."""
    series = draw(st.lists(SERIES, min_size=1, max_size=4, unique=True))
    lengths = [f"{2**n:,}" for n in range(7, draw(st.integers(8, 17)))]
    mixed = ["Mode", "Time per iteration", "Peak memory", "Reason", "Outcome"]
    across, leading = draw(st.sampled_from([("time_ms", 1), ("", 1), ("", 2)]))
    columns = lengths if across else mixed
    numbers, text = COUNTS | OUTCOMES.map(words), (OUTCOMES | REASONS).map(words)
    kinds = [numbers if across or i in (1, 2) else text for i in range(len(columns))]
    rows = tuple((words(name), *map(draw, kinds)) for name in series)
    heads = ("Mechanism", *columns)
    return Table(name="t", title="T", columns=heads, rows=rows, across=across, leading=leading)


@given(tables(), st.integers(40, 200))
def test_at_any_width_no_number_is_broken_and_every_block_has_all_rows(one: Table, width: int):
    text = printed(one, width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert all(cell.text in text for row in one.rows for cell in row if cell.is_number)
    blocks = sum(line.startswith("Mech") for line in lines)
    firsts = [row[0].text[:4] for row in one.rows]
    assert sum(any(map(line.startswith, firsts)) for line in lines) >= len(firsts) * blocks
    assert text.count("Mode") == (blocks if one.leading == 2 else not one.across)
