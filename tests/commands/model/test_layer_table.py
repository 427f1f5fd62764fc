"""What a model's layers cost, as tables: rows of kinds, their sum, and what is in neither."""

from dataclasses import replace

import pytest

from attnbench.analysis.statistics.estimate import Estimate
from attnbench.commands.model.costs import (
    DECODE,
    MeasuredAt,
)
from attnbench.commands.model.figure import layer_figure
from attnbench.commands.model.layer_table import (
    estimate_cell,
    layer_table,
    percent_cell,
    place_text,
)
from attnbench.records import Mode, Part
from attnbench.report.grid import EMPTY
from tests.commands.model.costed import (
    FED,
    KINDS,
    LATENTS,
    LENGTHS,
    POOLS,
    costs,
    swept,
)
from tests.sweeps import sweep


def test_a_sum_that_lacks_a_kind_is_not_made_up():
    """One that can be measured but was not there; one that cannot is named, and left out."""
    longest = {p.case.key for p in swept().plan if p.case.workload.seq_len == 2048}

    def lost(run):
        return run.case in longest and "transformer" in run.case and run.part is Part.TIME

    found = costs(swept(lost), (*KINDS, POOLS))
    assert MeasuredAt(DECODE, 512) in found.times.sums
    assert MeasuredAt(DECODE, 2048) not in found.times.sums
    assert ("linear", MeasuredAt(DECODE, 2048)) in found.times.seconds
    table = layer_table(found, "a model")
    rows = {row[0].text: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["pools"]["Layers"].text == "2"
    assert rows["pools"]["Bytes per token"].text == "8"
    assert rows["pools"]["512, ms"].text == "–"
    whole = rows["all that can be measured"]
    assert whole["Layers"].text == "4"
    assert whole["Bytes per token"].text == "512"
    assert whole["2K, ms"].text == "–"
    assert whole["512, ms"].value == pytest.approx(
        1e3 * found.times.sums[MeasuredAt(DECODE, 512)].point
    )
    assert "“pools”, 2 layers: no mechanism here reads gated pools." in table.note
    assert rows["full"]["2K, ms"].text == "not run"


def test_one_round_has_no_interval():
    table = layer_table(costs(swept(rounds=1)), "a model")
    assert {row[table.columns.index("512, ms")].text[-1] for row in table.rows} == {"*"}


def test_feed_forwards_are_rows_and_none_pays_at_a_context():
    found = costs(swept(), (KINDS[0], FED[1]))
    table = layer_table(found, "a model")
    rows = {row[0].text: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert "Pays at" not in table.columns
    assert rows["feed-forward"]["Layers"].text == "4"
    assert rows["all layers"]["Layers"].text == "–", "the same layers, not so many more"
    summed = rows["linear"]["512, ms"].value + rows["feed-forward"]["512, ms"].value
    assert rows["all layers"]["512, ms"].value == pytest.approx(summed)
    (axes,) = layer_figure(found).axes
    assert {bar.get_facecolor() for bar in axes.patches[len(LENGTHS) :]} == {(0.6, 0.6, 0.6, 1)}


def test_kinds_that_one_mechanism_computes_are_rows_of_their_own():
    table = layer_table(costs(swept(), LATENTS), "a model")
    rows = {row[0].text: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    whole = rows.pop("all layers")
    for column in ("Layers", "FLOPs at 2K", "512, ms", "512, share"):
        summed = sum(row[column].value for row in rows.values())
        assert summed == pytest.approx(1 if "share" in column else whole[column].value), column
    assert whole["Layers"].value == 6
    assert rows["windows"]["512, ms"].value == pytest.approx(3 * rows["full"]["512, ms"].value)


def test_a_journal_that_lacks_the_cases_of_a_kind_says_so():
    whole = swept()
    plan = tuple(one for one in whole.plan if one.case.mechanism == "linformer")
    keys = {one.case.key for one in plan}
    runs = tuple(run for run in whole.runs if run.case in keys)
    found = costs(replace(whole, plan=plan, runs=runs))
    assert [one.words for one in found.kinds_without_case] == ["full"]
    assert not found.times.sums
    table = layer_table(found, "a model")
    assert "“full” has no case in the journal" in table.note
    rows = {row[0].text: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["linear"]["512, ms"].value
    assert rows["all layers"]["512, ms"].text == "–"
    assert rows["all layers"]["FLOPs at 2K"].text == "–"


def test_prefills_alone_have_no_context_from_which_a_kind_pays():
    whole = sweep(("linformer", "transformer"), lengths=LENGTHS, modes=(Mode.INFERENCE,))
    table = layer_table(costs(whole), "a model")
    assert "Pays at" not in table.columns
    assert "Pays at" not in table.note
    assert [name for name in table.columns if name.startswith("FLOPs")] == ["FLOPs at 2K"]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (MeasuredAt("decode", 8192), "8K"),
        (MeasuredAt("decode", 8192, 512), "512 at 8K"),
        (MeasuredAt("inference", 8192), "Prefill of 8K"),
    ],
)
def test_a_column_says_where_it_was_measured(place, text):
    assert place_text(place) == text


def test_a_share_has_percents_and_an_interval_where_one_is_known():
    cell = percent_cell(Estimate(point=0.2314, low=0.22, high=0.2432))
    assert (cell.text, cell.value) == ("23.1 % [22.0, 24.3]", 0.2314)
    assert percent_cell(Estimate(point=0.5)).text == "50.0 %*"


def test_a_time_is_in_milliseconds_with_its_interval():
    assert estimate_cell(None) == EMPTY
    assert estimate_cell(Estimate(point=0.0012, low=0.0011, high=0.0013)).text == "1.20 ±0.10"
