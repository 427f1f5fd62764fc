"""The report of a sweep of decoding, read from its journal."""

from dataclasses import replace

import pytest

from attnbench.analysis.report import analyse
from attnbench.commands.compare.analysis import compare
from attnbench.records import Mode
from attnbench.records.metrics import MEMORY, TABLE
from attnbench.records.storage.journal import Journal, load
from attnbench.records.storage.schema import Start
from attnbench.report import cost_tables, page
from attnbench.report.answers import sentences
from attnbench.report.figures import decode_figure
from tests.sweeps import decoded

STATES = {
    "transformer": lambda n: 2048 * n,
    "performer": lambda n: 16_384,
    "sinkhorn": lambda n: 2048 * min(n, 64),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Through a journal, as `report` reads it."""
    made, folder = decoded(STATES), tmp_path_factory.mktemp("decoded")
    with Journal(folder, Start(made.request, made.sessions[0])) as journal:
        journal.append(*made.cards, *made.plan, *made.runs)
    return analyse(load(folder))


@pytest.fixture(scope="module")
def files(found):
    return page.report_files(found)


def test_the_report_has_the_figure_and_the_tables_of_decoding_and_no_empty_ones(files):
    pictures = {name for name in files if name.endswith(".png")}
    assert pictures == {"decode.png"}
    assert {"answer_decode.csv", "state_decode.csv", "latency_decode.csv"} <= set(files)
    text = files["tables.md"].decode()
    assert "Time per output token (TPOT), context of N tokens, ms" in text
    above = text[: text.index("## Time per output token")]
    assert "decode at batch 1" in above
    assert "tokens per batch" not in above


def test_tables_have_the_numbers_in_full(files):
    rows = files["state_decode.csv"].decode().splitlines()
    assert any(row.startswith("transformer:eager,65536,128.0") for row in rows)
    (row,) = (
        r for r in files["answer_decode.csv"].decode().splitlines() if r.startswith("transformer")
    )
    assert row.endswith(",134217728.0")


def test_the_figure_draws_time_and_state_of_every_series(found):
    made = decode_figure(found.cases, Mode.DECODE)
    assert len(made.axes) == 2
    for axes, column in zip(made.axes, ("time_s", "state_bytes"), strict=True):
        solid = [line for line in axes.lines if line.get_linestyle() != "None"]
        heights = [tuple(line.get_ydata()) for line in solid]
        for series in STATES:
            rows = found.cases[found.cases["mechanism"] == series]
            assert tuple(rows[column]) in heights
    assert made.axes[1].get_xlabel().startswith("context")


def test_a_state_of_no_bytes_has_no_place_on_a_logarithmic_axis():
    made = decode_figure(
        analyse(decoded({"transformer": lambda n: 2048 * n, "local": lambda n: 0})).cases, "decode"
    )
    assert 2048 * 64 < made.axes[1].get_ylim()[0] < 2048 * 128


def test_filled_states_are_marked(found):
    """In the table of times and in the figure."""
    filled = (found.cases["seq_len"] > 512) & (found.cases["mechanism"] == "transformer")
    cases = found.cases.assign(filled=filled)
    times = cost_tables.latency(cases, str(Mode.DECODE), None)
    texts = {row[0].text: [cell.text.endswith(" f") for cell in row[1:]] for row in times.rows}
    assert texts["transformer:eager"] == [n > 512 for n in found.sweep.request.lengths]
    assert not any(texts["performer:eager"])
    assert "“f” marks steps from states filled with random numbers" in times.note
    notes = " ".join(text.get_text() for text in decode_figure(cases, "decode").texts)
    assert "States filled without prompts from 1K" in notes
    usual = cost_tables.latency(found.cases, str(Mode.DECODE), None)
    assert "“f”" not in usual.note


def test_a_step_of_several_tokens_is_told_from_the_time_per_token(found):
    cases = found.cases.assign(step=4)
    step, token = cost_tables.latency(cases, "decode", None), cost_tables.per_token(cases, "decode")
    assert step.title.startswith("Time per step of 4 tokens, context of N tokens, ms")
    assert "per output token (TPOT) in steps of S tokens" in token.title
    for whole, share in zip(step.rows, token.rows, strict=True):
        assert whole[0] == share[0]
        assert [cell.value for cell in whole[1:]] == [4 * cell.value for cell in share[1:]]
    assert decode_figure(cases, "decode").axes[0].get_ylabel().startswith("time per step of 4")
    some = replace(found, cases=cases.assign(step=[1, *cases["step"][1:]]))
    tables = {table.name: table for table in page.report_tables(some)}
    assert tables["latency_decode"].title.startswith("Time per step of S tokens")
    assert "latency_decode_token" in tables
    said = tables["answer_decode"].columns
    assert {"ms per step of 4 tokens", "ms per token"} <= {*said}


def test_peaks_of_prompts_and_of_filled_states_are_not_compared(found):
    def filled(line, every=1 << 17):
        most = 512 if line.case.mechanism == "transformer" else every - 1
        return replace(line, filled=line.block.seq_len > most)

    plan = tuple(map(filled, found.sweep.plan))
    mixed = analyse(replace(found.sweep, plan=plan))
    assert {winner.seq_len for winner in mixed.answers.least_memory} == {128, 256, 512}
    every = tuple(filled(line, 32_768) for line in plan)
    long = analyse(replace(found.sweep, plan=every))
    lengths = {winner.seq_len for winner in long.answers.least_memory}
    assert lengths == {128, 256, 512, 32_768, 65_536}
    alike = analyse(replace(found.sweep, plan=tuple(replace(p, filled=True) for p in plan)))
    assert len(alike.answers.least_memory) == len(found.answers.least_memory) == 10
    table = cost_tables.measured(mixed.cases, "decode", TABLE[MEMORY])
    texts = {row[0].text: [cell.text.endswith(" f") for cell in row[1:]] for row in table.rows}
    assert texts["transformer:eager"] == [n > 512 for n in found.sweep.request.lengths]
    assert "“f” marks steps" in table.note
    rows = compare(found, mixed).rows
    peaks = rows.loc[rows["metric"] == "allocated_peak_bytes", "series"].value_counts()
    assert peaks["transformer:eager"] == max(peaks) - 7


def test_a_sweep_of_both_has_both_figures(found):
    cases = found.cases
    both = cases.assign(mode=cases["mode"].where(cases["seq_len"] > 512, str(Mode.INFERENCE)))
    assert [*page.captions(replace(found, cases=both))] == ["fig2", "memory", "decode"]


def test_complexity_is_of_one_step(found):
    (table,) = (t for t in page.report_tables(found) if t.name == "complexity")
    assert not any(column.startswith("Memory exponent") for column in table.columns)
    longest = found.cases[found.cases["seq_len"] == found.cases["seq_len"].max()]
    flops = dict(zip(longest["series"], longest["flops"] / longest["batch"], strict=True))
    assert {row[0].text: row[3].value for row in table.rows} == flops


def test_the_answers_name_the_smallest_state_and_the_least_peak(found):
    said = sentences(found)
    assert "Performer" in said["Smallest state in decode"]
    assert "Least memory in decode" in said
