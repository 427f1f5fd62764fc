"""Claims from CSV: the shipped file, a user's own, and every row that cannot be read."""

from contextlib import suppress
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.claims.claim import PREDICATES, read_claims
from attnbench.errors import UsageError
from attnbench.mechanisms.catalogue.registry import card, names
from attnbench.records import Mode, Selection

SHIPPED = read_claims(
    files("attnbench").joinpath("records", "published", "claims.csv").read_text(), "shipped"
)
HEAD = "id,claim,scope,predicate,a,b,quantity,mode,lengths,value\n"
ROW = "one,Something.,stated,less,a,b,memory,,,\n"
INF = float("inf")


def read(cells: str):
    """The check with these cells, from `predicate` on."""
    ((check,),) = [claim.checks for claim in read_claims(f"{HEAD}one,C.,,{cells}\n", "mine.csv")]
    return check


def test_the_shipped_claims_name_mechanisms_and_options_that_exist():
    found = SHIPPED
    assert len(found) == 25
    sources = {claim.texts["source"].partition(" et al.")[0] for claim in found}
    assert sources == {"Wu", "Tay"}
    assert {check.predicate for claim in found for check in claim.checks} == {*PREDICATES}
    for chosen in (s for claim in found for c in claim.checks for s in (*c.a, *c.b)):
        assert chosen.name in names()
        assert {name for name, _ in chosen.options} <= {*vars(card(chosen.name).config())}
        assert chosen.form in (None, *card(chosen.name).forms)


def test_what_is_said_of_long_texts_is_judged_on_the_longest():
    long = [claim for claim in SHIPPED if "long sequences" in claim.texts["claim"]]
    assert len(long) == 2
    assert all(check.lengths.among([512, 8192]) == [8192] for c in long for check in c.checks)


def test_further_rows_add_checks_and_columns_may_be_in_any_order():
    text = "a,predicate,value,id,claim\na,exponent,1,one,Something.\nc,exponent,2,one,\n"
    (claim,) = read_claims(text, "mine.csv")
    assert [check.a[0].name for check in claim.checks] == ["a", "c"]
    check = read("less,linformer[rank=8],transformer:eager,core_flops,decode,,2")
    assert check.a == (Selection(name="linformer", options=(("rank", 8),)),)
    assert check.quantity == "core_flops"
    assert check.counted
    assert check.mode is Mode.DECODE
    assert not read("less,a,b,,,,").counted


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (">= 512", [512, 1024, 2048, 4096]),
        ("<= 512", [128, 512]),
        ("500..1024", [512, 1024]),
        ("1024", [1024]),
        ("longest", [4096]),
        ("longest <= 1024", [1024]),
        ("longest >= 8192", []),
        ("", [128, 512, 1024, 2048, 4096]),
    ],
)
def test_the_lengths_of_a_claim(cell, expected):
    assert read(f"less,a,b,,,{cell},").lengths.among([128, 512, 1024, 2048, 4096]) == expected


@pytest.mark.parametrize(
    ("cells", "ends"),
    [
        ("less,a,b,,,,1.1", (0, 1.1)),
        ("ratio,a,b,,,512,20", (10, 40)),
        ("ratio,a,b,,,512,0.8", (0.4, 1)),  # a claimed gain is not reproduced by a loss
        ("ratio,a,b,,,512,>= 2", (2, INF)),
        ("exponent,a,,,,,2", (1.9, 2.1)),
        ("exponent,a,,,,,1..1.2", (1, 1.2)),
        ("crossover,a,b,,,,<= 512", (0, 512)),
    ],
)
def test_the_value_of_a_claim(cells, ends):
    value = read(cells).value
    assert (value.low, value.high) == pytest.approx(ends)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no claims; expected one per row"),
        (HEAD, "has no claims; expected one per row"),
        (HEAD.replace("value", "colour") + ROW, "line 2: expected id, claim, predicate, a, and"),
        (HEAD.replace("claim", "value") + ROW, "line 2: expected id, claim, predicate, a, and"),
        (HEAD + "one,two\n", "line 2: expected id, claim, predicate, a, and others of id, claim"),
        (HEAD + ROW.replace("less", "quicker"), "line 2: predicate 'quicker' is not one of less, "),
        (HEAD + ROW.replace("memory", "size"), "line 2: quantity 'size' is not time, memory"),
        (HEAD + ROW.replace(",b,", ",,"), "less needs a, b, and may have quantity, mode, lengths"),
        (HEAD + "x,C,,exponent,a,b,,,,1\n", "line 2: exponent needs a, value, and may have"),
        (HEAD + "x,C,,crossover,a[,b,,,,1\n", "line 2: a 'a[' is not mechanisms such as"),
        (HEAD + "x,C,,less,a,b,,,> 2,\n", "line 2: lengths '> 2' is not lengths such as >= 512"),
        (HEAD + "x,C,,exponent,a,,,,,1/2\n", "line 2: value '1/2' is not a number such as 2"),
        (HEAD + "x,C,,exponent,a,,,,,<= 1..2\n", "line 2: value '<= 1..2' is not a number"),
        (HEAD + '"' + "x" * 200_000, ": field larger than field limit"),
    ],
)
def test_an_error_names_the_line_and_what_was_expected(text, problem):
    with pytest.raises(UsageError) as error:
        read_claims(text, "mine.csv")
    assert str(error.value).startswith("mine.csv")
    assert problem in str(error.value)


@given(st.lists(st.text(), min_size=7, max_size=7))
def test_any_cells_are_read_or_refused(cells):
    row = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    with suppress(UsageError):
        assert read_claims(f"{HEAD}one,C.,,{row}\n", "mine.csv")
