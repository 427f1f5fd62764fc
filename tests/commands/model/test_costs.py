"""Costs of a model's layers: sums over kinds, from rounds in which they took turns."""

import math
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.analysis.conclusions import Answer
from attnbench.analysis.report import analyse
from attnbench.commands.model.costs import (
    DECODE,
    ENDS,
    LayerKind,
    MeasuredAt,
    ModelCosts,
    mechanism_of,
    times,
)
from attnbench.commands.model.figure import layer_figure
from attnbench.commands.model.layer_table import layer_table
from attnbench.records import Mode, Outcome, Part
from tests.sweeps import decoded, raced, sweep

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


def costs(whole, kinds=KINDS):
    return ModelCosts(analyse(whole), kinds)


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


def test_the_figure_has_a_bar_for_each_kind_at_each_context():
    (axes,) = layer_figure(costs(swept(), (*KINDS, POOLS))).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert len(heights) == len(KINDS) * len(LENGTHS)
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches[len(LENGTHS) :]]
    sums = costs(swept()).times.sums
    # bars are of medians, whose sum is the median of sums where rounds differ by a factor alone
    assert tops == pytest.approx([1e3 * sums[MeasuredAt(DECODE, n)].point for n in LENGTHS])
    said = " ".join(text.get_text() for text in axes.figure.texts)
    assert not said or "Without 2 layers" in said


def test_a_run_that_failed_counts_for_nothing():
    whole = swept()
    first = next(run for run in whole.runs if run.samples)
    bad = replace(first, outcome=Outcome.FAILED, reason="no")
    changed = replace(whole, runs=tuple(bad if run is first else run for run in whole.runs))
    place = MeasuredAt(
        DECODE, next(p.case.workload.seq_len for p in whole.plan if p.case.key == first.case)
    )
    assert costs(changed).times.sums[place].df < costs(whole).times.sums[place].df


LATENTS = (
    kind("windows", 3, "transformer", per_token=512.0),
    kind("linear", 2, "linformer"),
    kind("full", 1, "transformer", per_token=512.0),
)


def test_kinds_that_one_mechanism_computes_are_rows_of_their_own():
    table = layer_table(costs(swept(), LATENTS), "a model")
    rows = {row[0].text: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    whole = rows.pop("all layers")
    for column in ("Layers", "FLOPs at 2K", "512, ms", "512, share"):
        summed = sum(row[column].value for row in rows.values())
        assert summed == pytest.approx(1 if "share" in column else whole[column].value), column
    assert whole["Layers"].value == 6
    assert rows["windows"]["512, ms"].value == pytest.approx(3 * rows["full"]["512, ms"].value)


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


def test_a_journal_that_lacks_the_cases_of_a_kind_says_so():
    whole = swept()
    plan = tuple(one for one in whole.plan if one.case.mechanism == "linformer")
    keys = {one.case.key for one in plan}
    runs = tuple(run for run in whole.runs if run.case in keys)
    found = costs(replace(whole, plan=plan, runs=runs))
    assert [one.words for one in found.lacking] == ["full"]
    assert not found.times.sums
    table = layer_table(found, "a model")
    assert "“full” has no case in the journal" in table.note
    rows = {row[0].text: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["linear"]["512, ms"].value
    assert rows["all layers"]["512, ms"].text == "–"
    assert rows["all layers"]["FLOPs at 2K"].text == "–"


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


def test_prefills_alone_have_no_context_from_which_a_kind_pays():
    whole = sweep(("linformer", "transformer"), lengths=LENGTHS, modes=(Mode.INFERENCE,))
    table = layer_table(costs(whole), "a model")
    assert "Pays at" not in table.columns
    assert "Pays at" not in table.note
    assert [name for name in table.columns if name.startswith("FLOPs")] == ["FLOPs at 2K"]
