"""What a report says and holds, and what stands above its tables."""

import csv
import io
import math
import re
from dataclasses import replace
from functools import partial
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.analysis.report import analyse
from attnbench.analysis.summary import summary
from attnbench.records import MISSING, Cause, Outcome, units
from attnbench.records.metrics import TABLE
from attnbench.records.outcomes import OUTCOMES
from attnbench.records.storage.journal import load
from attnbench.report import page, styles
from attnbench.report.cases import outcome_phrase
from attnbench.report.figures import cost_figure, log_ticks
from tests.sweeps import environment, lost, sweep

SWEPT = ("fastformer", "transformer", "longformer")
TIME = TABLE["time_s"]


@pytest.fixture(scope="module")
def found():
    return analyse(sweep(SWEPT))


@pytest.fixture(scope="module")
def files(found) -> dict[str, bytes]:
    return page.report_files(found, ("png", "svg", "pdf"))


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures are empty, as drawing them takes longest."""
    monkeypatch.setattr(page, "drawn", lambda *what: None)
    monkeypatch.setattr(page, "saved", lambda *what: b"")


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def texts(table):
    return [[cell.text for cell in row] for row in table.rows]


def test_a_report_has_all_its_files(found, files):
    assert {"fig2.png", "memory.png", "tables.md", "answer_training.tex", "cases.csv"} <= set(files)
    stems = {name.removesuffix(".csv") for name in files if name.endswith(".csv")}
    assert stems == {
        *(f"{what}_{mode}"
          for what in ("answer", "latency", "memory", "speedup", "over_bound")
          for mode in ("training", "inference")),
        *("conclusions", "not_measured", "cases"),
        *("complexity", "crossovers"),
        *("survey_table1", "fastformer_table7"),
    }  # fmt: skip


def test_the_page_starts_with_request_and_machine(files):
    text = files["tables.md"].decode()
    top = text[: text.index("## Training time")]
    for fact in ("fastformer, transformer", "8,192 tokens", "Imaginary CPU", "torch 2.13.0"):
        assert fact in top
    assert "![fig2](fig2.png)" in top
    assert not {"nan", "NaN", "inf", "None"} & {*text.replace("|", " ").split()}


def test_tables_show_the_numbers_of_the_summary(found, files):
    cases = found.cases
    long = cases[(cases["seq_len"] == 65_536) & (cases["mode"] == "inference")].iloc[0]
    # one sequence of 65,536 tokens, scaled to a batch of 8,192
    rows = rows_of(files["latency_inference.csv"])
    fast, slow = (row for row in rows if row["seq_len"] == "65536" and "long" not in row["series"])
    assert float(fast["time_ms"]) == pytest.approx(long["time_s"] * 1e3 / 8)
    assert float(fast["time_ms_low"]) == pytest.approx(long["time_lo_s"] * 1e3 / 8)
    assert (slow["time_ms"], slow["time_ms_note"]) == ("", "over budget")
    whole = rows_of(files["cases.csv"])
    assert [row["case"] for row in whole] == list(cases["case"])
    assert float(whole[0]["time_s"]) == pytest.approx(cases["time_s"][0], rel=1e-11)
    crossings = rows_of(files["crossovers.csv"])
    row = next(row for row in crossings if row["faster"] == "longformer:eager")
    assert row["than"] == "transformer:eager"
    assert float(row["training_low"]) < float(row["training"]) < float(row["training_high"])


def test_equal_sweeps_give_equal_bytes(files):
    assert page.report_files(analyse(sweep(SWEPT)), ("png", "svg", "pdf")) == files
    ElementTree.fromstring(files["fig2.svg"])
    assert files["fig2.pdf"].startswith(b"%PDF")
    assert b"CreationDate" not in files["fig2.pdf"]


def test_a_sweep_without_cards_and_sessions_has_a_report_too():
    poor = analyse(replace(sweep(lengths=(128,)), sessions=(), cards=()))
    assert page.report_files(poor)["fig2.png"].startswith(b"\x89PNG")
    assert page.headlines(poor, page.report_tables(poor))


def test_a_mechanism_looks_the_same_next_to_any_others():
    names = ["mine", "transformer:eager", "transformer:sdpa", "linformer:eager[rank=16]"]
    among = styles.series_styles(names)
    for name in (names[0], names[-1]):
        assert styles.series_styles([name])[name] == among[name]
    one, two = among["transformer:eager"], among["transformer:sdpa"]
    differ = ("linestyle", "markerfacecolor")
    assert all(one[key] != two[key] for key in differ)
    assert one == {**two, **{key: one[key] for key in differ}}


def test_what_cannot_run_has_no_predicted_cost():
    end = partial(lost, outcome=Outcome.UNSUPPORTED)
    cases = summary(sweep(("fastformer",), lengths=(128, 512), end=end))
    assert cases[["predicted_s", "predicted_bytes"]].isna().all(axis=None)
    (note,) = cost_figure(cases, TIME, 8192).texts
    assert "Training, cannot run: Fastformer." in note.get_text()


def test_every_outcome_and_cause_has_its_own_words():
    assert {*OUTCOMES} == {*Outcome, *Cause, MISSING}
    assert outcome_phrase("skipped", "budget") == "over budget"
    assert outcome_phrase("skipped", "") == "skipped"
    assert outcome_phrase("ok", "") == "not measured"


@pytest.mark.usefixtures("undrawn")
def test_bad_conditions_are_at_the_top():
    whole = replace(sweep(("fastformer",), lengths=(128,)), finished=False)
    text = page.report_files(analyse(whole))["tables.md"].decode()
    above, _, below = text.partition("## Conditions")
    assert "## What the sweep found\n\n- Fastest in training: Fastformer alone was" in above
    assert below.lstrip().startswith("- Warning: ")


@pytest.mark.usefixtures("undrawn")
def test_times_over_the_bound_have_a_table_where_peaks_are_known():
    blind = sweep(("transformer",), lengths=(128,), machine=environment(copy_bytes=None))
    made = page.report_files(analyse(sweep(("transformer",), lengths=(128, 512))))
    assert "Time over the bound, training" in made["tables.md"].decode()
    assert not any("over_bound" in name for name in page.report_files(analyse(blind)))


def test_csv_columns_do_not_depend_on_the_lengths(files, undrawn):
    other = page.report_files(analyse(sweep(lengths=(256, 512, 1024, 2048))))
    for name in ("complexity.csv", "latency_training.csv", "memory_training.csv"):
        assert files[name].split(b"\n")[0] == other[name].split(b"\n")[0], name
    assert files["memory_training.csv"].startswith(
        b"series,seq_len,memory_mib,memory_mib_note,memory_mib_reason\n"
    )


def test_csv_columns_are_snake_case_and_hold_numbers_or_words(files):
    for name, content in files.items():
        if not name.endswith(".csv"):
            continue
        head, *rows = csv.reader(io.StringIO(content.decode()))
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", column) for column in head), name
        for column, cells in zip(head, zip(*rows, strict=True), strict=False):
            kinds = {bool(re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", cell)) for cell in cells if cell}
            assert len(kinds) <= 1, (name, column)


@given(st.floats(64, 1e12), st.floats(2, 1e6), st.sampled_from([2, 10]))
def test_an_axis_has_a_few_ticks_that_differ(low: float, wide: float, base: int):
    ticks = log_ticks(low, low * wide, base)
    text = units.size if base == 2 else units.seconds
    assert 2 <= len(ticks) <= 16
    assert len({text(tick) for tick in ticks}) == len(ticks)
    if base == 2:
        # whole sixteenths of a power of two: no rounding of decimal megabytes
        assert all((16 * tick / 2 ** math.floor(math.log2(tick))).is_integer() for tick in ticks)


def best(whole):
    """The bold series by the names of the tables and the headings of the columns."""
    return {
        (table.name, heading): {row[0].text for row in table.rows if row[i].best}
        for table in page.report_tables(analyse(whole))
        for i, heading in enumerate(table.columns)
    }


@pytest.mark.parametrize(("restart", "bold"), [(0.5, 3), (0.001, 1)])
def test_ties_are_bold_together_and_a_winner_alone(restart, bold):
    found = best(sweep(restart=restart, noise=0.001, lengths=(128, 512, 2048)))
    assert len(found["latency_training", "512"]) == bold


def test_the_least_of_each_cost_is_bold():
    found = best(load("reports/cpu-fig2"))
    assert found["latency_inference", "2,048"] == {"fastformer"}
    assert found["memory_training", "256"] == {"linformer[rank=16]"}
    found = best(load("reports/cpu-decode"))
    assert found["state_decode", "65,536"] == {"retention:chunked"}
    assert found["latency_decode", "65,536"] >= {"retention:chunked"}


def test_one_round_has_no_fastest_but_a_smallest():
    found = best(sweep(rounds=1))
    assert {name.partition("_")[0] for (name, _), series in found.items() if series} == {"memory"}
