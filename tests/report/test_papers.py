"""What papers print of costs: each symbol is explained, by options that exist."""

import re
from dataclasses import fields

import pytest

from attnbench.mechanisms.catalogue.registry import card, names
from attnbench.report.growth_tables import printed_costs
from tests.commands.commands import here

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
