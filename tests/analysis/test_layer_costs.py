"""Costs of a model's layers: sums over kinds, from rounds in which they took turns."""

from dataclasses import replace

import pytest

from attnbench.analysis.layers import DECODE, LayerKind, ModelCosts, Place
from attnbench.analysis.report import analyse
from attnbench.records import Outcome, Part
from attnbench.render.layers import layer_table
from attnbench.render.panels import layer_figure
from tests.sweeps import decoded, raced

LENGTHS = (128, 512, 2048)
SPEED = (1.0, 1.5, 0.8)  # of the machine in each round, which falls on all kinds alike


def seconds(mechanism, n):
    return 0.2 if mechanism == "linformer" else n / 4096


def kind(words, layers, mechanism="", reason="", per_token=0.0):
    return LayerKind(words, layers, mechanism, reason, per_token, dict.fromkeys(LENGTHS, 0))


KINDS = (
    kind("linear", 3, "linformer"),
    kind("full", 1, "transformer", per_token=512.0),
)
POOLS = kind("pools", 2, reason="no mechanism here reads gated pools", per_token=8.0)


def swept(drop=lambda run: False, rounds=3):
    """A sweep of steps in which every round has another speed, and laps have no noise."""
    whole = decoded({"linformer": lambda n: 8, "transformer": lambda n: n}, lengths=LENGTHS)
    runs = tuple(run for run in whole.runs if run.round < rounds and not drop(run))

    def laps(case, round_):
        one = SPEED[round_] * seconds(case.mechanism, case.workload.seq_len)
        return dict.fromkeys(range(4), one)

    return raced(replace(whole, runs=runs), laps)


def costs(sweep, kinds=KINDS):
    return ModelCosts(analyse(sweep), kinds)


def test_the_sum_is_of_all_layers_and_its_shares_are_paired():
    found = costs(swept()).times
    place = Place(DECODE, 512)
    mean = (1.0 * 1.5 * 0.8) ** (1 / 3)
    assert found.sums[place].point == pytest.approx(mean * (3 * 0.2 + 512 / 4096))
    assert found.sums[place].high > 1.3 * found.sums[place].point, "rounds differ"
    share = found.shares["linformer", place]
    assert share.point == pytest.approx(0.6 / 0.725)
    assert share.high - share.low < 1e-9, "what slows a round falls on all kinds alike"


def test_a_kind_pays_from_the_crossover_with_the_one_that_keeps_most():
    found = costs(swept())
    row = found.pays_from(0)
    assert row["other"] == "transformer:eager"
    assert 512 < row["length"] < 2048
    assert found.pays_from(1) is None


def test_a_sum_that_lacks_a_kind_is_not_made_up():
    """One that can be measured but was not there; one that cannot is named, and left out."""
    longest = {p.case.key for p in swept().plan if p.case.workload.seq_len == 2048}

    def lost(run):
        return run.case in longest and "transformer" in run.case and run.part is Part.TIME

    found = costs(swept(lost), (*KINDS, POOLS))
    assert Place(DECODE, 512) in found.times.sums
    assert Place(DECODE, 2048) not in found.times.sums
    assert ("linformer", Place(DECODE, 2048)) in found.times.seconds
    table = layer_table(found, "a model")
    rows = {row[0].text: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["pools"]["Layers"].text == "2"
    assert rows["pools"]["Bytes per token"].text == "8"
    assert rows["pools"]["512, ms"].text == "–"
    whole = rows["all that can be measured"]
    assert whole["Layers"].text == "4"
    assert whole["Bytes per token"].text == "512"
    assert whole["2K, ms"].text == "–"
    assert whole["512, ms"].value == pytest.approx(1e3 * found.times.sums[Place(DECODE, 512)].point)
    assert "“pools”, 2 layers: no mechanism here reads gated pools." in table.note
    assert rows["full"]["2K, ms"].text == "not run"


def test_one_round_has_no_interval():
    table = layer_table(costs(swept(rounds=1)), "a model")
    assert {row[table.columns.index("512, ms")].text[-1] for row in table.rows} == {"*"}


def test_the_figure_has_a_bar_for_each_kind_at_each_context():
    (axes,) = layer_figure(costs(swept(), (*KINDS, POOLS))).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert len(heights) == len(KINDS) * len(LENGTHS)
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches[len(LENGTHS) :]]
    sums = costs(swept()).times.sums
    # bars are of medians, whose sum is the median of sums where rounds differ by a factor alone
    assert tops == pytest.approx([1e3 * sums[Place(DECODE, n)].point for n in LENGTHS])
    said = " ".join(text.get_text() for text in axes.figure.texts)
    assert not said or "Without 2 layers" in said


def test_a_run_that_failed_counts_for_nothing():
    whole = swept()
    first = next(run for run in whole.runs if run.samples)
    bad = replace(first, outcome=Outcome.FAILED, reason="no")
    changed = replace(whole, runs=tuple(bad if run is first else run for run in whole.runs))
    place = Place(
        DECODE, next(p.case.workload.seq_len for p in whole.plan if p.case.key == first.case)
    )
    assert costs(changed).times.sums[place].df < costs(whole).times.sums[place].df
