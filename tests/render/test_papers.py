import re

from attnbench.analysis.scaling import scaling
from attnbench.analysis.summary import summary
from attnbench.catalogue.registry import names
from attnbench.records import Level, Sweep
from attnbench.render.grid import Table
from attnbench.render.growth_tables import paper_tables, printed_costs
from tests.sweeps import sweep


def tables(whole: Sweep, level: Level = Level.MODEL) -> dict[str, Table]:
    fits = scaling(summary(whole))
    return {table.name: table for table in paper_tables(fits, whole.cards, level)}


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


def test_an_exponent_that_differs_from_the_print_is_marked_and_a_slip_has_a_footnote():
    # the synthetic ones are linear: as Performer's print says, and not as Transformer-XL's
    table = tables(sweep(("performer", "sinkhorn", "transformer_xl")))["survey_table1"]
    xl, sinkhorn, performer = table.rows
    assert [xl[1].text, sinkhorn[1].text, performer[1].text] == ["O(n²) (1)", "O(b²) (2)", "O(n)"]
    assert xl[5].text.endswith(" ↓")
    # a constant print is compared as linear in a model, whose projections are linear
    assert not {performer[5].text[-1], sinkhorn[5].text[-1]} & {"↑", "↓"}
    assert re.match(r"\(1\) n² holds within one segment.*\(2\) b² is the cost of one", table.note)


def test_a_logarithm_is_a_little_more_than_its_power():
    cases = summary(sweep(("reformer",), restart=0.001, noise=0.001))
    whole = sweep(("reformer",))
    for power, marked in ((0.0, False), (0.15, False), (0.4, True)):
        steeper = cases.assign(time_s=cases["time_s"] * cases["seq_len"] ** power)
        (table,) = paper_tables(scaling(steeper), whole.cards, Level.MODEL)
        assert table.rows[0][5].text.endswith("↑") == marked


def test_the_core_alone_may_grow_more_slowly_than_its_projections():
    fits = scaling(summary(sweep(("sinkhorn",))))
    cards = sweep(("sinkhorn",)).cards
    (table,) = paper_tables(fits, cards, Level.CORE)
    assert table.rows[0][5].text.endswith("↑")


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
    assert len({(line.table, line.mechanism) for line in lines}) == len(lines) == 36
    assert {line.mechanism for line in lines} <= set(names())
    assert {line.decode for line in lines} == {"yes", "no", ""}
