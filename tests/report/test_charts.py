"""The data of a page's charts, without a browser."""

import re
from dataclasses import replace

import pytest

from attnbench.analysis.report import analyse
from attnbench.records import Part
from attnbench.report.charts import PREDICTED, charts, marker_path
from attnbench.report.html import WEB
from attnbench.report.names import MARK
from attnbench.report.styles import HUES, MARKERS, on_dark, series_styles
from tests.sweeps import altered, sweep

COLOUR = re.compile(r"--(\w+): light-dark\((#\w+), (#\w+)\)")
MECHANISMS = ("fastformer", "transformer", "linformer")


@pytest.fixture(scope="module")
def found():
    return analyse(sweep(MECHANISMS, lengths=(128, 2048, 65_536)))


@pytest.fixture(scope="module")
def data(found):
    return charts(found)


def quantity(data, label):
    (one,) = (each for each in data["quantities"] if each["label"].startswith(label))
    return one


def test_lengths_are_named_as_in_figures():
    found = analyse(sweep(("fastformer",), lengths=(1000, 65_536, 1 << 20), rounds=0))
    axis = charts(found)["spec"]["encoding"]["x"]["axis"]
    assert axis["values"] == [1000, 65_536, 1 << 20]
    assert axis["labelExpr"] == '{"1000": "1,000", "65536": "64K", "1048576": "1M"}[datum.value]'


def test_what_people_compare_is_offered_and_no_condition_of_the_measurement(data):
    labels = [each["label"] for each in data["quantities"]]
    assert {"allocated peak", "tokens per second", "time over the bound", "FLOPs"} <= {*labels}
    assert not {"load before", "warm-up", "set-up", "probe"} & {*labels}
    assert sum(not each["more"] for each in data["quantities"]) <= 10
    assert len(set(labels)) == len(labels)


def test_points_are_the_cases_with_their_predictions(found, data):
    points = quantity(data, "wall time on 2 threads")["points"]
    assert len(points) == len(found.cases)
    cases = found.cases.set_index(["series", "mode", "seq_len"])
    for point in points:
        row = cases.loc[point["series"], point["mode"], point["n"]]
        seconds = row["time_s"] if row["time_s"] > 0 else row["predicted_s"]
        assert point.get("predicted", False) == (not row["time_s"] > 0)
        assert point["value"] == pytest.approx(seconds * 8192 / row["tokens"])
        assert ("low" in point) == (row["time_s"] > 0)


def test_what_is_predicted_or_suspect_is_explained_where_it_is_drawn(data):
    assert data["marks"] == [PREDICTED]
    timed = sweep(("fastformer", "linformer"), lengths=(128, 512))
    assert charts(analyse(timed))["marks"] == []

    theirs = {line.case.key for line in timed.plan if line.case.mechanism == "linformer"}

    def accused(run):
        odd = {"suspect": "ignored tokens of its input"}
        return replace(run, notes=odd) if run.case in theirs else run

    made = charts(analyse(altered(timed, accused, Part.TIME)))
    assert made["marks"] == [MARK]
    assert [look["name"] for look in made["series"].values()] == ["Fastformer", "Linformer †"]


def test_axes_count_in_units(data):
    peak, rate = quantity(data, "allocated peak"), quantity(data, "tokens per second")
    assert re.findall(r"' (\w+)'", peak["text"]) == ["TiB", "GiB", "MiB", "KiB", "B"]
    assert (peak["base"], rate["base"]) == (2, 10)
    assert rate["text"] == "datum.label && (format(datum.value, ',~r'))"


def test_what_has_a_zero_has_no_logarithmic_axis(data):
    """Inference has no backward pass."""
    assert not quantity(data, "backward")["log"]
    assert quantity(data, "wall time on 2 threads")["log"]


@pytest.mark.parametrize("marker", MARKERS)
def test_every_marker_has_an_outline_of_its_own(marker: str):
    path = marker_path(marker)
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d+", path)]
    assert 0.7 < max(map(abs, numbers)) <= 1
    assert [other for other in MARKERS if marker_path(other) == path] == [marker]


def test_colours_are_light_enough_for_a_dark_page():
    for style in series_styles([f"mechanism_{i}" for i in range(60)]).values():
        assert contrast(on_dark(style["color"]), "#161616") >= 4
    assert len({on_dark(hue) for hue in HUES}) == len(HUES)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_of_pages_are_readable(scheme):
    found = COLOUR.findall(WEB.joinpath("page.css").read_text())
    colours = {name: pair[scheme] for name, *pair in found}
    for pair in ("ink/paper", "soft/paper", "link/paper", "ink/band", "warn/warned"):
        text, paper = pair.split("/")
        assert contrast(colours[text], colours[paper]) >= 4.5, pair


def contrast(one: str, other: str) -> float:
    """The ratio of luminances of the Web Content Accessibility Guidelines 2.1."""
    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def light(colour: str) -> float:
    digits = colour[1:] if len(colour) > 4 else "".join(2 * digit for digit in colour[1:])
    levels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in levels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_peaks_that_miss_memory_are_named_beside_their_chart_and_at_their_points():
    def missing(run):
        of_linformer = "linformer" in run.case
        return replace(run, notes={"uncounted": "arrays of numpy"}) if of_linformer else run

    timed = sweep(("fastformer", "linformer"), lengths=(128, 512))
    made = charts(analyse(altered(timed, missing)))
    peak = quantity(made, "allocated peak")
    assert "Peaks miss memory outside of torch: Linformer." in peak["note"]
    texts = {point["series"]: point["text"] for point in peak["points"]}
    assert {name for name, text in texts.items() if text.endswith("; it misses memory")} == {
        "linformer:eager"
    }
    assert "misses memory" not in quantity(made, "tokens per second")["note"]
    assert "miss memory" not in quantity(charts(analyse(timed)), "allocated peak")["note"]
