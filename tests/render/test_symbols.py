"""Every symbol of a complexity is explained, with options that exist."""

from dataclasses import fields

import pytest

from attnbench.catalogue.registry import card, names
from attnbench.render.symbols import GENERAL, meanings, symbols


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
    printed = {*symbols(known.cost.printed)}
    assert {*known.symbols} <= printed <= {*known.symbols, *GENERAL}
    options = {field.name for field in fields(known.examples[0])}
    assert all({*named} <= options for _, *named in known.symbols.values())


def test_a_formula_is_explained_with_the_values_of_options():
    own = {"K": ("keys", "window", "tokens"), "r": ("radius",)}
    found = meanings("O(N·K + r·z)", own, {"window": 8, "tokens": None, "bias": True})
    assert dict(found) == {"N": "sequence length", "K": "keys (window=8)", "r": "radius"}
