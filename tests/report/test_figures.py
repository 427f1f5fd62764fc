"""Figures: texts that overlap nothing and stay on the page, legends in the order of curves."""

import ast
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from matplotlib.markers import CARETUP, MarkerStyle
from matplotlib.text import Text

from attnbench.analysis.summary import summary
from attnbench.records import Cause, Mode, Outcome, Sample
from attnbench.records.metrics import TABLE
from attnbench.records.storage.journal import load
from attnbench.report import styles
from attnbench.report.charts import marker_path
from attnbench.report.cost_tables import latency
from attnbench.report.figures import DPI, cost_figure, decode_figure, styled
from attnbench.report.sizes import LAYOUTS, ReportSize
from tests.records.storage.recorded import OPTIONS
from tests.sweeps import altered, lost, on_gpu, sweep

# sweeps of one's own have names of digits
STORED = sorted(path.parent for path in Path("reports").glob("[!0-9]*/sweep.jsonl"))
WIDTHS = {"column": 3.3, "page": 5.5, "text": 6.8, "slides": 10.0}  # inches
DESCENDERS = 0.05 * DPI  # may touch
TIME, MEMORY = (TABLE[key] for key in ("time_s", "allocated_peak_bytes"))


def check(figure, size=ReportSize.PAGE):
    """Texts are of the right size, on the page, and apart; the legend is outside all panels.

    No text is smaller than 7 points at the size at which a figure of this `size` is printed.
    """
    with styled(LAYOUTS[size]):
        figure.draw_without_rendering()
    page, (legend,) = figure.bbox, figure.legends
    assert page.width == pytest.approx(WIDTHS[size] * DPI)
    boxes = {}
    for text in figure.findobj(lambda artist: isinstance(artist, Text) and artist.get_text()):
        if not text.get_visible() or (text.axes and not in_view(text)):
            continue
        assert (12 if size == "slides" else 7) <= text.get_fontsize() <= 15, text
        box = text.get_window_extent()
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= page.x1 + 1, text
        assert box.y1 <= page.y1 + 1, text
        boxes[text] = box
    for (one, a), (two, b) in combinations(boxes.items(), 2):
        deep = min(a.y1 - b.y0, b.y1 - a.y0) > DESCENDERS
        assert not (a.overlaps(b) and deep and min(a.x1 - b.x0, b.x1 - a.x0) > 1), (one, two)
    box = legend.get_window_extent()
    assert not any(box.overlaps(axes.bbox) for axes in figure.axes)


def in_view(text):
    """Whether a tick label belongs to a tick within its axes, which alone are drawn."""
    axes = text.axes
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if text in (tick.label1, tick.label2):
                shown = text is tick.label1 and tick.label1.get_visible()
                return shown and low <= tick.get_loc() <= high
    return True


def entries(figure):
    """The texts of the legend in its order."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def written(figure):
    return " ".join(text.get_text() for text in figure.texts)


def figures(whole, size=ReportSize.PAGE):
    """Figures of a sweep that have every kind of panel."""
    cases, layout = summary(whole), LAYOUTS[size]
    if cases["mode"].eq(Mode.DECODE).all():
        yield decode_figure(cases, Mode.DECODE, layout)
        return
    yield cost_figure(cases, TIME, whole.request.tokens, layout)
    yield cost_figure(cases, MEMORY, whole.request.tokens, layout)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(size, marks=() if size is ReportSize.COLUMN else pytest.mark.long)
        for size in ReportSize
    ],
)
@pytest.mark.parametrize("folder", STORED, ids=lambda path: path.name)
def test_texts_of_stored_sweeps_are_apart(folder, size):
    for figure in figures(load(folder), size):
        check(figure, size)


def with_ends(count, lengths, share, seed):
    """A sweep of which a share of the cases, drawn at random, was not measured."""
    rng = np.random.default_rng(seed)

    def end(case):
        outcomes = (Outcome.OOM, Outcome.TIMEOUT, Outcome.SKIPPED, Outcome.UNSUPPORTED)
        return lost(case, rng.choice(outcomes)) if rng.random() < share else None

    names = [f"mechanism_{i}" for i in range(count)]
    return sweep(names, lengths=tuple(sorted(lengths)), rounds=1, samples=1, end=end)


@pytest.mark.parametrize("examples", [1, pytest.param(6, marks=pytest.mark.long)])
def test_texts_of_any_sweep_are_apart(examples):
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
    )
    @example(26, {128 * 2**i for i in range(10)}, 0.9, 0)
    @example(17, {166, 499, 1230, 38_600, 40_681}, 0.2, 40)
    def every(count, lengths, share, seed):
        size = [*ReportSize][seed % len(ReportSize)]
        for figure in figures(with_ends(count, lengths, share, seed), size):
            check(figure, size)
            names = {name.partition("\n")[0] for name in entries(figure)}
            assert names == {f"mechanism_{i}" for i in range(count)}

    every()


def test_a_legend_has_the_order_in_which_curves_end_in_the_last_panel():

    def end(case):
        gone = case.mechanism == "transformer" and case.workload.mode != Mode.INFERENCE
        return lost(case, Outcome.UNSUPPORTED) if gone else None

    cases = summary(sweep(end=end))
    figure = cost_figure(cases, TIME, 8192)
    last = cases[(cases["mode"] == "inference") & (cases["seq_len"] == cases["seq_len"].max())]
    time = last["time_s"].fillna(last["predicted_s"])
    names = styles.labels(cases["series"])
    slowest_first = last["series"].loc[time.sort_values(ascending=False).index]
    assert entries(figure) == [names[series] for series in slowest_first]
    assert "Training, cannot run: Transformer." in written(figure)


def test_predictions_leave_room_to_what_was_measured_and_are_arrows_above_it():
    """The budget ended the Transformer at 1,024 tokens."""

    def end(case):
        over = case.mechanism == "transformer" and case.workload.seq_len > 1024
        return lost(case, cause=Cause.BUDGET) if over else None

    cases = summary(sweep(end=end))
    figure = cost_figure(cases, TIME, 8192)
    training, inference = figure.axes
    low, high = training.get_ylim()
    assert inference.get_ylim() == (low, high)
    own = cases[(cases["mode"] == "training") & (cases["mechanism"] == "transformer")]
    times, guesses = (8192 * own[key] / own["tokens"] for key in ("time_s", "predicted_s"))
    assert times.max() < high < 5 * times.max() < guesses.max()
    lines = [line for axes in figure.axes for line in axes.lines]
    assert sum(line.get_markerfacecolor() == "white" for line in lines) == 2
    (arrows,) = (
        line for line in training.lines if line.get_marker() == CARETUP and len(line.get_xdata())
    )
    assert [*arrows.get_xdata()] == [*own["seq_len"][guesses.where(times.isna()) > high]]
    assert {*arrows.get_ydata()} == {high}
    assert "Open markers: predicted (over budget). Arrows: " in written(figure)
    assert "Arrows" not in written(cost_figure(summary(sweep(("fastformer",))), TIME, 8192))
    texts = {text.get_text() for text in training.get_xticklabels()}
    assert {"128", "64K"} <= texts


def test_memory_is_drawn_per_token():
    whole = sweep(("fastformer",), lengths=(128, 512), rounds=1, samples=1)
    _, inference = cost_figure(summary(whole), MEMORY, 8192).axes
    peak = 8192 * 256 * 4 * 8 + 2_000_000  # of 8,192 tokens at either length
    assert inference.lines[0].get_ydata() == pytest.approx([peak / 8192] * 2)


def test_intervals_have_bars():
    rare = summary(sweep(("fastformer",), lengths=(128, 512, 2048)))
    rare.loc[rare["seq_len"] != 512, ["time_lo_s", "time_hi_s"]] = np.nan
    axes, _ = cost_figure(rare, TIME, 8192).axes
    _, bar, _ = axes.collections[0].get_paths()
    (case,) = rare[(rare["seq_len"] == 512) & (rare["mode"] == "training")].to_dict("records")
    assert bar.vertices[:, 0] == pytest.approx([512, 512])
    assert bar.vertices[:, 1] == pytest.approx([case["time_lo_s"], case["time_hi_s"]])


def test_papers_name_a_mechanism_as_its_file_does():
    files = {path.stem: path for path in Path("attnbench/mechanisms").glob("[a-z]*.py")}
    assert set(styles.NAMES) <= set(files)  # a new mechanism does without
    for mechanism, name in styles.NAMES.items():
        docs = ast.get_docstring(ast.parse(files[mechanism].read_text())) or ""
        assert name.lower() in docs.split("\n")[0].lower(), mechanism


def test_labels_name_form_and_options_only_where_they_distinguish():
    expected = {
        "linear_transformer:folded": "Linear Transformer",
        "transformer:eager": "Transformer",
        "linformer:eager[rank=4]": "Linformer (rank=4)",
        "linformer:eager[rank=16]": "Linformer (rank=16)",
        "local:eager[window=256]": "Local attention",
        "mine:NAME": "mine",
    }
    assert styles.labels(expected) == expected
    both = styles.labels(["transformer:eager", "transformer:sdpa"])
    assert list(both.values()) == ["Transformer (eager)", "Transformer (sdpa)"]


@pytest.mark.parametrize(
    ("whole", "title", "axis", "below"),
    [
        (
            sweep(("fastformer",), lengths=(128, 256)),
            "Training time, ms per batch of 8,192 tokens (wall time on 2 threads)",
            "time per 8,192 tokens",
            "Wall time on 2 threads. ",
        ),
        (load(OPTIONS), "Training time, ms per batch of 64 tokens (CPU time on one core)",
         "time per 64 tokens", "CPU time on one core. "),
        (on_gpu(Sample(4, 1.0, 1.0, 0.2, 1.0, 0.0, 0.0)),
         "Training time, ms per batch of 8,192 tokens", "time per 8,192 tokens", ""),
    ],
)  # fmt: skip
def test_titles_axes_and_notes_say_what_time_is(whole, title, axis, below):
    cases, tokens = summary(whole), whole.request.batch_tokens
    assert latency(cases, Mode.TRAINING, tokens).title == title
    figure = cost_figure(cases, TIME, tokens)
    assert figure.axes[0].get_ylabel() == axis
    text = written(figure)
    assert below in text
    assert ("one core" in text, "threads" in text) == ("core" in below, "threads" in below)
    assert "core" not in written(cost_figure(cases, MEMORY, tokens))


def test_the_marker_of_a_suspect_is_a_dagger_in_figures_and_on_the_page():
    """Higher than wide; as text it would be set without mathematics, flat and broad."""
    whole = sweep(("fastformer", "linformer"), lengths=(128, 512), modes=(Mode.INFERENCE,))
    keys = {p.case.key for p in whole.plan if p.case.mechanism == "fastformer"}
    note = {"suspect": "ignored tokens of its input"}
    fake = altered(whole, lambda run: replace(run, notes=note) if run.case in keys else run)
    figure = cost_figure(summary(fake), TIME, 8192)
    lines = figure.legends[0].get_lines()
    with styled():
        shapes = [MarkerStyle(line.get_marker()) for line in lines]
        boxes = [one.get_path().transformed(one.get_transform()).get_extents() for one in shapes]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    heights = {text: box.height / box.width for text, box in zip(texts, boxes, strict=True)}
    assert heights.pop("Fastformer †") > 1.5
    assert max(heights.values()) < 1.3
    assert marker_path(styles.DAGGER).count("L") >= 11
