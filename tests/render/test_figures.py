"""Legends are on the page, next to the ends of their curves, in type of the right size."""

import ast
from collections import Counter
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from matplotlib.lines import Line2D

from attnbench.analysis.roofline import roof, roofline
from attnbench.analysis.scaling import local_slopes
from attnbench.analysis.summary import summary
from attnbench.records import Cause, FigureSize, Mode, Outcome, Part, Run, Sample
from attnbench.render import styles
from attnbench.render.cost_tables import latency
from attnbench.render.decoding import decode_figure
from attnbench.render.figures import MEMORY, TIME, cost_figure
from attnbench.render.panels import DPI, Ending, entry_text, wrapped
from attnbench.render.roofline import roofline_figure
from attnbench.render.styles import SHEETS
from attnbench.store.journal import load
from tests.render.drawn import BEYOND, drawn, pages
from tests.store.recorded import CLOCKED
from tests.sweeps import on_gpu, sweep

# sweeps of one's own have names of digits
STORED = sorted(path.parent for path in Path("reports").glob("[!0-9]*/sweep.jsonl"))
TYPES = {FigureSize.COLUMN: (6, 8), FigureSize.TEXT: (6, 8), FigureSize.SLIDE: (13, 18)}


def check(made, size):
    """Every entry of the legend is beside its row of panels, or once below all rows."""
    whole = dict.fromkeys(ending.name for legend in made.legends for ending in legend)
    names, beside = styles.labels(whole), len(made.legends) == 1
    assert made.figure.get_size_inches()[0] == SHEETS[size].width
    keys = [artist for artist in made.figure.artists if artist.get_marker() != "None"]
    assert len(keys) == len(whole)
    entries = made.legends[0] if beside else [Ending(name, None) for name in whole]
    lines = [line for entry in entries for line in entry_text(entry, names).split("\n")]
    for suffix, page in pages(made.figure):
        wanted = Counter(map(as_in_pdf, lines) if suffix == "pdf" else lines)
        found = [one for one in page.lines if one.text in wanted]
        assert Counter(one.text for one in found) == wanted, suffix
        for one in page.lines:
            assert TYPES[size][0] <= one.size <= TYPES[size][1], (suffix, one)
            assert -0.1 <= one.box.y0 < one.box.y1 <= page.height + 0.1, (suffix, one)
            assert -0.1 <= one.box.x0 < one.box.x1 <= page.width + 0.1, (suffix, one)
        if suffix != "png":  # whose ticks off the axes are known but not drawn
            others = page.lines if not beside else [o for o in page.lines if o not in found]
            hit = [(a, b) for a, b in pairs(others, page.lines) if overlap(a.box, b.box)]
            assert not hit, (suffix, hit)
        box = made.panels.rows[-1][-1].get_position()
        if not beside:
            assert all(one.box.y1 < page.height * box.y0 for one in found), suffix
            continue
        assert all(one.box.x0 > page.width * box.x1 for one in found)
        inside = sorted(found, key=lambda one: one.box.y0)
        line = SHEETS[size].type * 1.2
        low, high = (page.height * y for y in box.intervaly)
        assert low - line <= inside[0].box.y0
        assert inside[-1].box.y1 <= high + line
        for below, above in pairwise(inside):
            # descenders may touch, letters may not
            assert above.box.y0 >= below.box.y1 - 1.0, (suffix, below, above)
        check_order(made.legends[0], names, made.panels.rows[0][-1], inside, suffix)


def as_in_pdf(text):
    return "".join(c if ord(c) < 256 else BEYOND for c in text)


def overlap(one, two):
    """Whether boxes overlap by more than descenders may."""
    return one.overlaps(two) and min(one.y1 - two.y0, two.y1 - one.y0) > 1.0


def pairs(first, second):
    return ((a, b) for a in first for b in second if a is not b)


def check_order(legend, names, axes, inside, suffix):
    """Entries have the order of the ends of their curves in the last panel."""
    if suffix != "png":
        return
    heights, downwards = {}, inside[::-1]
    for ending in legend:
        y = -1.0 if ending.at is None else (axes.transData - axes.transAxes).transform(ending.at)[1]
        texts = entry_text(ending, names).split("\n")
        places = (downwards[i : i + len(texts)] for i in range(len(downwards)))
        entry = next(lines for lines in places if [one.text for one in lines] == texts)
        downwards = [one for one in downwards if one not in entry]
        heights[ending.name] = (np.clip(y, 0, 1), entry[0].box.y0)
    for (one, low), (two, high) in pairwise(sorted(heights.values())):
        assert two - one < 1e-6 or low < high


def figures(whole, size):
    """Figures of a sweep that have every kind of panel."""
    cases = summary(whole)
    if cases["mode"].eq(Mode.DECODE).all():
        yield drawn(lambda: decode_figure(cases, size))
        return
    local = local_slopes(cases)
    local["expected"] = 1.0
    slopes = local if len(local.dropna(subset="slope")) else None
    yield drawn(lambda: cost_figure(cases, TIME, whole.request.tokens, size, slopes))
    yield drawn(lambda: cost_figure(cases, MEMORY, whole.request.tokens, size))


@pytest.mark.parametrize("folder", STORED, ids=lambda path: path.name)
def test_legends_of_stored_sweeps_are_next_to_their_curves(folder):
    whole = load(folder)
    for made in figures(whole, FigureSize.TEXT):
        check(made, FigureSize.TEXT)


def with_ends(count, lengths, share, seed):
    """A sweep of which a share of the cases, drawn at random, was not measured."""
    rng = np.random.default_rng(seed)

    def end(case):
        if rng.random() >= share:
            return None
        outcome = Outcome(rng.choice(["oom", "timeout", "skipped", "unsupported"]))
        return Run(case=case.key, part=Part.TIME, round=0, outcome=outcome, reason="over budget")

    names = [f"mechanism_{i}" for i in range(count)]
    return sweep(names, lengths=tuple(sorted(lengths)), rounds=1, samples=1, end=end)


@pytest.mark.parametrize("examples", [2, pytest.param(6, marks=pytest.mark.long)])
def test_legends_of_any_sweep_are_next_to_their_curves(examples):
    # drawing is slow, so failing examples are not shrunk
    @settings(
        max_examples=examples,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.integers(1, 26),
        st.sets(st.integers(1, 65_536), min_size=1, max_size=12),
        st.sampled_from([0.0, 0.2, 0.9, 1.0]),
        st.integers(0, 99),
        st.sampled_from(FigureSize),
    )
    @example(26, {128 * 2**i for i in range(10)}, 0.9, 0, FigureSize.COLUMN)
    @example(17, {166, 499, 1230, 38_600, 40_681}, 0.2, 40, FigureSize.SLIDE)
    def every(count, lengths, share, seed, size):
        made, _ = figures(with_ends(count, lengths, share, seed), size)
        check(made, size)

    every()


@pytest.mark.parametrize("size", FigureSize)
def test_legends_of_the_roofline_are_beside_it(size):
    names = [f"mechanism_{i}" for i in range(26)]
    whole = sweep(names, lengths=(128, 2048), rounds=1, samples=1)
    points = roofline(summary(whole), roof(whole))
    made = drawn(lambda: roofline_figure(points, roof(whole), size))
    assert [len(legend) for legend in made.legends] == [26] * (2 if SHEETS[size].stacked else 1)
    check(made, size)


def test_notes_are_broken_into_lines_that_stay_on_the_page():
    notes = [
        "CPU time on one core. Open markers: predicted, not measured (over budget, over time"
        " limit). Bands and bars: 95 % CI."
    ]
    cases = summary(sweep(("fastformer",), lengths=(128,), rounds=1, samples=1))
    with mock.patch("attnbench.render.figures.notes", return_value=notes):
        made = drawn(lambda: cost_figure(cases, TIME, 8192))
    check(made, FigureSize.TEXT)
    interval = drawn(lambda: cost_figure(summary(sweep()), TIME, 8192)).figure.texts[-1].get_text()
    assert wrapped(f"much {interval[-8:]}", 7.0, 20.0) == ["much", "95\xa0%\xa0CI."]


def test_panels_in_a_row_share_their_scale_and_their_legend():
    cases = summary(sweep())
    text = drawn(lambda: cost_figure(cases, TIME, 8192, FigureSize.TEXT))
    ((left, right),) = text.panels.rows
    assert left.get_ylim() == right.get_ylim()
    assert len(text.legends) == 1
    column = drawn(lambda: cost_figure(cases, TIME, 8192, FigureSize.COLUMN))
    assert [len(row) for row in column.panels.rows] == [1, 1]


def test_rows_of_panels_share_a_legend_in_the_order_of_the_first():
    def end(case):
        if case.mechanism == "transformer" and case.workload.mode == Mode.INFERENCE:
            return Run(case=case.key, part=Part.TIME, round=0, outcome=Outcome.UNSUPPORTED,
                       reason="no")  # fmt: skip
        return None

    cases = summary(sweep(end=end))
    made = drawn(lambda: cost_figure(cases, TIME, 8192, FigureSize.COLUMN))
    training = cases[cases["mode"] == Mode.TRAINING]
    last = training[training["seq_len"] == training["seq_len"].max()]
    slowest_first = last.sort_values("time_s", ascending=False)["series"]
    names = styles.labels(cases["series"])
    texts = [text.get_text() for text in made.figure.texts]
    assert texts[: len(slowest_first)] == [names[series] for series in slowest_first]
    assert "Inference, cannot run: Transformer." in " ".join(texts)


def test_predictions_leave_room_to_what_was_measured():
    def end(case):
        over = case.mechanism == "transformer" and case.workload.seq_len > 1024
        ended = Run(case=case.key, part=Part.TIME, round=0, outcome=Outcome.SKIPPED,
                    cause=Cause.BUDGET)  # fmt: skip
        return ended if over else None

    cases = summary(sweep(end=end))
    made = drawn(lambda: cost_figure(cases, TIME, 8192))
    slow = cases[cases["mechanism"] == "transformer"]
    top = (8192 * slow["time_s"] / slow["tokens"]).max()
    guessed = (8192 * slow["refined_s"] / slow["tokens"]).max()
    (row,) = made.panels.rows
    assert top < row[0].get_ylim()[1] < 5 * top < guessed
    open_markers = [
        line for axes in row for line in axes.lines if line.get_markerfacecolor() == "white"
    ]
    assert len(open_markers) == 2
    assert all("predicted" in text.get_text() for text in made.figure.texts[-1:])


def test_memory_is_drawn_per_token():
    whole = sweep(("fastformer",), lengths=(128, 512), rounds=1, samples=1)
    ((_, inference),) = drawn(lambda: cost_figure(summary(whole), MEMORY, 8192)).panels.rows
    peak = 8192 * 256 * 4 * 8 + 2_000_000  # of 8,192 tokens at either length
    assert inference.lines[0].get_ydata() == pytest.approx([peak / 8192] * 2)


def test_an_interval_without_neighbours_has_a_bar():
    rare = summary(sweep(("fastformer",), lengths=(128, 512, 2048)))
    rare.loc[rare["seq_len"] != 512, ["time_lo_s", "time_hi_s"]] = np.nan
    ((axes, _),) = drawn(lambda: cost_figure(rare, TIME, 8192)).panels.rows
    bars = [path for made in axes.collections[1:] for path in made.get_paths()]
    (bar,) = [path for path in bars if len(path.vertices)]
    (case,) = rare[(rare["seq_len"] == 512) & (rare["mode"] == "training")].to_dict("records")
    assert bar.vertices[:, 0] == pytest.approx([512, 512])
    assert bar.vertices[:, 1] == pytest.approx([case["time_lo_s"], case["time_hi_s"]])


def test_the_strongest_lines_are_fastformer_and_transformer():
    found = styles.series_styles(["fastformer", "transformer:sdpa", "linformer", "mine"])
    strong, weak = found["fastformer"]["linewidth"], found["linformer"]["linewidth"]
    assert strong == found["transformer:sdpa"]["linewidth"] > 1.5 * weak
    assert weak == found["mine"]["linewidth"]


def test_papers_name_a_mechanism_as_its_file_does():
    files = {path.stem: path for path in Path("attnbench/mechanisms").glob("[a-z]*.py")}
    assert set(styles.NAMES) <= set(files)  # a new mechanism does without
    for mechanism, name in styles.NAMES.items():
        docs = ast.get_docstring(ast.parse(files[mechanism].read_text())) or ""
        assert name.lower() in docs.split("\n")[0].lower(), mechanism


def test_labels_name_form_and_options_only_where_they_distinguish():
    names = ["linear_transformer:folded", "transformer:eager", "transformer:sdpa @ cpu",
             "linformer:eager[rank=4]", "linformer:eager[rank=16]", "mine:NAME"]  # fmt: skip
    assert list(styles.labels(names).values()) == [
        "Linear Transformer", "Transformer", "Transformer\ncpu",
        "Linformer (rank=4)", "Linformer (rank=16)", "mine",
    ]  # fmt: skip
    both = styles.labels(["transformer:eager", "transformer:sdpa"])
    assert list(both.values()) == ["Transformer (eager)", "Transformer (sdpa)"]


def test_wide_labels_are_folded_and_keep_their_options():
    names = ("grouped_query:eager[kv_heads=1]", "grouped_query:eager[kv_heads=4]")
    labels = styles.labels(names)
    texts = [entry_text(Ending(name, None), labels) for name in names]
    assert texts == ["Grouped-query\n(kv_heads=1)", "Grouped-query\n(kv_heads=4)"]


def test_the_width_in_pixels_is_that_of_the_sheet():
    figure = cost_figure(summary(sweep(lengths=(128, 512))), TIME, 8192, FigureSize.COLUMN)
    assert figure.get_size_inches()[0] * DPI == 3.25 * 300
    assert all(isinstance(artist, Line2D) for artist in figure.artists)


@pytest.mark.parametrize(
    ("whole", "title", "axis", "below"),
    [
        (
            sweep(("fastformer",), lengths=(128, 256)),
            "Training time, ms per batch of 8,192 tokens (wall time on 2 threads)",
            "wall time per 8,192 tokens",
            "Wall time on 2 threads. ",
        ),
        (load(CLOCKED), "Training time, ms per batch of 256 tokens (CPU time on one core)",
         "CPU time per 256 tokens", "CPU time on one core. "),
        (on_gpu(Sample(4, 1.0, 1.0, 0.2, 1.0, 0.0, 0.0)),
         "Training time, ms per batch of 8,192 tokens", "time per 8,192 tokens", ""),
    ],
)  # fmt: skip
def test_titles_axes_and_notes_say_what_time_is(whole, title, axis, below):
    cases, tokens = summary(whole), whole.request.batch_tokens
    assert latency(cases, Mode.TRAINING, tokens).title == title
    figure = cost_figure(cases, TIME, tokens)
    assert figure.axes[0].get_ylabel() == axis
    written = " ".join(text.get_text() for text in figure.texts)
    assert below in written
    assert ("one core" in written, "threads" in written) == ("core" in below, "threads" in below)
    assert "core" not in " ".join(t.get_text() for t in cost_figure(cases, MEMORY, tokens).texts)
