"""Conclusions say no more than what was measured, whatever a sweep left out."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from attnbench.analysis.concluding import direction
from attnbench.analysis.conclusions import (
    Answer,
    Basis,
    Expected,
    Question,
    Scope,
    about,
)
from attnbench.analysis.report import analyse
from attnbench.analysis.statistics.curves import LogCurve
from attnbench.commands.recommend.analysis import recommend, recommendations
from attnbench.records import Cause, Mode, Outcome, Part
from attnbench.records.metrics import MEMORY, STATE, TIME
from attnbench.report.answers import answer, sentences
from attnbench.report.growth_tables import exponent
from attnbench.report.names import with_labels
from attnbench.report.page import report_tables
from attnbench.report.styles import SUSPECT
from tests.report.test_any_sweep import sweeps
from tests.sweeps import altered, decoded, lost, sweep

SWEEP = (128, 512, 2048, 8192)
QUIET = {"restart": 0.002, "noise": 0.002, "lengths": SWEEP}
EVERY = re.compile(r"\b(all|never|always|only|none)\b")
COSTS = {Question.FASTEST: TIME, Question.LEAST_MEMORY: MEMORY, Question.SMALLEST_STATE: STATE}


def until(mechanism, length, cause=Cause.BUDGET):
    """What ends every case of a mechanism beyond a length."""

    def end(case):
        late = case.mechanism == mechanism and case.workload.seq_len > length
        return lost(case, cause=cause, reason="over the budget") if late else None

    return end


def conclude(whole, question, mode="inference", series=None, against=None):
    against = None if against is None else (against,)
    return [*about(analyse(whole).conclusions, question, mode, series, against)]


def lengths_of(cases, conclusion, series):
    """The lengths at which a series has what a conclusion is about."""
    own = cases[(cases["series"] == series) & (cases["mode"] == conclusion.mode)]
    known = own[own[conclusion.quantity or TIME] > 0]
    return {*map(int, known["seq_len"])}


@settings(max_examples=9, deadline=None)
@given(sweeps())
def test_conclusions_of_any_sweep_speak_of_what_was_measured_alone(whole):
    analysis = analyse(whole)
    cases, suspects = analysis.cases, analysis.suspects
    for one in analysis.conclusions:
        planned = {*map(int, cases.loc[cases["mode"] == one.mode, "seq_len"])}
        assert {*one.scope.lengths} <= {*one.scope.of_sweep} <= planned
        for series in (*one.series, *one.against):
            assert {*one.scope.lengths} <= lengths_of(cases, one, series)
        if one.answer in (Answer.ALL, Answer.NEVER):
            assert len(one.scope.lengths) >= 3
            assert one.scope.lengths == one.scope.of_sweep
        if one.question in COSTS:
            assert not {*one.series, *one.against} & {*suspects}
            assert len(one.best) == 0 or one.measured >= 2
            assert (one.rival != "") == (one.value.point > 0)
    for front in analysis.answers.fronts:
        for name in analysis.baselines_by_mode[front.mode]:
            rows = analysis.judged[(analysis.judged["mode"] == front.mode)]
            there = rows[(rows["seq_len"] == front.seq_len) & (rows[TIME] > 0)]
            sizes = rows.loc[rows["series"] == name, "sizes"].iloc[0]
            alike = there[there["sizes"] == sizes]
            assert alike.empty or name in {*alike["series"]}


@pytest.mark.long
@settings(max_examples=9, deadline=None)
@given(sweeps())
def test_sentences_and_tables_of_any_sweep_keep_to_the_conclusions(whole):
    analysis = analyse(whole)
    for sentence in sentences(analysis).values():
        assert not EVERY.search(sentence), sentence
    for table in answer(analysis):
        mode = table.name.removeprefix("answer_")
        for row in table.rows:
            for heading, cell in zip(table.columns, row, strict=True):
                if heading == "faster at N" and EVERY.search(cell.text):
                    known = about(analysis.conclusions, Question.FASTER_FROM, mode, row[0].text)
                    assert any(one.scope.spans for one in known)
    for table in report_tables(analysis):
        for i in range(1, len(table.columns)):
            bold = sum(row[i].best for row in table.rows)
            numbers = sum(row[i].is_number for row in table.rows)
            assert not bold or numbers >= 2, "a winner of one is not bold"


def suspected(whole, mechanism="fastformer"):
    """The sweep in which a mechanism ignores a part of its input."""
    keys = {line.case.key for line in whole.plan if line.case.mechanism == mechanism}
    note = {"suspect": "ignored tokens of its input"}
    return altered(
        whole, lambda run: replace(run, notes=note) if run.case in keys else run, Part.TIME
    )


def test_a_suspect_is_marked_wherever_it_is_shown_and_comes_last():
    analysis = analyse(suspected(sweep(("fastformer", "linformer", "transformer"), **QUIET)))
    assert {*analysis.suspects} == {"fastformer:eager"}
    tables = [*report_tables(analysis)]
    seen = 0
    for table in with_labels(tables, analysis.answers.series, analysis.suspects):
        rows = [row for row in table.rows if any("Fastformer" in cell.text for cell in row)]
        if not rows or table.columns[0] not in ("Mechanism",):
            continue
        seen += 1
        assert all(row[0].text == f"Fastformer {SUSPECT}" for row in rows)
        assert [*table.rows[-len(rows) :]] == rows
    assert seen >= 8
    advice = recommend(analysis, 512)
    for conclusion, block in recommendations(analysis, advice):
        assert "fastformer:eager" not in conclusion.series
        assert block["series"].iloc[-1] == "fastformer:eager"


def curve(logs, error=0.01):
    lengths = np.array(SWEEP[: len(logs)], float)
    errors = np.full(len(logs), error)
    return LogCurve(lengths=lengths, logs=np.array(logs, float), errors=errors, df=errors * 0 + 40)


@pytest.mark.parametrize(
    ("logs", "found", "ends"),
    [
        ([-1, -1, -1, -1], Answer.ALL, (None, None)),
        ([1, 1, 1, 1], Answer.NEVER, (None, None)),
        ([1], Answer.SLOWER_AT, (None, None)),  # one length is not enough for "never"
        ([-1, -1], Answer.FASTER_AT, (None, None)),
        ([1, 1, 1], Answer.SLOWER_AT, (None, None)),  # nor are three without the longest
        ([1, 1, -1, -1], Answer.FROM, (512, 2048)),
        ([1, 0, 0, -1], Answer.FROM, (128, 8192)),
        ([0, -1, -1, -1], Answer.FROM, (None, 512)),
        ([-1, -1, 1, 1], Answer.UP_TO, (512, 2048)),
        ([0, -1, 1, 1], Answer.SLOWER_FROM, (None, 2048)),
        ([0, 0, 0, 1], Answer.SLOWER_FROM, (None, 8192)),
        ([-1, -1, -1, 0], Answer.NOT_KNOWN, (None, None)),
        ([-1, 1, -1, -1], Answer.FROM, (512, 2048)),
        ([], Answer.NOT_KNOWN, (None, None)),
    ],
)
def test_where_one_is_faster_than_another(logs, found, ends):
    scope = Scope(lengths=SWEEP[: len(logs)], of_sweep=SWEEP)
    answer, value = direction(curve(logs), scope)
    shown = tuple(None if np.isnan(end) else end for end in (value.low, value.high))
    assert (answer, shown) == (found, ends)
    assert np.isnan(value.point) or value.low <= value.point <= value.high


def test_without_intervals_nothing_is_known():
    scope = Scope(lengths=SWEEP, of_sweep=SWEEP)
    assert direction(curve([-1, -1, -1, -1], np.nan), scope)[0] is Answer.NOT_KNOWN


def test_one_common_length_is_not_never():
    """Of a module that a budget let reach 128 tokens alone, and that is slower there."""
    whole = sweep(("longformer", "transformer"), **QUIET, end=until("longformer", 128))
    (one,) = conclude(whole, Question.FASTER_FROM, series="longformer:eager")
    assert (one.answer, one.scope.lengths) == (Answer.SLOWER_AT, (128,))
    assert one.decided_by == "--budget 10m"
    two = sweep(("longformer", "transformer"), **QUIET | {"lengths": (128, 512)})
    (one,) = conclude(two, Question.FASTER_FROM, series="longformer:eager")
    assert (one.answer, one.decided_by) == (Answer.SLOWER_AT, "--lengths 128..65536:x2")


def test_a_winner_among_survivors_is_called_one():
    """Fastformer, which needs least, has no time beyond 512."""
    whole = sweep(("fastformer", "linformer", "transformer"), **QUIET, end=until("fastformer", 512))
    *_, longest = conclude(whole, Question.FASTEST)
    assert (longest.answer, longest.series, longest.measured) == (
        Answer.WINNER,
        ("linformer:eager",),
        2,
    )
    (lost,) = longest.left_out
    assert (lost.series, lost.expected) == ("fastformer:eager", Expected.LESS)
    assert lost.over == pytest.approx(1.1 / 1.5, rel=0.05)
    assert longest.decided_by == "--budget 10m"
    said = sentences(analyse(whole))["Fastest in inference"]
    assert "(of 2 measured; Transformer needs" in said
    assert re.search(r"; predicted to need less: Fastformer 0\.7\d+× at 8,192\)", said)


def test_one_that_is_measured_alone_wins_nothing_and_what_was_left_out_is_named():
    whole = sweep(("fastformer", "transformer"), **QUIET, end=until("transformer", 512))
    *_, longest = conclude(whole, Question.FASTEST)
    assert (longest.answer, longest.best) == (Answer.ALONE, ())
    said = sentences(analyse(whole))["Fastest in inference"]
    alone = r"Fastformer alone was measured at 2,048 to 8,192"
    assert re.search(rf"{alone} \(predicted to need more: Transformer \d.*× at 8,192\)", said)
    tables = {table.name: table for table in report_tables(analyse(whole))}
    for name in ("latency_inference", "memory_inference"):
        bold = [[cell.best for cell in row[1:]] for row in tables[name].rows]
        assert [any(column) for column in zip(*bold, strict=True)] == [True, True, False, False]


def test_of_what_failed_before_nothing_is_predicted():
    """It failed at 512, and the budget left out what follows, where it would need least."""
    end = until("fastformer", 512)

    def failing(case):
        fails = case.mechanism == "fastformer" and case.workload.seq_len == 512
        return lost(case, Outcome.FAILED, reason="ValueError: no") if fails else end(case)

    whole = sweep(("fastformer", "linformer", "transformer"), **QUIET, end=failing)
    first, second, *longer = conclude(whole, Question.FASTEST)
    assert first.best == ("fastformer:eager",)
    assert second.left_out == ()
    for one in longer:
        (left_out,) = one.left_out
        assert (left_out.series, left_out.expected) == ("fastformer:eager", Expected.UNKNOWN)
    analysis = analyse(whole)
    advice = recommend(analysis, 8192, None)
    (advised,) = (said for said, _ in recommendations(analysis, advice) if said.mode == "inference")
    assert [one.expected for one in advised.left_out] == [Expected.UNKNOWN]
    assert "; not known: Fastformer)" in sentences(analysis)["Fastest in inference"]


def test_the_smallest_state_is_of_one_step_and_names_what_was_not_weighed():
    whole = decoded(
        {"transformer": lambda n: n, "performer": lambda n: 4096},
        lengths=SWEEP,
    )
    keys = {line.case.key for line in whole.plan if line.case.mechanism == "performer"}
    runs = tuple(run for run in whole.runs if run.part is Part.TIME or run.case not in keys)
    found = conclude(replace(whole, runs=runs), Question.SMALLEST_STATE, "decode")
    assert {one.answer for one in found} == {Answer.ALONE}
    assert {one.expected(Expected.UNKNOWN) for one in found} == {("performer:eager",)}
    said = sentences(analyse(replace(whole, runs=runs)))["Smallest state in decode"]
    assert said == "Transformer alone was measured at 128 to 8,192 (not known: Performer)."
    steps = analyse(whole).cases.assign(step=4)
    assert "Smallest state in decode, steps of 4 tokens" in sentences(
        replace(analyse(whole), cases=steps)
    )


def test_a_limit_is_one_only_where_no_longer_length_was_timed():
    def end(case):
        gone = case.workload.seq_len == 512
        return lost(case, Outcome.OOM) if gone and case.mechanism == "fastformer" else None

    assert conclude(sweep(("fastformer",), **QUIET, end=end), Question.LIMIT) == []
    ended = until("fastformer", 512, Cause.MEMORY_LIMIT)
    (limit,) = conclude(sweep(("fastformer",), **QUIET, end=ended), Question.LIMIT)
    assert (limit.value.point, limit.basis, limit.scope.lengths) == (
        2048,
        Basis.PREDICTED,
        (128, 512),
    )


def test_exponents_have_the_lengths_that_they_are_of():
    known = conclude(sweep(("fastformer",), **QUIET), Question.EXPONENT)
    assert {one.scope.lengths for one in known if one.answer is Answer.GROWS} == {SWEEP}
    short = sweep(("fastformer",), **QUIET | {"lengths": SWEEP[:2]})
    assert {(one.answer, one.decided_by) for one in conclude(short, Question.EXPONENT)} == {
        (Answer.NOT_KNOWN, "--lengths 128..65536:x2")
    }


def test_what_is_not_known_after_one_round_says_what_decides_it():
    once = sweep(("fastformer", "transformer"), **QUIET, rounds=1)
    found = conclude(once, Question.FASTEST) + conclude(once, Question.FASTER_FROM)
    assert {(one.answer, one.decided_by) for one in found} == {(Answer.NOT_KNOWN, "--budget 10m")}
    free = replace(once, request=replace(once.request, budget_s=None))
    assert {one.decided_by for one in conclude(free, Question.FASTEST)} == {"--rounds 4"}


def test_modes_are_concluded_apart():
    whole = sweep(("fastformer", "transformer"), **QUIET)
    for mode in (Mode.TRAINING, Mode.INFERENCE):
        assert {one.mode for one in conclude(whole, Question.FASTEST, str(mode))} == {str(mode)}


def test_an_exponent_of_memory_is_not_of_peaks_that_miss_memory():
    """Of five lengths: neither one in between nor one beyond is among those of the exponent."""
    lengths = (128, 256, 512, 1024, 2048, 4096, 8192)
    whole = sweep(("fastformer",), **QUIET | {"lengths": lengths, "modes": (Mode.INFERENCE,)})
    missed = {p.case.key for p in whole.plan if p.case.workload.seq_len in (512, 8192)}
    notes = {"uncounted": "arrays of numpy"}
    analysis = analyse(
        altered(whole, lambda run: replace(run, notes=notes) if run.case in missed else run)
    )
    memory, time = (
        next(one for one in analysis.about(Question.EXPONENT) if one.quantity == quantity)
        for quantity in (MEMORY, TIME)
    )
    assert memory.scope.lengths == (128, 256, 1024, 2048, 4096)
    assert time.scope.lengths == lengths
    assert exponent(memory).text.endswith(" (128 to 256 and 1,024 to 4,096)")
