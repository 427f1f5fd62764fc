"""Why one mechanism takes longer than another, in a paragraph and a table."""

from dataclasses import replace

import pytest

from attnbench.analysis.conclusions import Answer
from attnbench.commands.explain.analysis import by_level
from attnbench.commands.explain.page import costs, sentences, title
from attnbench.report.styles import SUSPECT
from tests.commands.explain.made import PAIR, pair
from tests.sweeps import altered


def test_each_level_has_its_ratio_and_counts_in_a_paragraph_and_a_table(levels):
    assert [each.level for each in levels] == ["core", "attention", "model"]
    truth = (1.6e-6 + 1024 * 1.5e-9) / 1.1e-6
    for each in levels:
        assert each.low < each.ratio < each.high
        assert each.ratio == pytest.approx(truth, rel=0.1)
    first, second = sentences(levels)
    assert first.startswith("At level model, transformer:eager takes 2.")
    assert "] the time of fastformer:eager: " in first
    assert second.startswith("The difference is +")
    assert " ms at level core; +" in second
    assert title(levels) == "B = 8, N = 1,024, D = 256, H = 16; inference, float32, cpu"
    table = costs(levels)
    kinds = [(row[0].text, row[1].text) for row in table.rows]
    assert kinds[:3] == [("time, ms", level) for level in ("core", "attention", "model")]
    own = table.rows[kinds.index(("operators", "core"))]
    assert [cell.text for cell in own[2:4]] == ["31", "591"]
    assert "kernels" not in dict(kinds), "none were counted"
    assert table.rows[0][4].low < table.rows[0][4].value


def test_a_level_names_the_form_that_ran_where_it_is_not_the_titled_one(levels):
    core, *others = levels
    other = core.a.copy()
    other["series"] = "fastformer:eager-of-cores"
    table = costs([replace(core, a=other), *others])
    named = {row[1].text for row in table.rows}
    assert named == {"core (fastformer:eager-of-cores)", "attention", "model"}
    assert (
        "at level core (fastformer:eager-of-cores)"
        in [*sentences([replace(core, a=other), *others])][1]
    )


def test_what_is_suspect_is_marked_and_not_called_faster():
    whole = pair(PAIR)
    keys = {one.case.key for one in whole.plan if one.case.mechanism == "fastformer"}
    note = {"suspect": "ignored tokens of its input"}
    fake = altered(whole, lambda run: replace(run, notes=note) if run.case in keys else run)
    (found,) = by_level([fake])
    assert found.conclusion.answer is Answer.NOT_KNOWN
    first = next(sentences([found]))
    assert f"the time of fastformer:eager {SUSPECT}, which is not known to be" in first
    assert "fastformer:eager ignored tokens of its input" in first
    assert costs([found]).title.endswith(f"B fastformer:eager {SUSPECT}")


def test_costs_of_a_stack_are_said_to_be_per_layer(levels):
    assert "per layer" not in " ".join(sentences(levels))
    core = levels[0]
    stacked = replace(core, a={**core.a, "depth": 4})
    assert next(sentences([stacked])).startswith("At level core per layer, ")
