"""Maps: what their cells say, where they say nothing, and when they are drawn."""

from dataclasses import replace

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from attnbench.analysis.report import analyse
from attnbench.records import Mode
from attnbench.report import page
from attnbench.report.figures import DPI, styled
from attnbench.report.maps import CAUSAL, MANY, map_figure, maps
from attnbench.report.sizes import LAYOUTS, ReportSize
from attnbench.report.styles import SUSPECT, labels
from tests.sweeps import COSTS, sweep

FURTHER = ("local", "performer", "etc", "sinkhorn", "axial", "moba", "retention", "fnet")
SERIES = (*COSTS, *FURTHER)


@pytest.fixture(scope="module")
def analysis():
    return analyse(sweep(SERIES))


def panels(figure):
    """The rows of each panel: the texts of its cells from left to right, from top to bottom."""
    for axes in figure.axes:
        rows = {}
        for text in axes.texts:
            x, y = text.get_position()
            rows.setdefault(int(y), {})[int(x)] = text
        yield [[row[x] for x in sorted(row)] for _, row in sorted(rows.items())]


def names(figure):
    """The names of the rows, of the first panel."""
    axis = figure.axes[0].yaxis
    return [axis.get_major_formatter()(at, None) for at in axis.get_major_locator()()]


def colours(axes):
    return {patch.get_xy(): to_hex(patch.get_facecolor()) for patch in axes.patches}


def note(figure):
    return " ".join(text.get_text() for text in figure.texts)


def test_a_map_is_drawn_where_curves_hide_one_another(analysis):
    assert {"map", "map_memory"} <= {*page.captions(analysis)}
    assert not maps(analyse(sweep(SERIES[:MANY])))


def test_cells_say_what_the_table_of_speedups_does(analysis):
    figure = map_figure(analysis, "map")
    rows = dict(zip(names(figure), next(panels(figure)), strict=True))
    label = labels(analysis.cases["series"])
    found = analysis.speedups[analysis.speedups["mode"] == Mode.TRAINING]
    assert len(found) > 100
    for one in found.itertuples():
        at = analysis.sweep.request.lengths.index(one.seq_len)
        text = rows[label[one.series]][at]
        assert float(text.get_text().replace(",", "")) == pytest.approx(one.ratio, rel=0.05)
        assert text.get_style() == "normal"
        assert (text.get_weight() == "bold") == (one.low <= 1 <= one.high)


def test_predictions_have_no_colour_and_say_why(analysis):
    figure = map_figure(analysis, "map")
    training = next(panels(figure))
    of_row = dict(zip(names(figure), training, strict=True))
    measured = [text.get_style() == "normal" for text in of_row["Fastformer"]]
    assert measured == [True] * 8 + [False] * 2, "the Transformer ended at 16,384"
    axes = figure.axes[0]
    row = names(figure).index("Fastformer")
    painted = colours(axes)
    assert painted[8 - 0.5, row - 0.5] == "#ffffff" != painted[7 - 0.5, row - 0.5]
    assert "predicted (out of memory, over budget)" in note(figure)


def test_rows_are_from_cheap_to_dear_and_say_which_is_which(analysis):
    for stem in ("map", "map_memory"):
        figure = map_figure(analysis, stem)
        *_, last = panels(figure)
        ends = [float(row[-1].get_text().replace(",", "")) for row in last]
        assert ends == sorted(ends, reverse=True)
        painted = colours(figure.axes[-1])
        for y, row in enumerate(last):
            for x, text in enumerate(row):
                ratio = float(text.get_text().replace(",", ""))
                colour = painted[x - 0.5, y - 0.5]
                red, blue = int(colour[1:3], 16), int(colour[5:], 16)
                assert text.get_style() == "italic" or (ratio > 1.04) <= (blue > red)
                assert text.get_style() == "italic" or (ratio < 0.96) <= (blue < red)
    assert "peak memory of Transformer" in note(figure)


def noted(whole, mechanism, **notes):
    """A sweep with these notes at each run of a mechanism."""
    keys = {p.case.key for p in whole.plan if p.case.mechanism == mechanism}
    runs = (
        replace(run, notes={**run.notes, **notes}) if run.case in keys else run
        for run in whole.runs
    )
    return replace(whole, runs=tuple(runs))


def test_suspects_stand_last_and_ratios_that_were_not_taken_in_turns_are_counted():
    whole = sweep(SERIES)
    suspected = analyse(noted(whole, "fastformer", suspect="reads nothing"))
    assert names(map_figure(suspected, "map"))[-1] == f"Fastformer {SUSPECT}"
    plain = analyse(whole)
    plain.__dict__["speedups"] = plain.speedups.assign(paired=True)
    assert names(map_figure(plain, "map"))[0] == "Fastformer"
    assert "in turns" not in note(map_figure(plain, "map"))
    count = len(plain.speedups)
    plain.__dict__["speedups"] = plain.speedups.assign(paired=plain.speedups["seq_len"] != 128)
    apart = (~plain.speedups["paired"]).sum()
    said = f"{apart} of {count} ratios are of times not taken in turns."
    assert said in note(map_figure(plain, "map"))


def test_peaks_that_miss_memory_are_not_compared():
    whole = noted(sweep(SERIES), "linformer", uncounted="arrays of numpy")
    figure = map_figure(analyse(whole), "map_memory")
    for panel in panels(figure):
        row = dict(zip(names(figure), panel, strict=True))["Linformer"]
        assert {text.get_text() for text in row} == {"–"}
    assert "not known (peaks that miss memory" in note(figure)


def test_a_single_round_has_no_interval():
    figure = map_figure(analyse(sweep(SERIES, rounds=1)), "map")
    assert "single round has no interval" in note(figure)
    assert "Bold" not in note(figure)
    assert all(text.get_weight() == "normal" for axes in figure.axes for text in axes.texts)


def test_the_baseline_may_be_chosen():
    chosen = analyse(sweep(SERIES), "linformer")
    figure = map_figure(chosen, "map")
    assert "as fast as Linformer" in note(figure)
    row = dict(zip(names(figure), next(panels(figure)), strict=True))["Linformer"]
    assert {text.get_text() for text in row} == {"1.0"}


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(size, marks=() if size is ReportSize.COLUMN else pytest.mark.long)
        for size in ReportSize
    ],
)
def test_texts_are_on_the_page_in_type_that_can_be_read(analysis, size):
    layout = LAYOUTS[size]
    figure = map_figure(analysis, "map", layout)
    with styled(layout):
        figure.draw_without_rendering()
    assert figure.bbox.width == pytest.approx(layout.width * DPI)
    for axes in figure.axes:
        columns = len(axes.texts) / len(SERIES)
        assert columns in (5, 10)
        wide = axes.get_window_extent().width / columns
        high = axes.get_window_extent().height / len(SERIES)
        boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
        assert len(boxes) == len(axes.texts)
        assert ("One length of 2 is shown" in note(figure)) == (columns == 5)
        for text in axes.texts:
            box = text.get_window_extent()
            assert text.get_fontsize() >= 7
            assert box.width < wide + 2, text
            assert box.height < high + 1, text
            assert box.x1 <= figure.bbox.x1 + 1


def test_suspects_are_marked(analysis):
    series = str(analysis.cases["series"].iloc[0])
    cases = analysis.cases.assign(
        suspect=analysis.cases["suspect"].mask(analysis.cases["series"] == series, "ignores")
    )
    figure = map_figure(replace(analysis, cases=cases), "map")
    assert sum(SUSPECT in name for name in names(figure)) == 1
    assert SUSPECT in note(figure)


def test_a_page_shows_maps_beside_its_chart(analysis):
    """Where scripts run, the chart stands in the place of other figures; not in that of maps."""
    made = page.report_files(analysis)["report.html"].decode()
    for stem, caption in page.captions(analysis).items():
        kind = "map" if stem in maps(analysis) else "static"
        assert f'<figure class="{kind}"><img src="data:image/png;base64,' in made
        assert made.count(f'alt="{caption}"') == 1
        assert (
            made.rpartition(f'alt="{caption}"')[0]
            .rpartition("<figure class=")[2]
            .startswith(f'"{kind}"')
        )


def test_rows_that_see_no_later_tokens_are_marked_beside_others(analysis):
    """Half of the pairs of tokens is half of the work, which a ratio alone does not tell."""
    assert not any(CAUSAL in name for name in names(map_figure(analysis, "map")))
    cases = analysis.cases.assign(causal=analysis.cases["mechanism"].isin(["moba", "retention"]))
    figure = map_figure(replace(analysis, cases=cases), "map")
    marked = {name for name in names(figure) if name.endswith(CAUSAL)}
    assert marked == {f"MoBA {CAUSAL}", f"RetNet {CAUSAL}"}
    assert f"{CAUSAL}: no token sees later ones, as tokens of other rows do." in note(figure)
    every = map_figure(replace(analysis, cases=cases.assign(causal=True)), "map")
    assert CAUSAL not in "".join([*names(every), note(every)])
