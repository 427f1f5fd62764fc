import re
from dataclasses import fields

import pytest

from attnbench.analysis.conclusions import Question
from attnbench.analysis.report import analyse
from attnbench.mechanisms.catalogue.registry import card, names
from attnbench.records import Sweep
from attnbench.report.grid import Table
from attnbench.report.growth_tables import paper_tables, printed_costs
from tests.commands.commands import here
from tests.sweeps import sweep


def tables(whole: Sweep) -> dict[str, Table]:
    analysis = analyse(whole)
    exponents = analysis.about(Question.EXPONENT)
    return {table.name: table for table in paper_tables(analysis.cases, exponents, whole.cards)}


def test_the_survey_is_shown_in_its_layout_with_measured_exponents():
    table = tables(sweep(("performer", "sinkhorn", "transformer_xl")))["survey_table1"]
    assert table.columns[:5] == ("Model / Paper", "Complexity", "Decode", "Class", "Measured")
    # in the survey's order, whatever the sweep's
    assert [row[0].text.split(" (")[0] for row in table.rows] == [
        "Transformer-XL†",
        "Sinkhorn Transformer†",
        "Performer",
    ]
    assert [row[2].text for row in table.rows] == ["✓"] * 3
    assert table.rows[2][0].text == "Performer (A. Author et al., 2021)"
    time = table.rows[2][5]
    assert time.low < 1 < time.high


def test_a_slip_has_a_footnote():
    table = tables(sweep(("performer", "sinkhorn", "transformer_xl")))["survey_table1"]
    assert [row[1].text for row in table.rows] == ["O(n²) (1)", "O(b²) (2)", "O(n)"]
    assert re.match(r"\(1\) n² holds within one segment.*\(2\) b² is the cost of one", table.note)


def test_each_table_needs_a_mechanism_that_it_lists():
    assert set(tables(sweep(("transformer",)))) == set()
    assert set(tables(sweep(("transformer", "fastformer")))) == {"fastformer_table7"}
    assert set(tables(sweep(("transformer", "longformer")))) == {"survey_table1"}
    both = tables(sweep(("transformer", "smart_bird")))
    assert [row[0].text.split(" (")[0] for row in both["smart_bird_table5"].rows] == [
        "Transformer",
        "Smart Bird",
    ]
    assert "Decode" not in both["smart_bird_table5"].columns


def test_each_form_of_a_mechanism_has_a_row():
    table = tables(sweep(("linformer:eager", "linformer:absorbed")))["survey_table1"]
    assert [row[4].text for row in table.rows] == ["linformer:eager", "linformer:absorbed"]


def test_every_printed_line_is_of_a_registered_mechanism():
    lines = printed_costs()
    assert len({(line["table"], line["mechanism"]) for line in lines}) == len(lines) == 36
    assert {line["mechanism"] for line in lines} <= set(names())
    assert {line["decode"] for line in lines} == {"yes", "no", ""}


SYMBOL = re.compile(r"[A-Za-zα-ω](?:_[a-z]+)?")  # a letter, with its index
GENERAL = {"N", "n", "d", "D", "d_h"}  # length and width


def symbols(formula):
    """The symbols of a formula: `O(N·d_s + n log n)` has N, d_s and n; words have none."""
    return {*SYMBOL.findall(re.sub(r"O\(|[a-z]{3,}", " ", formula))}


@pytest.mark.parametrize("name", names())
def test_what_is_printed_is_explained_and_set_by_options_that_exist(name):
    known = card(name)
    formulas = [cost["printed"] for cost in printed_costs() if cost["mechanism"] == name]
    printed = {s for formula in (*formulas, known.cost.printed) for s in symbols(formula)}
    assert {*known.symbols} <= printed <= {*known.symbols} | GENERAL
    options = {field.name for field in fields(known.examples[0])}
    assert all({*named} <= options for _, *named in known.symbols.values())


def test_a_mechanism_explains_its_symbols_with_the_values_of_options():
    shown = " ".join(here("models", "longformer").stdout.split())
    assert "Symbols K: tokens that a query attends to (window=512, global_tokens=" in shown
    assert "; k: window (window=512); m: global tokens (" in shown
