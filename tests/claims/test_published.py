import csv
import io
from importlib.resources import files

import pandas as pd
import pytest

from attnbench.claims.claim import Call, Group, Subject
from attnbench.claims.cursor import BadCheck
from attnbench.claims.data import COLUMNS, claims, published
from attnbench.claims.judge import judge, wanted
from attnbench.claims.names import FORMS, GROUPS
from attnbench.claims.outcome import Answer
from attnbench.claims.published import SOURCES
from attnbench.records import Level, Mode, Outcome
from attnbench.registry import names
from tests.claims.claimed import LAB, Truth, measured

SHIPPED = claims()
TABLES = sorted(
    path.name.removesuffix(".csv")
    for path in files("attnbench").joinpath("published").iterdir()
    if path.name.endswith(".csv") and path.name != "claims.csv"
)
# measured by their papers, and not registered here
ABSENT = {"fnet", "hyena", "mamba", "mamba2"}


def arguments(call):
    for argument in call.arguments:
        yield argument
        if isinstance(argument, Call):
            yield from arguments(argument)


def asked():
    """Every argument of every clause, once for each of its values."""
    for claim in SHIPPED:
        for clause in claim.check.clauses:
            for each in clause.expanded:
                yield from arguments(each.call)


def test_all_eighty_claims_are_shipped_as_they_are_printed():
    text = files("attnbench").joinpath("published", "claims.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(SHIPPED) == 80
    assert tuple(rows[0]) == COLUMNS
    for row, claim in zip(rows, SHIPPED, strict=True):
        assert str(claim.check) == row["check"], f"{row['id']} is not in canonical form"
        assert all(row.values())


def test_every_name_of_a_check_stands_for_something():
    registered = set(names())
    for argument in asked():
        match argument:
            case Subject(mechanism=mechanism, form=form):
                assert mechanism in ABSENT | registered
                assert form is None or form in FORMS
            case Group(name=name):
                assert name in GROUPS
    for members in GROUPS.values():
        assert set(members) <= registered


def test_options_of_checks_are_those_of_the_cards():
    from attnbench.registry import card

    subjects = [argument for argument in asked() if isinstance(argument, Subject)]
    known = [subject for subject in subjects if subject.mechanism not in ABSENT]
    assert any(subject.options for subject in known)
    for subject in known:
        config = card(subject.mechanism).config()
        for name, _ in subject.options:
            assert hasattr(config, name), f"{subject} has no option {name}"


def test_every_claim_can_be_judged():
    device = "A100-SXM4-40GB and Tesla V100 and GTX 1080 Ti"
    named = {a.mechanism for a in asked() if isinstance(a, Subject)}
    named |= {name for members in GROUPS.values() for name in members}
    there = {name.partition(":")[0] for name in LAB}
    ends = {(Mode.TRAINING, 4096): Outcome.TIMEOUT, (Mode.INFERENCE, 4096): Outcome.SKIPPED}
    truths = LAB | {f"{name}:eager": Truth(ends=ends) for name in sorted(named - there)}
    sweep = measured(truths, level=Level.CORE, device=device, lengths=(2048, 4096, 8192), rounds=2)
    found = judge(sweep, SHIPPED)
    assert len(found) == len(SHIPPED)
    assert {one.judgement.answer for one in found} == set(Answer)
    for one in found:
        says = one.judgement.why or one.judgement.numbers
        assert says, one.claim.id


def test_what_a_sweep_must_measure():
    assert wanted([c for c in SHIPPED if c.id == "fastformer-fig2-inefficient-at-512"]) == (
        "fastformer",
        "transformer:eager",
    )
    assert wanted([c for c in SHIPPED if c.id == "linformer-table3-speedup-grows"]) == (
        "linformer",
        "transformer:eager",
    )
    assert set(GROUPS["@lra"]) == set(wanted([c for c in SHIPPED if "performer-fastest" in c.id]))


def test_claims_are_found_by_id_mechanism_and_pattern():
    def found(pattern):
        return {claim.id for claim in SHIPPED if claim.matches(pattern)}

    assert found("lra-performer-fastest") == {"lra-performer-fastest"}
    assert "survey-linear" in found("performer")
    assert len(found("flash-*")) == 19
    assert found("performer?") == set()


ROW = "one,A paper,Something.,{check},stated\n"
HEAD = ",".join(COLUMNS) + "\n"


def test_a_row_that_does_not_parse_is_an_error_that_names_it():
    with pytest.raises(BadCheck, match=r"claims.csv, one: at 1: expected a predicate"):
        claims(HEAD + ROW.format(check='"fast(a, b)"'))


def test_a_row_with_other_columns_is_an_error():
    with pytest.raises(BadCheck, match="columns id, source, claim, check, scope"):
        claims("id,check\none,two\n")


def test_an_id_that_comes_twice_is_an_error():
    row = ROW.format(check='"slope(a, memory) = 1"')
    with pytest.raises(ValueError, match="two rows of the id 'one'"):
        claims(HEAD + row + row)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_its_columns_and_numbers(name):
    frame = published(name)
    columns = [
        "source",
        "table",
        "hardware",
        "mechanism",
        "form",
        "length",
        "metric",
        "value",
        "note",
    ]
    assert list(frame.columns) == columns
    assert frame["value"].dtype == frame["length"].dtype == float
    assert frame["value"].notna().any()


def test_overlays_name_tables_and_metrics_that_are_shipped():
    for _, _, sources in SOURCES:
        for source in sources:
            assert (published(source.table)["metric"] == source.metric).any()


def test_numbers_of_checks_are_those_of_the_tables():
    lra = published("lra_table2").pivot_table(
        index=["mechanism", "length"], columns="metric", values="value"
    )
    rates, sizes = lra["steps_per_s"], lra["GB"]
    checks = {claim.id: str(claim.check) for claim in SHIPPED}
    for mechanism, end in (("transformer", " "), ("performer", "")):
        pair = [f"{rates[mechanism, n]:g}" for n in (1000, 4000)]
        assert f"= {pair[0]}/{pair[1]}" in checks["lra-slowdown-1k-4k"] + end
    for mechanism in ("transformer", "synthesizer"):
        pair = [f"{sizes[mechanism, n]:g}" for n in (4000, 1000)]
        assert f"= {pair[0]}/{pair[1]}" in checks["lra-synthesizer-memory-quadratic"]
    assert pd.notna(rates).all()
