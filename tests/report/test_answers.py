"""What a sweep found, in sentences that are true and grammatical for a sweep of any shape."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.analysis.conclusions import Question, about
from attnbench.analysis.report import analyse
from attnbench.commands.recommend.analysis import recommend, recommendations
from attnbench.commands.recommend.page import ranking, recommended
from attnbench.records import Cause, Outcome, Part, Sample, units
from attnbench.report import delimited, latex
from attnbench.report.answers import answer, not_measured, sentences
from attnbench.report.names import with_labels
from attnbench.report.page import report_tables
from attnbench.report.terminal import prose
from tests.report.test_any_sweep import sweeps
from tests.sweeps import altered, lost, on_gpu, sweep

UNFIT = re.compile(r"nan|inf\b|None|  | ,|\.\.|\(\)|<|>|\bCause\b|Outcome")


def fit_to_read(text):
    assert not UNFIT.search(text), text
    assert re.match(r"[A-Z0-9a-z]", text), text
    assert text.endswith("."), text
    assert text.count("(") == text.count(")")
    assert text.count("[") == text.count("]")


@settings(max_examples=12, deadline=None)
@given(sweeps(), st.integers(20, 200))
def test_answers_of_any_sweep_are_true_and_fit_to_read(whole, width):
    analysis = analyse(whole)
    found, tables = analysis.answers, answer(analysis)
    texts = [*sentences(analysis).values()]
    assert texts
    for text in texts:
        fit_to_read(text)
    lines = prose(texts, width).plain.split("\n")
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join("".join(texts).split()), "nothing is cut"
    for winner in found.fastest:
        assert all(tie.margin.low <= 1 <= tie.margin.high for tie in winner.ties)
        assert winner.runner_up is None or winner.runner_up.margin.low > 1
    gone = sum(len(missing.lengths) for missing in found.missing)
    assert gone == (analysis.cases["outcome"] != "ok").sum()
    assert [table.name for table in tables] == [f"answer_{front.mode}" for front in found.fronts]
    cells = [
        (heading, cell)
        for table in tables
        for row in table.rows
        for heading, cell in zip(table.columns, row, strict=True)
    ]
    if found.fronts:
        for heading, cell in cells:
            assert not re.search(r"\b(nan|inf)\b", cell.text)
            if heading.startswith("vs ") and (number := re.match(r"[\d.,]+", cell.text)):
                assert float(number[0].replace(",", "")) >= 1
                assert ("slower" in cell.text) == (cell.value < 1)


@settings(max_examples=12, deadline=None)
@given(sweeps(), st.data())
def test_a_ranking_agrees_with_the_answers(whole, data):
    analysis = analyse(whole)
    mode = data.draw(st.sampled_from(analysis.modes))
    lengths = sorted(set(analysis.cases["seq_len"]))
    seq_len = data.draw(st.sampled_from(lengths))
    limit = data.draw(st.none() | st.floats(1e6, 1e12))
    found = recommend(analysis, seq_len, limit)
    shown = ranking(found)
    found = found[found["mode"] == mode].reset_index(drop=True)
    for conclusion, block in recommendations(analysis, found):
        fit_to_read(recommended(conclusion, block))
    assert not any(re.search(r"\b(nan|inf)\b", cell.text) for row in shown.rows for cell in row)
    assert sorted(found["series"]) == sorted(set(analysis.cases["series"]))
    ranked = found[found["rank"] > 0]
    assert list(ranked.index) == list(range(len(ranked)))
    assert list(ranked["rank"]) == sorted(ranked["rank"])
    if limit is not None:
        peaks = found["allocated_peak_bytes"].fillna(found["predicted_bytes"]) * found["depth"]
        assert (peaks[found["excluded"] == ""] <= limit).all()
        return
    for winner in analysis.answers.fastest:
        if (winner.mode, winner.seq_len) == (mode, seq_len):
            leaders = {winner.first, *(r.series for r in winner.ties)}
            leaders = set() if winner.unsure else leaders
            assert set(ranked.loc[ranked["rank"] == 1, "series"]) == leaders
            assert found["series"].iloc[0] == winner.first


def text(whole):
    return sentences(analyse(whole))


def missing(whole):
    """The rows of the table of what was not measured."""
    found = analyse(whole).answers
    (table,) = with_labels([not_measured(found.missing, found.lengths)], found.series)
    return [[cell.text for cell in row] for row in table.rows]


def cells(whole, mode="inference", against=None):
    """The cells of the answer in a mode by their headings, for each series."""
    (table,) = [one for one in answer(analyse(whole, against)) if one.name == f"answer_{mode}"]
    return {row[0].text: dict(zip(table.columns, row, strict=True)) for row in table.rows}


VERSUS = "vs Transformer"
QUIET = {"restart": 0.001, "noise": 0.001, "lengths": (128, 512, 2048)}
RATIO = r"[\d.]+× \[[\d.]+, [\d.]+\]"


def test_the_answers_read_well():
    lengths = (128, 512, 4096, 8192)
    found = text(sweep(("transformer", "longformer"), **QUIET | {"lengths": lengths}))
    modes = ("training", "inference")
    assert list(found) == [f"{what} in {m}" for what in ("Fastest", "Least memory") for m in modes]
    assert re.fullmatch(
        rf"Longformer at 4,096 to 8,192 \(Transformer needs {RATIO} as much at 8,192\);"
        rf" Transformer at 128 to 512 \(Longformer needs {RATIO} as much at 512\)\.",
        found["Fastest in training"],
    )
    alike = text(sweep(("fastformer", "longformer"), **QUIET))["Least memory in training"]
    assert alike == "Fastformer and Longformer tie at 128 to 2,048."


def test_a_single_series_wins_nothing():
    whole = sweep(("fastformer",), **QUIET)
    assert text(whole)["Fastest in training"] == "Fastformer alone was measured at 128 to 2,048."
    assert {table.columns for table in answer(analyse(whole))} == {("Mechanism", "ms", "peak, MiB")}


def test_a_winner_is_named_where_its_ratio_has_an_interval_and_only_there():
    once = sweep(("fastformer", "longformer"), rounds=1, **QUIET)
    no_winner = "no winner after one round at 128 to 2,048, lowest so far Fastformer."
    assert text(once)["Fastest in training"] == no_winner
    assert cells(once)["longformer:eager"]["faster at N"].text == "not known"
    open_ = [*about(analyse(once).conclusions, Question.FASTEST)]
    assert {one.decided_by for one in open_} == {"--budget 10m"}


def test_the_share_of_the_peak_rate_stands_beside_the_times_of_a_gpu_alone():
    heading = "of the peak"
    gpu = on_gpu(Sample(4, 1.0, 1.0, 0.2, 0.2, 0.0, 0.0, enqueue_s=0.1))
    (row,) = cells(gpu).values()
    assert row[heading].text == units.percent(row[heading].value)
    assert heading not in cells(sweep(("fastformer",), **QUIET))["fastformer:eager"]


def test_nothing_measured_is_said():
    whole = replace(sweep(("fastformer", "longformer"), **QUIET), runs=())
    found = text(whole)
    assert found["Fastest"] == "Nothing was timed."
    assert found["Not measured"] == "12 of 12 cases (12 not run)."
    assert missing(whole) == [
        [name, mode, "128 to 2,048", "not run"]
        for name in ("Fastformer", "Longformer")
        for mode in ("training", "inference")
    ]


def test_where_no_series_is_ranked_the_answer_says_so():
    def kept(run):
        return replace(run, values={**run.values, "kept_bytes": 3e6})

    only = text(altered(sweep(("fastformer",), **QUIET), kept))
    assert only["Fastest"] == "Nothing of what was timed is ranked; the warnings say why."


def test_limits_and_reasons_are_short():
    whole = sweep(("transformer", "fastformer"))
    found = text(whole)
    assert found["Limits of length"] == "Transformer at 32,768 in training (out of memory)."
    assert found["Not measured"] == "3 of 40 cases (2 budget, 1 out of memory)."
    assert missing(whole) == [
        ["Transformer", "training", "32,768", "out of memory: can't allocate memory: 48.0 GiB"],
        ["Transformer", "training", "65,536", "budget: over the budget: predicted 370 s"],
        ["Transformer", "inference", "65,536", "budget: over the budget: predicted 370 s"],
    ]


def test_what_ran_out_of_memory_and_what_was_then_not_tried_is_one_limit():
    def end(case):
        if case.workload.seq_len < 512:
            return None
        if case.workload.seq_len == 512:
            return lost(case, Outcome.OOM)
        return lost(case, cause=Cause.OOM)

    whole = sweep(("fastformer",), **QUIET | {"end": end})
    ends = (f"Fastformer at 512 in {mode} (out of memory)" for mode in ("training", "inference"))
    assert text(whole)["Limits of length"] == "; ".join(ends) + "."
    assert {(*row[2:],) for row in missing(whole)} == {("512 to 2,048", "out of memory: no")}


def test_a_failure_is_told_with_its_reason():
    def end(case):
        gone = case.workload.seq_len == 512
        return lost(case, Outcome.FAILED, reason="no such table") if gone else None

    rows = missing(sweep(("fastformer",), **QUIET | {"end": end}))
    assert {(*row[2:],) for row in rows} == {("512", "failed: no such table")}


def test_a_long_reason_is_cut_at_its_end():
    reason = "RuntimeError: mat1 and mat2 shapes cannot be multiplied " + "x" * 200

    def end(case):
        return lost(case, Outcome.FAILED, reason=reason) if case.workload.seq_len == 512 else None

    whole = sweep(("fastformer",), **QUIET | {"end": end})
    (row, _) = missing(whole)
    assert row[3] == f"failed: {reason}"[:160] + " …"
    analysis = analyse(whole)
    tables = {table.name: table for table in report_tables(analysis)}
    assert f"failed: {reason}\n" in delimited.table(tables["not_measured"]).decode()
    assert f"failed,{reason}\n" in delimited.table(tables["latency_training"]).decode()
    written = latex.table(tables["latency_training"], 396.0)
    assert r"\textendash{}\textsuperscript{1}" in written
    assert r"\textsuperscript{1}failed: RuntimeError: mat1 and mat2" in written
    assert "x \\ldots{}; cases.csv has each in full.\\par}\n" in written


def test_the_answer_says_how_much_slower_and_from_where_on_faster():
    """At 512 tokens Longformer takes 1.7 times as long as the Transformer, from 1,600 on less."""

    def end(case):  # so that 512 is the longest length of all three
        gone = (case.mechanism, case.workload.seq_len) == ("fastformer", 2048)
        return lost(case, Outcome.TIMEOUT) if gone else None

    whole = sweep(("transformer", "fastformer", "longformer"), **QUIET, end=end)
    rows = cells(whole)
    slow = rows["longformer:eager"]
    assert re.match(r"1\.6\d× slower \[1\.\d+, 1\.\d+\]", slow[VERSUS].text)
    assert slow[VERSUS].value == pytest.approx(0.592, rel=0.01)
    assert re.fullmatch(r"from 1,\d+ \[512, 2,048\]", slow["faster at N"].text)
    assert rows["fastformer:eager"]["faster at N"].text == "128 to 512"
    assert rows["transformer:eager"][VERSUS].text == "1"
    assert rows["fastformer:eager"]["peak, MiB"].value == pytest.approx(65.9, rel=0.01)


def test_the_baseline_is_told():
    notes = [table.note for table in answer(analyse(sweep(("a", "transformer"), **QUIET)))]
    assert all(
        note.startswith("Compared with Transformer; --against chooses another.") for note in notes
    )


def test_a_heading_says_which_chosen_baseline_has_no_time_there():
    def end(case):
        return lost(case, Outcome.FAILED, reason="N") if case.mechanism == "multiple" else None

    whole = sweep(("multiple", "fastformer", "linformer"), **QUIET, end=end)
    found, _ = answer(analyse(whole, "multiple"))
    assert found.title.endswith("; not compared with multiple, which has no time there (failed)")
    assert found.note.startswith("Compared with Fastformer; --against chooses another.")
    assert cells(whole, against="multiple")["linformer:eager"]["vs Fastformer"].value > 0


def test_long_lists_are_cut():
    names = tuple("abcdefgh")
    found = text(sweep(names, **QUIET | {"restart": 0.1}))["Fastest in inference"]
    assert re.match(r"([a-h], ){4}[a-h] and 3 more tie", found)


def test_a_peak_that_misses_memory_is_marked_where_it_stands():
    whole = sweep(("fastformer", "transformer"), lengths=(128, 512, 2048))
    keys = {p.case.key for p in whole.plan if p.case.mechanism == "fastformer"}
    notes = {"uncounted": "numpy arrays of at least 2.000 MiB at once"}
    missed = altered(
        whole,
        lambda run: replace(run, notes=notes) if run.case in keys else run,
        Part.MEMORY,
    )
    marked = {
        (table.name, row[0].text)
        for table in report_tables(analyse(missed))
        for row in table.rows
        if any(cell.text.endswith(" m") for cell in row)
    }
    assert {series for _, series in marked} == {"fastformer:eager"}
    assert {name for name, _ in marked} >= {
        f"{kind}_{mode}" for kind in ("answer", "memory") for mode in ("training", "inference")
    }
    for table in report_tables(analyse(missed)):
        has_note = "“m” marks peaks that miss memory" in table.note
        assert has_note == any(table.name == name for name, _ in marked), table.name
    plain = analyse(whole)
    assert not any("“m” marks" in table.note for table in report_tables(plain))
