"""Claims from CSV: the shipped file, a user's own, and every row that cannot be read."""

import csv
import io
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.catalogue.registry import names
from attnbench.claims.bench import FORMS, judge, wanted
from attnbench.claims.claim import Answer, Call
from attnbench.claims.published import COLUMNS, read_claims, shipped, table
from attnbench.errors import BadClaims
from attnbench.records import Level, Mode, Outcome
from tests.claims.claimed import LAB, Truth, bench, measured

SHIPPED = shipped()
# measured by their papers, and not registered here
ABSENT = {"fnet", "hyena", "mamba", "mamba2"}
SUBJECTS = [subject for claim in SHIPPED for call in claim.check for subject in call.subjects]

ROW = "one,A paper,Something.,{check},stated\n"
HEAD = ",".join(COLUMNS) + "\n"
GOOD = '"order(a, memory) == N"'


def read(text):
    """The claims of a text, or the problems in it."""
    try:
        return read_claims(text, "mine.csv"), ()
    except BadClaims as error:
        return (), error.problems


def test_all_claims_are_shipped_as_they_are_printed():
    text = files("attnbench").joinpath("published", "claims.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(SHIPPED) == 89
    assert tuple(rows[0]) == COLUMNS
    for row, claim in zip(rows, SHIPPED, strict=True):
        assert claim.text == row["check"]
        assert all(row.values())


def test_every_name_in_a_check_is_known():
    known = ABSENT | set(names())
    assert {subject.mechanism for subject in SUBJECTS} <= known
    assert {subject.form for subject in SUBJECTS} <= {None, "eager", *FORMS}


def test_options_of_checks_are_those_of_the_cards():
    from attnbench.catalogue.registry import card

    known = [subject for subject in SUBJECTS if subject.mechanism not in ABSENT]
    assert any(subject.options for subject in known)
    for subject in known:
        config = card(subject.mechanism).config()
        for name, _ in subject.options:
            assert hasattr(config, name), f"{subject} has no option {name}"


def test_every_claim_can_be_judged():
    device = "A100-SXM4-40GB and Tesla V100 and GTX 1080 Ti"
    there = {name.partition(":")[0] for name in LAB}
    ends = {(Mode.TRAINING, 4096): Outcome.TIMEOUT, (Mode.INFERENCE, 4096): Outcome.SKIPPED}
    others = sorted({subject.mechanism for subject in SUBJECTS} - there)
    truths = LAB | {f"{name}:eager": Truth(ends=ends) for name in others}
    sweep = measured(truths, level=Level.CORE, device=device, lengths=(2048, 4096, 8192), rounds=2)
    found = judge(bench(sweep), SHIPPED)
    assert len(found) == len(SHIPPED)
    assert {one.judgement.answer for one in found} == set(Answer)
    for one in found:
        assert one.judgement.why or one.judgement.numbers, one.claim.id


def test_wanted_names_what_a_sweep_must_measure():
    def of(*ids):
        return wanted([claim for claim in SHIPPED if claim.id in ids])

    assert of("fastformer-fig2-inefficient-at-512") == ("fastformer", "transformer:eager")
    assert of("linformer-table3-speedup-grows") == ("linformer", "transformer:eager")
    assert len(of("lra-performer-fastest")) == 9
    both = of("lra-performer-fastest", "flash-memory-linear")
    assert "transformer:sdpa" in both
    assert "transformer" not in both


def test_claims_are_found_by_id_mechanism_and_pattern():
    def found(pattern):
        return {claim.id for claim in SHIPPED if claim.matches(pattern)}

    assert found("lra-performer-fastest") == {"lra-performer-fastest"}
    assert {"survey-linear", "lra-performer-fastest"} <= found("performer")
    assert len(found("flash-*")) == 19
    assert found("performer?") == set()


def test_columns_may_be_in_any_order():
    text = "check,id,scope,claim,source\n" + f"{GOOD},one,stated,Something.,A paper\n"
    (claim,) = read_claims(text, "mine.csv")
    assert (claim.id, claim.source, claim.scope) == ("one", "A paper", "stated")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "mine.csv, line 1: expected the columns id, source, claim, check, scope"),
        ("id,check\none,two\n", "mine.csv, line 1: expected the columns id, source, claim, che"),
        (HEAD, "mine.csv has no claims; expected one per row below the column names"),
        (HEAD + "one,two\n", "mine.csv, line 2, columns: expected 5; quote a cell that has comma"),
        (HEAD + "one,A,B,faster(a, b),C\n", "mine.csv, line 2, columns: expected 5; quote a cell"),
        (HEAD + ROW.format(check=""), "mine.csv, line 2, column check: empty; expected text"),
        (
            HEAD + ROW.format(check='"fast(a, b)"'),
            "mine.csv, line 2, column check of 'one': character 1: no predicate 'fast'; expected",
        ),
        (
            HEAD + ROW.format(check=GOOD) * 2,
            "mine.csv, line 3, column id: 'one' is also the id in line 2; give each",
        ),
        (HEAD + '"' + "x" * 200_000, "mine.csv, line 2: field larger than field limit (131072);"),
    ],
)
def test_an_error_names_what_is_wrong_with_a_file(text, problem):
    _, (found,) = read(text)
    assert found.startswith(problem)


def test_every_bad_row_is_named_at_its_first_line():
    folded = ROW.format(check='"fits(a,\n training)"').replace("one", "two")
    bad = ROW.format(check="x").replace("one", "three")
    _, found = read(HEAD + ROW.format(check=GOOD) + folded + bad)
    assert [text.split(":")[0] for text in found] == [
        "mine.csv, line 3, column check of 'two'",
        "mine.csv, line 5, column check of 'three'",
    ]


texts = st.text(max_size=30)


@given(st.lists(st.tuples(texts, texts, texts, texts | st.just("fits(a, training, 8)"), texts)))
def test_any_rows_are_read_or_refused(rows):
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([COLUMNS, *rows])
    claims, problems = read(stream.getvalue())
    assert bool(claims) != bool(problems)
    assert all(problem.startswith("mine.csv") for problem in problems)
    if claims:
        assert [claim.text for claim in claims] == [row[3] for row in rows]
        assert all(isinstance(call, Call) for claim in claims for call in claim.check)


@given(st.text() | st.text(f'{HEAD}"\r,'))
def test_any_text_is_read_or_refused(text):
    for whole in (text, HEAD + text):
        claims, problems = read(whole)
        assert bool(claims) != bool(problems)


def test_numbers_of_checks_are_those_of_the_tables():
    lra = table("lra_table2").pivot_table(
        index=["mechanism", "length"], columns="metric", values="value"
    )
    rates, sizes = lra["steps_per_s"], lra["GB"]
    checks = {claim.id: claim.text for claim in SHIPPED}
    for mechanism in ("transformer", "performer"):
        pair = [f"{rates[mechanism, n]:g}" for n in (1000, 4000)]
        assert f"== {pair[0]}/{pair[1]}" in checks["lra-slowdown-1k-4k"]
    for mechanism in ("transformer", "synthesizer"):
        pair = [f"{sizes[mechanism, n]:g}" for n in (4000, 1000)]
        assert f"== {pair[0]}/{pair[1]}" in checks["lra-synthesizer-memory-quadratic"]
    assert rates.notna().all()
