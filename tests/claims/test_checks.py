"""The cells of a check: what is read, and what is refused."""

import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.claims import predicates
from attnbench.claims.checks import (
    CELLS,
    PREDICATES,
    BadCheck,
    parse_formula,
    parse_range,
    read_check,
)
from attnbench.claims.claim import ClaimedCost, Lengths
from attnbench.claims.published import shipped
from attnbench.records import Level, Mode, Selection
from tests.claims.claimed import check

TEXTS = sorted({cell for claim in shipped() for one in claim.checks for cell in one.text.split()})


def test_each_cell_is_an_argument_of_the_predicate_or_a_scope():
    found = check(
        "less | linformer[rank=128] | local,transformer:eager | memory | training | > 256"
    )
    assert found.predicate is predicates.less
    linformer = Selection(name="linformer", options=(("rank", 128),))
    others = (Selection(name="local"), Selection(name="transformer", form="eager"))
    assert found.arguments == {
        "a": (linformer,),
        "b": others,
        "quantity": (ClaimedCost.MEMORY, ClaimedCost.MEMORY),
        "lengths": Lengths(text="> 256", low=257),
    }
    assert found.subjects == (linformer, *others)
    assert (found.mode, found.level, found.device) == (Mode.TRAINING, None, "")
    scope = check("fits | a | | | | 512 | | core | GTX 1080 Ti")
    assert (scope.mode, scope.level, scope.device) == (None, Level.CORE, "GTX 1080 Ti")
    assert scope.arguments == {"a": Selection(name="a"), "lengths": 512}
    assert scope.text == "fits(a; 512; core; GTX 1080 Ti)"


def test_counts_are_the_same_in_every_mode():
    assert check("less | a | a | core_flops/projection_flops").counted
    assert not check("ratio | a | b | core_flops/time | | 512 | 1").counted
    assert not check("oom | a | | | | 512").counted


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("12", (6, 24)),
        ("25/30", (25 / 60, 1)),
        ("1.5", (1, 3)),
        ("1", (0.5, 2)),
        ("<= 512", (0, 512)),
        ("<3", (0, 3)),
        ("> 1e4", (1e4, float("inf"))),
        ("2.24..2.26", (2.24, 2.26)),
    ],
)
def test_a_number_alone_allows_a_factor_but_not_across_one(text, ends):
    assert (parse_range(text).low, parse_range(text).high) == pytest.approx(ends)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("N", ((1, 0),)),
        ("N**2*d_s + N*K*D", ((2, 0), (1, 0))),
        ("N*log(N)", ((1, 1),)),
        ("N*d/eps**2", ((1, 0),)),
        ("K*N**1.5/N", ((0.5, 0),)),
        ("b**2 + log(b)", ((0, 0), (0, 0))),
    ],
)
def test_a_formula_is_reduced_to_powers_of_the_length(text, terms):
    assert parse_formula(text) == terms


@pytest.mark.parametrize("word", ["true", "none", "dense", "3", "0.5"])
def test_options_are_spelled_as_on_the_command_line(word):
    expected = {"true": True, "none": None, "3": 3, "0.5": 0.5}.get(word, word)
    found = check(f"no_causal_form | a[x={word},y=1]").subjects
    assert found == (Selection(name="a", options=(("x", expected), ("y", 1))),)


SERIES = "expected a mechanism such as linformer[rank=128] or transformer:eager"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "column predicate: ''; expected one of less, ratio"),
        ("quicker | a | b", "column predicate: 'quicker'; expected one of less, ratio, increasing"),
        ("oom | | | | | 8", "column a: empty; oom needs a mechanism such as"),
        ("less | a | b", "column quantity: empty; less needs one of time, first_token, memory"),
        ("oom | a | b | | | 8", "column b: 'b'; oom takes a, lengths, mode, level, device"),
        ("oom | a:b:c | | | | 8", f"column a: 'a:b:c'; {SERIES}"),
        ("oom | a[x=1 | | | | 8", SERIES),
        ("crossover | a | b,c | | | | 8", SERIES),
        ("less | a | b, | time", "column b: 'b,'; expected mechanisms separated by commas"),
        ("less | a | b | colour", "expected one of time, first_token, memory, state, core"),
        ("less | a | b | time/", "or two separated by /, of A and B"),
        ("order | a | | time/time | | | N", "column quantity: 'time/time'; expected one of time"),
        (
            "less | a | b | time | sleeping",
            "column mode: 'sleeping'; expected one of training, inference, decode",
        ),
        ("less | a | b | time | | N > 2", "column lengths: 'N > 2'; expected lengths such as >="),
        ("less | a | b | time | | 4..2", "expected lengths such as"),
        ("less | a | b | time | | <= 2..4", "expected lengths such as"),
        ("less | a | b | time | | 2,", "expected lengths such as"),
        ("fits | a | | | | <= 512", "column lengths: '<= 512'; expected a positive number"),
        ("growth | a | | time | | 512 | 2", "expected two lengths such as 1000..4000"),
        ("ratio | a | b | time | | 8 | 0", "column value: '0'; expected 12.2 (within a factor"),
        ("ratio | a | b | time | | 8 | 1/0", "expected 12.2"),
        ("ratio | a | b | time | | 8 | nan", "expected 12.2"),
        ("order | a | | time | | | <= N", "expected a sum of products such as N**2*d or N*log(N)"),
        ("order | a | | time | | | N**99", "a sum of products"),
        ("order | a | | time | | | N/log(N)", "a sum of products"),
        ("oom | a | | | | 8 | | roof", "column level: 'roof'; expected one of core, attention"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text, words):
    with pytest.raises(BadCheck) as error:
        check(text)
    assert words in str(error.value)


KNOWN = (*PREDICATES, *ClaimedCost, *Mode, *Level, *TEXTS)
WORDS = st.sampled_from((*KNOWN, "a", "a[x=1]", "a:b,c", "..", "<", "9" * 5000))


@given(st.dictionaries(st.sampled_from(CELLS), WORDS | st.text(string.printable) | st.text()))
def test_any_cells_are_read_or_refused(cells):
    with contextlib.suppress(BadCheck):
        found = read_check({"predicate": "less", "a": "a", "b": "b", "quantity": "time"} | cells)
        assert found.text.startswith(found.predicate.__name__)


@pytest.mark.parametrize("cell", CELLS)
def test_space_around_a_cell_has_no_meaning(cell):
    row = dict(
        zip(CELLS, ["ratio", "a", "b", "time", "training", "8", "> 2", "core", "V"], strict=True)
    )
    assert read_check(row | {cell: f"  {row[cell]}\n"}) == read_check(row)
