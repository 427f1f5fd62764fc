"""Claims from CSV: the shipped file, a user's own, and every row that cannot be read."""

import csv
import io
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.catalogue.registry import names
from attnbench.claims.bench import FORMS, judge, wanted
from attnbench.claims.claim import Answer
from attnbench.claims.published import COLUMNS, read_claims, shipped, table
from attnbench.errors import BadClaims
from attnbench.records import Level, Mode, Outcome
from tests.claims.claimed import LAB, Truth, bench, measured

SHIPPED = shipped()
# measured by their papers, and not registered here
ABSENT = {"fnet", "hyena", "mamba", "mamba2"}
SUBJECTS = [subject for claim in SHIPPED for check in claim.checks for subject in check.subjects]

HEAD = "id,claim,scope,predicate,a,quantity,lengths,value\n"
ROW = "one,Something.,stated,order,a,memory,,N\n"


def read(text):
    """The claims of a text, or the problems in it."""
    try:
        return read_claims(text, "mine.csv"), ()
    except BadClaims as error:
        return (), error.problems


def test_all_rows_are_shipped_as_they_are_printed():
    text = files("attnbench").joinpath("published", "claims.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert set(rows[0]) == set(COLUMNS)
    assert len(SHIPPED) == 95
    assert [row["id"] for row in rows] == [c.id for c in SHIPPED for _ in c.checks]
    assert all(claim.source and claim.claim and claim.scope for claim in SHIPPED)


def test_every_name_in_a_check_is_known():
    from attnbench.catalogue.registry import card

    assert {subject.form for subject in SUBJECTS} <= {None, "eager", *FORMS}
    known = [subject for subject in SUBJECTS if subject.name not in ABSENT]
    assert {subject.name for subject in known} <= set(names())
    assert any(subject.options for subject in known)
    for subject in known:
        config = card(subject.name).config()
        for name, _ in subject.options:
            assert hasattr(config, name), f"{subject} has no option {name}"


def test_every_claim_can_be_judged():
    device = "A100-SXM4-40GB and Tesla V100 and GTX 1080 Ti"
    there = {name.partition(":")[0] for name in LAB}
    ends = {(Mode.TRAINING, 4096): Outcome.TIMEOUT, (Mode.INFERENCE, 4096): Outcome.SKIPPED}
    others = sorted({subject.name for subject in SUBJECTS} - there)
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


def test_columns_may_be_in_any_order_and_further_checks_are_rows():
    text = "a,predicate,value,lengths,quantity,id,claim\n"
    text += "a,order,N,,memory,one,Something.\n" + "b,fits,,8,,two,Else.\n" + "a,oom,,8,,one,\n"
    first, second = read_claims(text, "mine.csv")
    assert (first.id, first.claim, first.source, first.scope) == ("one", "Something.", "", "")
    assert first.text == "order(a; memory): N and oom(a; 8)"
    assert second.text == "fits(b; 8)"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "mine.csv, line 1: expected the columns id, claim, predicate, a and any of source,"),
        ("id,check\none,two\n", "mine.csv, line 1: expected the columns id, claim, predicate, a"),
        (HEAD.replace("value", "a"), "mine.csv, line 1: expected the columns"),
        (HEAD.replace("value", "colour"), "mine.csv, line 1: expected the columns"),
        (HEAD, "mine.csv has no claims; expected one per row below the column names"),
        (HEAD + "one,two\n", "mine.csv, line 2, columns: expected as many as in line 1; quote c"),
        (HEAD + ROW[:-1] + ",C\n", "mine.csv, line 2, columns: expected as many as in line 1"),
        (HEAD + ROW.replace("one", ""), "mine.csv, line 2, column id: empty; expected text"),
        (HEAD + ROW.replace("Something.", " "), "mine.csv, line 2, column claim: empty; expect"),
        (HEAD + ROW.replace("memory", "size"), "mine.csv, line 2, column quantity: 'size'; expe"),
        (HEAD + ROW * 2, "mine.csv, line 3, column id: 'one' is also the id in line 2; give each"),
        (HEAD + '"' + "x" * 200_000, "mine.csv, line 2: field larger than field limit (131072);"),
    ],
)
def test_an_error_names_what_is_wrong_with_a_file(text, problem):
    _, (found,) = read(text)
    assert found.startswith(problem)


def test_every_bad_row_is_named_at_its_first_line():
    folded = ROW.replace("N\n", '"N\n-"\n').replace("one", "two")
    further = ROW.replace("one,Something.,stated", "two,,")
    bad = ROW.replace("order", "x").replace("one", "three")
    _, found = read(HEAD + ROW + folded + further + bad)
    assert [text.split(":")[0] for text in found] == [
        "mine.csv, line 3, column value",
        "mine.csv, line 6, column predicate",
    ]


@given(st.text() | st.text(f'{HEAD}{ROW}"\r,'))
def test_any_text_is_read_or_refused(text):
    for whole in (text, HEAD + text, HEAD + ROW + text):
        claims, problems = read(whole)
        assert bool(claims) != bool(problems)
        assert all(problem.startswith("mine.csv") for problem in problems)


def test_numbers_of_checks_are_those_of_the_tables():
    lra = table("lra_table2").pivot_table(
        index=["mechanism", "length"], columns="metric", values="value"
    )
    rates, sizes = lra["steps_per_s"], lra["GB"]
    checks = {claim.id: claim.text for claim in SHIPPED}
    for mechanism in ("transformer", "performer"):
        pair = [f"{rates[mechanism, n]:g}" for n in (1000, 4000)]
        assert f": {pair[0]}/{pair[1]}" in checks["lra-slowdown-1k-4k"]
    for mechanism in ("transformer", "synthesizer"):
        pair = [f"{sizes[mechanism, n]:g}" for n in (4000, 1000)]
        assert f": {pair[0]}/{pair[1]}" in checks["lra-synthesizer-memory-quadratic"]
    assert rates.notna().all()
