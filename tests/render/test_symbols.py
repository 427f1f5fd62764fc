"""Every symbol of a printed complexity is explained, with options that exist."""

from dataclasses import fields, replace

import pytest

from attnbench.analysis.report import analyse
from attnbench.catalogue.registry import card, names
from attnbench.render.grid import Table
from attnbench.render.growth_tables import printed_costs
from attnbench.render.page import report_tables
from attnbench.render.symbols import GENERAL, explained, meanings, symbols
from attnbench.store.journal import load

FORMULAS = [(cost.mechanism, cost.printed) for cost in printed_costs()]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("O(N·d/ε²)", ["N", "d", "ε"]),
        ("O(n log n)", ["n"]),
        ("O(kn)", ["k", "n"]),
        ("O(N²·d_s + N·K·D)", ["N", "d_s", "K", "D"]),
        ("O(n√n)", ["n"]),
        ("4n² d_h", ["n", "d_h"]),
        ("not declared", []),
    ],
)
def test_the_symbols_of_a_formula(formula, expected):
    assert symbols(formula) == expected


@pytest.mark.parametrize("name", names())
def test_what_is_printed_is_explained_and_set_by_options_that_exist(name):
    known = card(name)
    formulas = [formula for mechanism, formula in FORMULAS if mechanism == name]
    printed = {s for formula in (*formulas, known.cost.printed) for s in symbols(formula)}
    assert printed <= {*known.symbols, *GENERAL}
    assert {*known.symbols} <= printed
    options = {field.name for field in fields(known.examples[0])}
    assert all({*named} <= options for _, *named in known.symbols.values())


def test_a_formula_is_explained_with_the_values_of_options():
    own = {"K": ("keys", "window", "tokens"), "r": ("radius",)}
    found = meanings("O(N·K + r·z)", own, {"window": 8, "tokens": None, "bias": True})
    assert dict(found) == {"N": "sequence length", "K": "keys (window=8)", "r": "radius"}


def test_a_card_explains_symbols_of_its_own():
    analysis = analyse(load("reports/cpu-fig2"))
    cards = [
        replace(each, complexity="O(N·q)", symbols={"q": ("queries of a group", "window")})
        for each in analysis.sweep.cards
        if each.mechanism == "longformer"
    ]
    table = Table(name="complexity", title="", columns=(), rows=(), note="End.")
    note = explained(table, analysis.cases, cards).note
    assert note == (
        "Symbols: N: sequence length; q of longformer: queries of a group (window=16). End."
    )


def test_the_tables_of_a_report_explain_their_symbols_with_the_values_used():
    tables = {table.name: table for table in report_tables(analyse(load("reports/cpu-fig2")))}
    for name in ("complexity", "fastformer_table7"):
        note = tables[name].note
        assert note.startswith("Symbols: N: sequence length; d: width; ")
        assert "ε of linformer: error of the projection, which sets the rank (rank=16)" in note
        assert (
            "K of longformer: tokens that a query attends to (window=16, global_tokens=16)" in note
        )
