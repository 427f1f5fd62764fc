"""Tables of growth: the papers' own with measured exponents, crossovers and exponents."""

import re
from dataclasses import replace

import pytest

from attnbench.analysis.conclusions import Answer, Question
from attnbench.analysis.report import analyse
from attnbench.mechanisms.catalogue.registry import names
from attnbench.records import Sweep
from attnbench.report.grid import Table
from attnbench.report.growth_tables import (
    complexity,
    crossovers,
    exponent,
    paper_tables,
    printed_costs,
)
from tests.report.pairs import BOTH, SWEEP, pair
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


def test_pairs_that_cross_are_listed_and_what_is_faster_than_a_baseline():
    found = crossovers(
        [
            pair("a", "b", Answer.FROM, **BOTH),
            pair("b", "a", Answer.UP_TO, **BOTH),
            pair("a", "c", Answer.ALL),
            pair("b", "c", Answer.FASTER_AT, (128, 256)),
            pair("c", "b", Answer.SLOWER_AT, (128, 256)),
            pair("b", "d", Answer.NOT_KNOWN),
            pair("a", "b", Answer.NOT_KNOWN, mode="inference"),
        ],
        ["c"],
    )
    assert [[cell.text for cell in row] for row in found.rows] == [
        ["a", "b", "from 300 [256, 512]", "not known"],
        ["a", "c", "all", "–"],
        ["b", "c", "128 to 256", "–"],
    ]


def grown(answer, lengths=SWEEP, **ends):
    """A conclusion on the exponent of one series."""
    return replace(
        pair("a", "b", answer, lengths, **ends),
        question=Question.EXPONENT,
        quantity="time_s",
        against=(),
    )


KNOWN = {"point": 1.984, "low": 1.91, "high": 2.05}


@pytest.mark.parametrize(
    ("conclusion", "text"),
    [
        (grown(Answer.GROWS, **KNOWN), "1.98 [1.91, 2.05]"),
        (grown(Answer.GROWS, point=-0.021), "−0.02"),
        (grown(Answer.BENDS, **KNOWN), "~1.98 [1.91, 2.05]"),
        (grown(Answer.GROWS, SWEEP[1:], **KNOWN), "1.98 [1.91, 2.05] (256 to 1,024)"),
        (grown(Answer.NOT_KNOWN), "not known"),
        (None, "–"),
    ],
)
def test_an_exponent_has_its_interval_and_the_lengths_that_it_holds_at(conclusion, text):
    assert exponent(conclusion).text == text


def test_costs_per_token_are_counted_at_the_longest_length():
    analysis = analyse(sweep(("transformer", "fastformer"), lengths=(128, 512)))
    table = complexity(analysis.cases, analysis.about(Question.EXPONENT), analysis.sweep.cards)
    assert table.columns[3] == "FLOPs per token, N = 512"
    cases = analysis.cases.set_index(["series", "seq_len", "mode"])
    for name, printed, parameters, flops, *_ in table.rows:
        row = cases.loc[name.text, 512, "inference"]
        assert flops.value == row["flops"] / row["tokens"]
        assert parameters.value == row["parameters"]
        assert printed.text == ("O(N²·d)" if "transformer" in name.text else "O(N·d)")
