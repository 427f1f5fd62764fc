"""Tables as LaTeX: balanced, literal, and at most as wide as they may be."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.report import latex
from attnbench.report.grid import Cell, Table, words
from tests.report.hostile import HOSTILE, WIDTH, braces_balance, table


@given(st.text(max_size=60))
def test_any_text_leaves_latex_balanced(text: str):
    escaped = latex.escape(text)
    assert braces_balance(escaped)
    assert "\n" not in escaped


def test_latex_is_a_tabular_below_comments_on_what_it_shows_and_needs():
    title, note, wide, *lines = latex.table(table("a"), WIDTH).splitlines()
    assert title == r"% Title; needs \usepackage{array,booktabs,textcomp}"
    assert note == "% A note."
    assert re.fullmatch(r"% about \d+ pt wide at 8 pt", wide)
    assert lines[0] == r"\begingroup\footnotesize\setlength{\tabcolsep}{3pt}%"
    assert (lines[1], lines[-2]) == (r"\begin{tabular}{@{}lrl@{}}", r"\end{tabular}")
    assert lines[-1] == r"\par\endgroup"
    assert [lines.count(f"\\{rule}rule") for rule in ("top", "mid", "bottom")] == [1, 1, 1]


def test_numbers_of_latex_are_as_in_other_tables_with_their_interval_once():
    cells = (Cell("12.34 ±0.45", 12.34, 11.89, 12.79), Cell("24 [12, 62]", 24.0, 12.0, 62.0))
    rows = ((words("a"), *cells), (words("b"), Cell("over budget"), Cell("1", 1)))
    one = Table(name="t", title="T", columns=("Mechanism", "128", "256"), rows=rows, across="ms")
    assert r"a & 12.34 $\pm$0.45 & 24 {[}12, 62{]} \\" in latex.table(one, WIDTH)
    assert r"b & over budget & 1 \\" in latex.table(one, WIDTH)
    assert r"\begin{tabular}{@{}lrr@{}}" in latex.table(one, WIDTH)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here")
def test_latex_compiles_with_every_latin_letter_and_hostile_name(tmp_path):
    letters = "".join(map(chr, range(32, 256))) + "".join(latex.SPECIAL)
    text = latex.table(table(*HOSTILE, letters), WIDTH)
    head = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{array,booktabs,textcomp}"
    document = f"{head}\n\\begin{{document}}\n{text}\\end{{document}}\n"
    (tmp_path / "tables.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:].decode(errors="replace")


LONG = Cell("out of memory", reason="RuntimeError: " + "no_room.cpp:127 " * 20)


def lengths(count):
    """A table of one series with so many columns of lengths."""
    cells = (Cell("11,000 ±2,200", 11_000.0),) * (count - 1)
    columns = ("Mechanism", *(f"{2**n:,}" for n in range(7, 7 + count)))
    rows = ((words("fastformer"), *cells, LONG),)
    return Table(name="t", title="T", columns=columns, rows=rows, across="time_ms")


@given(st.integers(1, 14), st.sampled_from([200.0, 234.0, 396.0, 486.0]))
def test_blocks_are_even_within_the_width_and_have_every_length_once(count, width):
    text = latex.table(lengths(count), width)
    assert int(re.search(r"% about (\d+) pt wide", text)[1]) <= width
    heads = [line for line in text.splitlines() if line.startswith("Mechanism")]
    blocks = [re.findall(r"\d[\d,]*", head) for head in heads]
    assert [n for block in blocks for n in block] == [f"{2**n:,}" for n in range(7, 7 + count)]
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1


def test_a_reason_is_a_footnote_that_is_cut_at_its_end():
    text = latex.table(lengths(2), WIDTH)
    assert r"\textendash{}\textsuperscript{1}" in text
    assert r"\textsuperscript{1}out of memory: RuntimeError: no\_\allowbreak{}room" in text
    assert text.count("127") < 20
    assert "cases.csv has each in full" in text


def test_groups_are_headings_over_their_columns():
    text = latex.table(lengths(4), 2 * WIDTH, groups=[("Training", 3), ("100 %", 1)])
    assert r" & \multicolumn{3}{c}{Training} & \multicolumn{1}{c}{100 \%} \\" in text
    assert "\\cmidrule(lr){2-4}\n\\cmidrule(lr){5-5}" in text
