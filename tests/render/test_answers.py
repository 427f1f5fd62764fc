"""What a sweep found, in sentences that are true and grammatical for a sweep of any shape."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.analysis.answers import Speed
from attnbench.analysis.recommend import Basis, recommend
from attnbench.analysis.report import analyse
from attnbench.records import Cause, Mode, Outcome, Part, Run
from attnbench.render.answers import Paragraph, paragraphs, ranking, ratio, recommended
from attnbench.render.terminal import LINES, prose
from tests.sweeps import sweep

NAMES = ("fastformer", "linformer", "transformer:eager", "transformer:sdpa", "a", "b")
LENGTHS = (128, 512, 16_384)
ENDS = (
    *((Outcome.SKIPPED, cause) for cause in Cause),
    *((outcome, None) for outcome in Outcome if outcome is not Outcome.OK),
)
UNFIT = re.compile(r"nan|inf\b|None|  | ,|\.\.|\(\)|<|>|\bCause\b|Outcome")


@st.composite
def shapes(draw):
    """A sweep with few or many series, lengths, modes and rounds, and endings of any kind."""
    ends = draw(st.dictionaries(st.integers(0, 23), st.sampled_from(ENDS), max_size=12))
    count = iter(range(1000))

    def end(case):
        if (found := ends.get(next(count))) is None:
            return None
        outcome, cause = found
        return Run(case=case.key, part=Part.TIME, round=0, outcome=outcome, cause=cause, reason="x")

    return sweep(
        draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)),
        lengths=tuple(sorted(draw(st.sets(st.sampled_from(LENGTHS), min_size=1)))),
        modes=draw(st.sampled_from([tuple(Mode)[:1], tuple(Mode)[1:2], tuple(Mode)[:2]])),
        rounds=draw(st.sampled_from([0, 1, 2, 3])),
        samples=draw(st.sampled_from([1, 6])),
        seed=draw(st.integers(0, 99)),
        restart=draw(st.sampled_from([0.0, 0.01, 0.3])),
        noise=draw(st.sampled_from([0.0, 0.01])),
        end=end,
    )


def fit_to_read(text):
    assert not UNFIT.search(text), text
    assert re.match(r"[A-Z0-9a-z]", text), text
    assert text.endswith("."), text
    assert text.count("(") == text.count(")")
    assert text.count("[") == text.count("]")


@settings(max_examples=30, deadline=None)
@given(shapes(), st.integers(20, 200))
def test_sentences_of_any_sweep_are_true_and_fit_to_read(whole, width):
    analysis = analyse(whole)
    found = analysis.answers
    full = paragraphs(found)
    assert full
    for paragraph in (*full, *paragraphs(found, most=2)):
        assert paragraph.sentences
        for text in paragraph.sentences:
            fit_to_read(text)
    shown = prose("Title", paragraphs(found, most=2), width).plain.split("\n")
    assert all(len(line) <= width for line in shown)
    # one sentence is shown, however long
    own = (line for line in shown[2:] if not line.startswith("…"))
    assert len(shown) <= LINES + 1 or all(line.startswith("  ") for line in own)
    for span in found.fastest:
        for place in span.places:
            assert all(tie.margin.low <= 1 <= tie.margin.high for tie in place.ties)
            assert place.rest is None or place.rest.margin.low > 1
    for against in found.against:
        if against.finding in (Speed.FASTER, Speed.FASTER_FROM):
            assert against.ratio_low > 1
        if against.finding in (Speed.SLOWER, Speed.SLOWER_FROM):
            assert against.ratio_high < 1
    lost = sum(missing.cases for missing in found.missing)
    assert lost == (analysis.cases["outcome"] != "ok").sum()


@settings(max_examples=30, deadline=None)
@given(shapes(), st.data())
def test_a_ranking_agrees_with_the_answers(whole, data):
    analysis = analyse(whole)
    mode = data.draw(st.sampled_from(analysis.modes))
    lengths = sorted(set(analysis.cases["seq_len"]))
    seq_len = data.draw(st.sampled_from(lengths) | st.integers(lengths[0], lengths[-1]))
    limit = data.draw(st.none() | st.floats(1e6, 1e12))
    found = recommend(analysis.cases, analysis.standings, 8192, seq_len, mode, limit)
    fit_to_read(recommended(found))
    shown = ranking(found)
    assert not any(re.search(r"\b(nan|inf)\b", cell.text) for row in shown.rows for cell in row)
    assert len(found.choices) + len(found.excluded) == analysis.cases["series"].nunique()
    ranked = [choice for choice in found.choices if choice.rank is not None]
    assert list(found.choices)[: len(ranked)] == ranked
    assert all(choice.basis is not Basis.PREDICTED for choice in ranked)
    assert [choice.rank for choice in ranked] == sorted(choice.rank for choice in ranked)
    if limit is not None:
        assert all(choice.peak_bytes <= limit for choice in found.choices)
        return
    for span in analysis.answers.fastest:
        for place in span.places:
            if (span.mode, place.seq_len) == (mode, seq_len):
                leaders = {place.first, *(r.series for r in (*place.ties, *place.unsure))}
                assert {choice.series for choice in ranked if choice.rank == 1} == leaders
                assert ranked[0].series == place.first


def text(whole, most=None):
    return {p.heading: " ".join(p.sentences) for p in paragraphs(analyse(whole).answers, most)}


QUIET = {"restart": 0.001, "noise": 0.001, "lengths": (128, 512, 2048)}


def test_the_answers_read_well():
    found = text(sweep(("transformer", "fastformer", "longformer"), **QUIET))
    assert list(found) == [
        "Fastest, training",
        "Fastest, inference",
        "Compared with transformer:eager, training",
        "Compared with transformer:eager, inference",
        "Least memory, training",
        "Least memory, inference",
        "Confidence intervals",
    ]
    interval = r"[\d.]+× \[[\d.]+, [\d.]+\]"
    assert re.fullmatch(
        rf"N = 128 to 2,048: fastformer:eager, {interval} as fast as longformer:eager at 2,048\.",
        found["Fastest, training"],
    )
    assert re.fullmatch(
        rf"Faster at every common length \(speed-up at 2,048\): fastformer:eager {interval}\."
        rf" Faster from a length on \(speed-up at 2,048\):"
        rf" longformer:eager from 1,\d+ \[1,\d+, 1,\d+\], {interval}\.",
        found["Compared with transformer:eager, training"],
    )


def test_ties_say_how_much_they_leave_open():
    found = text(sweep(("a", "b"), **QUIET))
    assert re.fullmatch(
        r"N = 128 to 2,048: (a:eager and b:eager|b:eager and a:eager) tie;"
        r" differences up to [\d.]+ % are possible\.",
        found["Fastest, training"],
    )


def test_forms_of_one_function_are_called_that():
    found = text(sweep(("transformer:eager", "transformer:sdpa"), **QUIET))
    assert ", forms of the same function, tie;" in found["Fastest, training"]
    assert (
        "transformer:sdpa (the same function) "
        in found["Compared with transformer:eager, training"]
    )


def test_a_single_series_wins_nothing():
    found = text(sweep(("fastformer",), **QUIET))
    assert found["Fastest, training"] == "N = 128 to 2,048: only fastformer:eager was measured."
    assert not any("Compared" in heading for heading in found)


def test_after_one_round_no_winner_is_named():
    found = text(sweep(("fastformer", "longformer"), rounds=1, **QUIET))
    assert found["Fastest, training"] == (
        "After one round no difference in time is certain."
        " N = 128 to 2,048: fastformer:eager took the least time."
    )
    assert found["Compared with fastformer:eager, training"].startswith("Cannot tell")


def test_nothing_measured_is_said():
    whole = sweep(("fastformer", "longformer"), **QUIET)
    found = text(replace(whole, runs=()))
    assert found["Fastest"] == "Nothing was timed."
    assert found["Not measured"] == (
        "12 of 12 cases. 12 cases did not run before the sweep ended"
        " (fastformer:eager and longformer:eager, N = 128 to 2,048)."
    )


def test_limits_and_reasons_are_counted_in_words():
    found = text(sweep(("transformer", "fastformer")))
    assert found["Limits of length"] == (
        "transformer:eager in training: measured up to 16,384; 32,768 ran out of memory."
    )
    assert found["Not measured"] == (
        "3 of 40 cases."
        " 2 cases did not fit into the time budget (transformer:eager, N = 65,536)."
        " 1 case ran out of memory (transformer:eager, N = 32,768)."
    )


def test_lists_may_be_cut():
    names = ("longformer", "fastformer", "linformer", "a", "b", "c")
    found = text(sweep(names, **QUIET), most=2)["Compared with longformer:eager, training"]
    assert re.fullmatch(
        r"Faster .*: fastformer:eager [^;]*; linformer:eager [^;]*; 3 more\.", found
    )


def test_an_interval_that_says_nothing_is_left_out():
    assert ratio(1.5, 1.25, 1.8) == "1.50× [1.25, 1.80]"
    assert ratio(1.5, 1e-9, 1e9) == ratio(1.5, float("nan"), 2.0) == "1.50×"


@pytest.mark.parametrize("width", [50, 80, 160])
def test_a_terminal_shows_the_most_and_says_where_the_rest_is(width):
    many = [Paragraph(f"Question {i}", ("A short answer.",) * 90) for i in range(5)]
    shown = prose("Title", many, width).plain.split("\n")
    assert LINES - 4 <= len(shown) - 1 <= LINES
    assert all(len(line) <= width for line in shown)
    assert shown[1].count("answer") > 1
    assert sum(line.startswith("Question") for line in shown) == 5
    assert "tables.md" in shown[-1]
    assert "tables.md" not in prose("Title", many[:1], 1000).plain
