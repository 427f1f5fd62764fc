"""What verbs say of any half-known sweep: no more than was measured, and no suspect is first."""

import re
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attnbench.analysis.conclusions import Answer, Question
from attnbench.analysis.report import analyse
from attnbench.commands.claims.claim import Check, Claim, Range
from attnbench.commands.claims.judging import judge_claim
from attnbench.commands.claims.page import judged
from attnbench.commands.compare import table as comparison
from attnbench.commands.compare.analysis import compare
from attnbench.commands.explain import page as explain
from attnbench.commands.explain.analysis import by_level
from attnbench.commands.recommend.analysis import fitting, recommend, recommendations
from attnbench.commands.recommend.page import ranking, recommended
from attnbench.errors import CannotRun
from attnbench.records import Selection
from attnbench.records.metrics import MEMORY, TIME
from attnbench.report import delimited, latex, markdown, page
from attnbench.report.figures import PAGE
from attnbench.report.names import row_series, with_labels
from attnbench.report.styles import SUSPECT
from tests.report.test_any_sweep import SERIES, sweeps

EVERY = re.compile(r"\b(all|never|always|only|none|every)\b")
CHECKS = st.sampled_from(["less", "ratio", "exponent", "crossover"])
QUANTITIES = st.sampled_from([TIME, MEMORY, "core_flops"])


def told(table, analysis):
    """The texts of a table in every written form, without its title, note and headings."""
    suspects = analysis.suspects
    (labelled,) = with_labels([table], analysis.answers.series, suspects)
    delimited.table(table, suspects)
    if table.rows:
        latex.table(labelled, 396.0)
    markdown.table(labelled)
    return [cell.text for row in labelled.rows for cell in row]


def moderate(texts):
    """No text speaks of all lengths or series."""
    for text in texts:
        assert not EVERY.search(text), text


@settings(max_examples=4, deadline=None)
@given(sweeps(), st.data())
def test_what_is_recommended_of_any_sweep(whole, data):
    analysis = analyse(whole)
    length = data.draw(st.sampled_from(whole.request.lengths))
    limit = data.draw(st.sampled_from([None, 1e5, 1e9]))
    advice = recommend(analysis, length, limit)
    moderate(told(ranking(advice), analysis))
    for conclusion, block in recommendations(analysis, advice):
        moderate([recommended(conclusion, block)])
        assert not {*conclusion.series, *conclusion.against} & {*analysis.suspects}
        if conclusion.answer in (Answer.WINNER, Answer.TIE):
            assert conclusion.measured >= 2
    for one in fitting(analysis, length, 1e9):
        assert (one.answer is Answer.FITS) == (one.reason == "")
        known = one.value.point == one.value.point
        assert known or one.answer is Answer.NOT_KNOWN


@st.composite
def checks(draw):
    """A check of any kind, of any two series, some of which a sweep lacks."""
    names = st.sampled_from([*(name for name, _ in SERIES), "fnet"])
    predicate = draw(CHECKS)
    quantity = TIME if predicate == "crossover" else draw(QUANTITIES)
    lengths = draw(st.sampled_from([Range(), Range(512.0), Range(512.0, longest=True)]))
    first, second = (tuple({Selection(name=draw(names))}) for _ in range(2))
    return Check(
        predicate=predicate,
        a=first,
        b=() if predicate == "exponent" else second,
        quantity=quantity,
        lengths=lengths,
        value=draw(st.sampled_from([Range(high=1.0), Range(low=1.0), Range(1.9, 2.1)])),
    )


@settings(max_examples=5, deadline=None)
@given(sweeps(), st.lists(checks(), min_size=1, max_size=3))
def test_what_is_claimed_of_any_sweep(whole, asserted):
    analysis = analyse(whole)
    found = judge_claim(analysis, Claim({"claim": "C."}, asserted))
    table = judged([("C.", found.conclusion, found.deciding)])
    moderate(told(table, analysis))
    assert found.conclusion.reason
    for one in (found.conclusion, *found.checks):
        assert not {*one.series, *one.against} & {*analysis.suspects}
        known = analysis.cases[analysis.cases[one.quantity] > 0]
        for series in (*one.series, *one.against):
            own = known[(known["series"] == series) & known["mode"].isin(one.mode.split(" and "))]
            assert {*one.scope.lengths} <= {*own["seq_len"]}
    for one in found.checks:
        assert not one.is_known or one.scope.lengths


@settings(max_examples=4, deadline=None)
@given(sweeps(), st.data())
def test_what_changed_between_any_two_sweeps(whole, data):
    runs = tuple(run for run in whole.runs if data.draw(st.booleans()))
    first, second = analyse(whole), analyse(replace(whole, runs=runs))
    found = compare(first, second)
    moderate(told(comparison.changes(found), first))
    for one in found.conclusions:
        (series,) = one.series
        assert bool(one.scope.lengths) != bool(one.missing)
        for side in (first, second):
            cases = side.cases[(side.cases["series"] == series) & (side.cases["mode"] == one.mode)]
            have = cases.loc[cases[one.quantity].notna(), "seq_len"]
            assert {*one.scope.lengths} <= {*have}
        if one.missing:
            assert one.reason
            assert one.answer is Answer.NOT_KNOWN


@settings(max_examples=5, deadline=None)
@given(sweeps())
def test_what_explains_any_two_series(whole):
    series = [*dict.fromkeys((p.case.mechanism, p.case.form) for p in whole.plan)][:2]
    assume(len(series) == 2)
    first = whole.plan[0].case.workload
    plan = tuple(
        planned
        for planned in whole.plan
        if (planned.case.mechanism, planned.case.form) in series
        and (planned.case.workload.mode, planned.case.workload.seq_len)
        == (first.mode, first.seq_len)
    )
    keys = {planned.case.key for planned in plan}
    runs = tuple(run for run in whole.runs if run.case in keys)
    try:
        (level,) = by_level([replace(whole, plan=plan, runs=runs)])
    except CannotRun:
        return
    texts = [*explain.sentences([level])]
    moderate([*texts, *(cell.text for row in explain.costs([level]).rows for cell in row)])
    suspects = [row["series"] for row in (level.a, level.b) if row["suspect"]]
    for name in suspects:
        assert f"{name} {SUSPECT}" in texts[0]
    if level.conclusion.is_known:
        assert not suspects
        assert level.conclusion.scope.lengths == (first.seq_len,)
        assert not level.low <= 1 <= level.high


@settings(max_examples=4, deadline=None)
@given(sweeps())
def test_tables_of_any_sweep_mark_suspects_and_keep_to_their_lengths(whole):
    analysis = analyse(whole)
    suspects = {*analysis.suspects}
    spans = [one for one in analysis.about(Question.FASTER_FROM) if one.scope.spans]
    for table in page.report_tables(analysis):
        texts = told(table, analysis)
        strong = [text for text in texts if EVERY.fullmatch(text)]
        assert not strong or spans
        if table.name != "not_measured":
            moderate(text for text in texts if text not in strong)
        (labelled,) = with_labels([table], analysis.answers.series, suspects)
        for plain, shown in zip(table.rows, labelled.rows, strict=True):
            if {*row_series(table, plain)} & suspects:
                assert any(cell.text.endswith(SUSPECT) for cell in shown)
                assert "\\textdagger{}" in latex.table(labelled, 396.0)
        order = [bool({*row_series(table, row)} & suspects) for row in table.rows]
        assert order == sorted(order), "suspects are last"


@settings(max_examples=2, deadline=None)
@given(sweeps())
def test_legends_of_any_sweep_mark_suspects(whole):
    analysis = analyse(whole)
    for stem in page.captions(analysis):
        figure = page.drawn(stem, analysis, PAGE)
        (legend,) = figure.legends
        marked = [text.get_text() for text in legend.get_texts() if SUSPECT in text.get_text()]
        drawn = {*analysis.cases["series"]} & {*analysis.suspects}
        assert len(marked) <= len(drawn)
        if drawn and len(analysis.modes) == 1:
            assert marked
