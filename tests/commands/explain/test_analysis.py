"""Two mechanisms at each level, as a paragraph and a table."""

from dataclasses import replace

import pytest

from attnbench.analysis.conclusions import Answer
from attnbench.commands.explain.analysis import by_level
from attnbench.commands.explain.page import costs, sentences, title
from attnbench.errors import CannotRun
from attnbench.records import Level, Mode, Outcome
from attnbench.report.styles import SUSPECT
from tests.sweeps import altered, sweep

PAIR = ("transformer", "fastformer")


def at(level, **changes):
    whole = sweep(PAIR, lengths=(1024,), modes=(Mode.INFERENCE,), **changes)
    counts = {"transformer": 31.0, "fastformer": 591.0}
    named = {one.case.key: one.case.mechanism for one in whole.plan}
    runs = tuple(
        replace(run, values=run.values | {"operators": counts[named[run.case]]})
        for run in whole.runs
    )
    return replace(whole, runs=runs, request=replace(whole.request, level=level))


@pytest.fixture(scope="module")
def levels():
    return by_level([at(level) for level in Level])


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


def test_a_level_that_one_did_not_reach_is_left_out_of_the_paragraph():
    lost = at(Level.MODEL)
    key = lost.plan[0].case.key
    gone = replace(lost.runs[0], case=key, outcome=Outcome.OOM, samples=())
    lost = replace(lost, runs=(gone, *(run for run in lost.runs if run.case != key)))
    found = by_level([at(Level.CORE), at(Level.ATTENTION), lost])
    first, _, lost_at = sentences(found)
    assert first.startswith("At level attention, ")
    assert lost_at == "Not known at level model (transformer:eager: no reason given)."
    assert [each.conclusion.answer for each in found] == [
        Answer.COSTS_MORE,
        Answer.COSTS_MORE,
        Answer.NOT_KNOWN,
    ]
    assert [each.conclusion.scope.lengths for each in found] == [(1024,), (1024,), ()]
    assert costs(found).rows[2][2].text == "out of memory"
    assert costs(found).rows[2][4].text == "–"
    with pytest.raises(CannotRun, match="no level timed both: transformer:eager: no room"):
        by_level([altered(lost, lambda run: replace(run, reason="no room"))])
    with pytest.raises(CannotRun, match="transformer:eager: the budget ended before; raise"):
        by_level([replace(lost, runs=tuple(run for run in lost.runs if run.case != key))])


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


def test_no_difference_is_claimed_that_was_not_shown():
    """The same mechanism twice as far apart as its processes vary; and one round of two."""
    alike = by_level([pair(("linformer", "linear_transformer"), restart=0.2, noise=0.1)])
    (known,) = [each.conclusion for each in alike]
    assert (known.answer, known.decided_by) == (Answer.NOT_KNOWN, "--budget 10m")
    first = next(sentences(alike))
    said = "which is not known to be a difference (the interval contains 1; --budget 10m may"
    assert said in first
    (once,) = by_level([pair(PAIR, rounds=1)])
    assert once.conclusion.answer is Answer.NOT_KNOWN
    assert "one round has no interval" in next(sentences([once]))


def pair(series, **changes):
    return sweep(series, lengths=(1024,), modes=(Mode.INFERENCE,), **changes)


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
