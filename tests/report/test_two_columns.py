"""LaTeX tables in papers of two columns: compiled where there is a LaTeX, and no line too wide."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from attnbench.analysis.report import analyse
from attnbench.records import Outcome
from attnbench.records.storage.journal import load
from attnbench.report import answers, latex, page
from attnbench.report.grid import Cell, Table, words
from attnbench.report.names import with_labels
from attnbench.report.sizes import LAYOUTS, ReportSize
from tests.sweeps import lost, sweep

STORED = sorted(path.parent for path in Path("reports").glob("[!0-9]*/sweep.jsonl"))
PLACES = {ReportSize.COLUMN: "table", ReportSize.TEXT: "table*"}
# columns of 3.3 inches, 0.2 apart: the narrowest of the usual classes
HEAD = r"""\documentclass[10pt,twocolumn]{article}
\usepackage[T1]{fontenc}\usepackage{array,booktabs,textcomp}
\setlength{\textwidth}{6.8in}\setlength{\columnsep}{0.2in}\setlength{\oddsidemargin}{-0.15in}
\setlength{\topmargin}{-0.8in}\setlength{\textheight}{9.6in}
\begin{document}
"""
LARGE = r"Overfull \\\w+ \(\S+ too \w+\)|Float too large for page by \S+"
MISSING = "there is no pdflatex here"


def written(whole, size):
    """The LaTeX of every table of a sweep, by its name."""
    analysis = analyse(whole)
    width = LAYOUTS[size].table
    height = LAYOUTS[size].table_height
    every = with_labels(
        [*page.report_tables(analysis)], analysis.cases["series"], analysis.suspects
    )
    made = {one.name: latex.table(one, width, height) for one in every if one.rows}
    fronts = analysis.answers.fronts
    leading = [one for one in every if one.name.startswith("answer_")]
    both, groups = answers.in_modes(leading, fronts)
    return {**made, "answer": latex.table(both, width, height, groups)}


def placed(text, size):
    """A table as a paper has it: in a float of its own, or in the text if it says so."""
    if "input it in the text" not in text:
        place = PLACES[size]
        return f"\\begin{{{place}}}\n\\centering\n{text}\\end{{{place}}}\\clearpage"
    if size is ReportSize.TEXT:
        return f"\\onecolumn\n{text}\\twocolumn"
    return f"{text}\\clearpage"


def misfits(texts, size, folder):
    """The tables that TeX says are larger than their place, with what it says of them."""
    parts = []
    for name, text in texts.items():
        table = placed(text, size)
        parts.append(f"\\typeout{{<{name}>}}\n{table}\n\\typeout{{</>}}\n")
    document = f"{HEAD}{''.join(parts)}\\end{{document}}\n"
    (folder / "tables.tex").write_text(document)
    command = ["pdflatex", "-interaction=batchmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    log = (folder / "tables.log").read_text("utf-8", "replace")
    assert done.returncode == 0, log[-1500:]
    own = dict(re.findall(r"^<(\w+)>$(.*?)^</>$", log, re.DOTALL | re.MULTILINE))
    assert [*own] == [*texts]
    found = {name: re.findall(LARGE, said) for name, said in own.items()}
    return {name: large for name, large in found.items() if large}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason=MISSING)
@pytest.mark.parametrize("size", PLACES)
@pytest.mark.parametrize("folder", STORED, ids=lambda path: path.name)
def test_every_table_of_a_stored_sweep_fits_two_columns(folder, size, tmp_path):
    assert not misfits(written(load(folder), size), size, tmp_path)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason=MISSING)
@pytest.mark.parametrize("size", PLACES)
def test_long_names_and_reasons_fit_two_columns(size, tmp_path):
    layout = LAYOUTS[size]
    texts = {
        one.title: latex.table(one, layout.table, layout.table_height)
        for one in (hostile(), tall(60))
    }
    assert not misfits(texts, size, tmp_path)


def hostile():
    """A table with ten lengths, a path as a name and a long reason."""
    reason = "RuntimeError: " + "a_long_name_of_something.cpp:127 " * 4
    cells = [Cell("11,000 ±2,200", 11_000.0, best=True) for _ in range(9)]
    name = "/home/somebody/my_mechanisms/attention_of_mine.py:GatedLinearAttention"
    return Table(
        name="t",
        title="Title",
        columns=("Mechanism", *(f"{2**n:,}" for n in range(7, 17))),
        rows=((words(name), *cells, Cell("over budget", reason=reason)),) * 2,
        across="time_ms",
    )


def tall(rows):
    """A table of as many series as these, in one of which the name takes two lines."""
    cells = [Cell(f"{n} ±{n}", float(n)) for n in (1, 22, 333)]
    names = [f"mechanism_{i}" for i in range(rows - 1)] + ["a_long_path_of_mine.py:" + "Gated/" * 9]
    return Table(
        name="t",
        title="High",
        columns=("Mechanism", "128", "256", "512"),
        rows=tuple((words(name), *cells) for name in names),
        across="time_ms",
    )


@pytest.mark.parametrize("size", ReportSize)
def test_what_is_higher_than_its_place_says_so_and_has_parts_with_every_row_once(size):
    layout = LAYOUTS[size]
    for rows in (3, 150):
        text = latex.table(tall(rows), layout.table, layout.table_height)
        parts = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", text, re.DOTALL)
        high = rows == 150
        assert ("not in a table environment" in text) == high
        assert (len(parts) > 1) == high
        assert all(part.count("Mechanism & 128 & 256") == 1 for part in parts)
        names = re.findall(r"^mechanism\\_(\d+) &", text, re.MULTILINE)
        assert [*map(int, names)] == [*range(rows - 1)]
        assert all(part.count(r"\\") * 9.5 < layout.table_height / 3 for part in parts) or not high


@pytest.mark.parametrize("size", ReportSize)
def test_each_block_is_within_its_width_and_has_every_row_and_no_column_is_lost(size):
    text = latex.table(hostile(), LAYOUTS[size].table)
    assert int(re.search(r"% about (\d+) pt wide", text)[1]) <= LAYOUTS[size].table
    blocks = re.findall(r"\\begin\{tabular\}.*?\\end\{tabular\}", text, re.DOTALL)
    headings = [line for block in blocks for line in block.splitlines() if "Mechanism" in line]
    lengths = [n for line in headings for n in re.findall(r"[\d,]{3,}", line)]
    assert lengths == [f"{2**n:,}" for n in range(7, 17)]
    assert all(block.count("GatedLinear") == 2 for block in blocks)
    assert "over budget" not in "".join(blocks)
    assert r"\textendash{}\textsuperscript{1}" in blocks[-1]
    assert r"\textsuperscript{1}over budget: RuntimeError: a" in text


def test_the_answer_of_both_modes_stands_under_two_rows_of_headings():
    def end(case):
        gone = case.mechanism == "transformer" and case.workload.mode == "training"
        return lost(case, Outcome.OOM) if gone and case.workload.seq_len > 512 else None

    text = written(sweep(("fastformer", "linformer", "transformer"), end=end), "text")["answer"]
    above, rules, below = re.findall(
        r"\\toprule\n(.*?)\n(.*?)\nMechanism(.*?)\\midrule", text, re.DOTALL
    )[0]
    assert re.findall(r"\\multicolumn\{3\}\{c\}\{(\w+), N = [\d,]+\}", above) == [
        "Training",
        "Inference",
    ]
    assert rules == "\\cmidrule(lr){2-4}\n\\cmidrule(lr){5-7}"
    assert below.count("ms") == 2
    assert "faster at N" not in text
    narrow = written(sweep(("fastformer", "transformer")), "column")["answer"]
    assert narrow.count(r"\begin{tabular}") == narrow.count(r"\multicolumn{3}") == 2
