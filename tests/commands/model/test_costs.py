"""Costs of a model's layers: sums over kinds, from rounds in which they took turns."""

import math
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.analysis.conclusions import Answer
from attnbench.analysis.statistics.estimate import Estimate
from attnbench.commands.model.command import write_report
from attnbench.commands.model.costs import (
    DECODE,
    ENDS,
    MeasuredAt,
    mechanism_of,
    share_of,
    times,
)
from attnbench.commands.model.layer_table import layer_table, share_table
from attnbench.commands.model.mechanisms import Kind, Measurable
from attnbench.records import Outcome, Part
from tests.commands.model.costed import (
    FED,
    KINDS,
    LENGTHS,
    POOLS,
    SPEEDS,
    costs,
    kind,
    seconds,
    swept,
)
from tests.sweeps import raced


def test_the_sum_is_of_all_layers_and_its_shares_are_paired():
    found = costs(swept()).times
    place = MeasuredAt(DECODE, 512)
    mean = (1.0 * 1.5 * 0.8) ** (1 / 3)
    assert found.sums[place].point == pytest.approx(mean * (3 * 0.2 + 512 / 4096))
    assert found.sums[place].high > 1.3 * found.sums[place].point, "rounds differ"
    share = found.shares["linear", place]
    assert share.point == pytest.approx(0.6 / 0.725)
    assert share.high - share.low < 1e-9, "what slows a round falls on all kinds alike"


def test_a_kind_pays_from_the_crossover_with_the_one_that_keeps_most():
    found = costs(swept())
    conclusion = found.pays_from(0)
    assert conclusion.against == ("transformer:eager",)
    assert conclusion.answer is Answer.FROM
    assert 512 < conclusion.value.point < 2048
    assert found.pays_from(1) is None
    linear, full = found.records()
    assert linear["pays_from"]["answer"] == "from"
    assert linear["pays_from"]["to_len"] == 2048
    assert full["pays_from"] is None
    table = layer_table(found, "a model")
    assert re.fullmatch(r"from 8\d\d \[512, 2,048\]", table.rows[0][-1].text), table.rows[0][-1]
    assert "both of attnbench's forms; another library's layers may cross elsewhere" in table.note


def test_one_length_is_not_enough_for_never():
    whole = swept(lambda run: '"seq_len":128,' not in run.case)
    conclusion = costs(whole).pays_from(0)
    assert (conclusion.answer, conclusion.scope.lengths) == (Answer.SLOWER_AT, (128,))
    table = layer_table(costs(whole), "a model")
    assert table.rows[0][table.columns.index("Pays at")].text == "slower at 128"


def test_a_sweep_that_timed_no_kind_beside_another_has_a_table_and_no_bars(tmp_path, capsys):
    """As where a budget ends early, or one kind needs all memory."""
    lost = swept(lambda run: "transformer" in run.case and run.part is Part.TIME)
    assert costs(lost).steps
    assert not costs(lost).summed_steps
    found = Measurable(64, 4, tuple(Kind(k.words, k.layers, (), k.mechanism, "") for k in KINDS))
    write_report("a model", found, False, tmp_path, lost)
    assert "all layers" in capsys.readouterr().out
    assert not (tmp_path / "layers.png").exists()
    assert (tmp_path / "layers.csv").exists()


def test_a_run_that_failed_counts_for_nothing():
    whole = swept()
    first = next(run for run in whole.runs if run.samples)
    bad = replace(first, outcome=Outcome.FAILED, reason="no")
    changed = replace(whole, runs=tuple(bad if run is first else run for run in whole.runs))
    place = MeasuredAt(
        DECODE, next(p.case.workload.seq_len for p in whole.plan if p.case.key == first.case)
    )
    assert costs(changed).times.sums[place].df < costs(whole).times.sums[place].df


def test_attentions_share_is_paired_and_within_its_interval():
    """What slows a round falls on both alike, so it does not widen the share."""
    found = costs(swept(), FED)
    of = {one.place.seq_len: one for one in found.attention_shares()}
    for n in LENGTHS:
        assert of[n].attention == pytest.approx(SPEEDS * 0.6)
        assert of[n].feed_forwards == pytest.approx(SPEEDS * 4 * n / 4096)
        share = 0.6 / (0.6 + 4 * n / 4096)
        assert of[n].share.point == pytest.approx(share)
        assert share - 1e-6 < of[n].share.low <= of[n].share.high < share + 1e-6
    table = share_table(found, "a model")
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert first["At"].text == "128"
    assert first["Attention's share"].text == "82.8 % [82.8, 82.8]"
    assert next(found.shares())["attention_share_point"] == pytest.approx(0.6 / 0.725)


def test_an_interval_of_a_share_stays_within_the_whole():
    wide = share_of(Estimate(point=20.0, low=0.5, high=1e9))
    assert wide.low == pytest.approx(1 / 3)
    assert wide.point == pytest.approx(20 / 21)
    assert 20 / 21 < wide.high <= 1
    assert share_of(Estimate(point=2.0, low=1.0, high=math.inf)).high == 1
    assert math.isnan(share_of(Estimate(point=2.0)).low)


def test_a_share_of_part_of_a_model_is_not_said():
    """Neither without a layer's attention, nor without a feed-forward, nor without both kinds."""
    feed = kind("feed-forward", 2, reason="its feed-forward is not known here")
    for more in (POOLS, feed._replace(feeds=True)):
        found = costs(swept(), (*FED, more))
        assert not [*found.attention_shares()]
        assert share_table(found, "a model") is None
        assert "share is not known, since not all of the model" in layer_table(found, "a").note
    assert share_table(costs(swept()), "a model") is None


BASE = swept()
LAYERS = st.integers(1, 90)
MECHANISMS = st.sampled_from(["linformer", "transformer", ""])


@given(
    counts=st.lists(st.tuples(LAYERS, MECHANISMS), min_size=1, max_size=6).filter(
        lambda kinds: any(name for _, name in kinds)
    ),
    noise=st.lists(st.floats(0.2, 5), min_size=7, max_size=7),
    gone=st.sets(st.integers(0, 200), max_size=40),
)
@settings(max_examples=60, deadline=None)
def test_a_sum_is_that_of_its_rows_whatever_was_measured(counts, noise, gone):
    """Also where laps are noisy, runs are missing, and kinds share a mechanism."""
    kinds = [
        kind(f"kind {i}", n, name, "" if name else "none") for i, (n, name) in enumerate(counts)
    ]
    noisy = raced(
        replace(BASE, runs=tuple(run for i, run in enumerate(BASE.runs) if i not in gone)),
        lambda case, round_: {
            lap: seconds(case.mechanism, case.workload.seq_len)
            * noise[(lap + 3 * round_ + len(case.mechanism)) % 7]
            for lap in range(4)
        },
    )
    names = {one.case.key: one.case.mechanism for one in noisy.plan}
    found = times(noisy, names, kinds)
    measurable = [one for one in kinds if one.mechanism]
    for place, whole in found.sums.items():
        parts = [found.seconds[one.words, place].point for one in measurable]
        assert whole.point == pytest.approx(math.fsum(parts))
        shares = [found.shares[one.words, place].point for one in measurable]
        assert math.fsum(shares) == pytest.approx(1)
    for words, place in found.shares:
        assert place in found.sums, words
    # however many rows a mechanism has, the sum is of all its layers, and so is its interval
    total = Counter[str]()
    for one in measurable:
        total[one.mechanism] += one.layers
    merged = times(noisy, names, [kind(name, n, name) for name, n in total.items()])
    assert {*found.sums} == {*merged.sums}
    for place, whole in found.sums.items():
        expected = [getattr(merged.sums[place], end) for end in ENDS]
        assert [getattr(whole, end) for end in ENDS] == pytest.approx(expected, nan_ok=True)


def test_a_case_is_of_the_mechanism_whose_options_it_has_but_for_defaults():
    case = BASE.plan[0].case
    name = case.mechanism

    def of(options, *mechanisms):
        return mechanism_of(replace(case, options=options), mechanisms)

    assert of((), name, "transformer") == name
    assert of((), f"{name}[rank=64]") == f"{name}[rank=64]"
    assert of((("rank", 8),), name, f"{name}[rank=8]") == f"{name}[rank=8]"
    assert of((), f"{name}[rank=64]", f"{name}[rank=8]") is None
    assert of((("rank", 8),), f"{name}[rank=64]") is None
    stacked = replace(case, mechanism=f"stack(3*{name}[rank=8])")
    assert mechanism_of(stacked, (name, f"{name}[rank=8]")) == f"{name}[rank=8]"
