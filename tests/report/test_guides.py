"""Guides of slopes are as steep as what they are named after, and are no series."""

from dataclasses import replace

import numpy as np
import pytest

from attnbench.analysis.report import analyse
from attnbench.analysis.summary import summary
from attnbench.records.metrics import TABLE
from attnbench.report.charts import charts
from attnbench.report.figures import cost_figure, decode_figure
from attnbench.report.guides import GREY, TEXTS
from attnbench.report.sizes import LAYOUTS, ReportSize
from tests.report.test_figures import check, entries, written
from tests.sweeps import decoded, sweep

GUIDED = {size: replace(layout, guides=True) for size, layout in LAYOUTS.items()}
PAGE = GUIDED[ReportSize.PAGE]
TIME = TABLE["time_s"]


def slopes(axes):
    """The power of N with which each guide rises on the axes, by its text, from lowest to highest.

    A guide starts where all do, and goes on until it leaves the panel or its lengths end.
    """
    lines = [line for line in axes.lines if line.get_color() == GREY]
    texts = [text.get_text() for text in axes.texts if text.get_text() in TEXTS.values()]
    starts = [line.get_xydata()[0] for line in lines]
    assert np.allclose(starts, starts[0])
    found = {}
    for text, line in zip(texts, lines, strict=True):
        x, y = np.log(line.get_xydata().T)
        found[text] = (y[-1] - y[0]) / (x[-1] - x[0])
    return found


def fixed(whole, batch=4):
    """The sweep with the same number of sequences at all lengths."""
    plan = []
    runs = []
    for line in whole.plan:
        case = replace(line.case, workload=replace(line.case.workload, batch=batch))
        plan.append(replace(line, case=case))
        runs += [replace(run, case=case.key) for run in whole.runs if run.case == line.case.key]
    request = replace(whole.request, tokens=None)
    return replace(whole, plan=tuple(plan), runs=tuple(runs), request=request)


def test_a_batch_of_constant_tokens_is_level_where_a_sequence_costs_n():
    for axes in cost_figure(summary(sweep()), TIME, 8192, PAGE).axes:
        assert slopes(axes) == pytest.approx({"∝ N": 0.0, "∝ N²": 1.0}, abs=1e-6)


def test_a_batch_of_constant_sequences_rises_as_one_of_them():
    found = fixed(sweep(lengths=(128, 512, 2048)))
    for axes in cost_figure(summary(found), TIME, None, PAGE).axes:
        assert slopes(axes) == pytest.approx({"∝ N": 1.0, "∝ N²": 2.0}, abs=1e-6)


def test_the_memory_of_a_token_is_level_where_a_sequence_needs_n():
    cases = summary(sweep(lengths=(128, 512, 2048)))
    for axes in cost_figure(cases, TABLE["allocated_peak_bytes"], 8192, PAGE).axes:
        assert slopes(axes) == pytest.approx({"∝ N": 0.0, "∝ N²": 1.0}, abs=1e-6)


def test_a_step_of_decoding_has_a_guide_of_n_alone():
    found = decoded({"transformer": lambda n: 2048 * n}, lengths=(512, 2048, 8192))
    for axes in decode_figure(summary(found), "decode", PAGE).axes:
        assert slopes(axes) == pytest.approx({"∝ N": 1.0}, abs=1e-6)


def powers(found, key="time_s"):
    """By mode: the power of N with which each guide of a page's chart rises, by its text."""
    (quantity,) = (one for one in charts(analyse(found))["quantities"] if one["key"] == key)
    return {
        mode: {
            text: np.log(line[-1][1] / line[0][1]) / np.log(line[-1][0] / line[0][0])
            for text, line in lines.items()
        }
        for mode, lines in quantity["slopes"].items()
    }


@pytest.mark.parametrize("key", ["time_s", "allocated_peak_bytes"])
def test_a_chart_of_a_page_has_the_guides_of_the_figure(key):
    lengths = (128, 512, 2048)
    both = {"∝ N": pytest.approx(0.0, abs=1e-6), "∝ N²": pytest.approx(1.0)}
    assert powers(sweep(lengths=lengths), key) == {"training": both, "inference": both}
    both = {"∝ N": pytest.approx(1.0), "∝ N²": pytest.approx(2.0)}
    assert powers(fixed(sweep(lengths=lengths)), key) == {"training": both, "inference": both}


def test_a_chart_has_no_guides_where_there_is_no_slope_or_no_cost_of_sequences():
    assert powers(sweep(lengths=(512,))) == {}
    assert powers(sweep(lengths=(128, 512)), "speedup") == {}
    found = decoded({"transformer": lambda n: 2048 * n}, lengths=(512, 2048, 8192))
    assert powers(found) == {"decode": {"∝ N": pytest.approx(1.0)}}


def test_guides_are_below_all_curves_where_these_begin():
    cases = summary(sweep())
    for axes in cost_figure(cases, TIME, 8192, PAGE).axes:
        guides = [line for line in axes.lines if line.get_color() == GREY]
        curves = [line for line in axes.lines if line not in guides]
        start = guides[0].get_ydata()[0]
        assert axes.get_ylim()[0] < start
        for line in curves:
            assert not np.any(line.get_ydata()[:1] <= start)


def test_a_guide_is_no_series_of_the_legend():
    cases = summary(sweep())
    guided = cost_figure(cases, TIME, 8192, PAGE)
    usual = cost_figure(cases, TIME, 8192)
    assert entries(guided) == entries(usual)
    assert "Grey: costs of a sequence ∝ N and ∝ N²." in written(guided)
    assert "Grey" not in written(usual)
    assert not any(axes.texts for axes in usual.axes)


def test_one_length_has_no_slope():
    figure = cost_figure(summary(sweep(lengths=(512,))), TIME, 8192, PAGE)
    assert not any(axes.texts for axes in figure.axes)
    assert "Grey" not in written(figure)


@pytest.mark.parametrize(
    "size",
    [
        ReportSize.PAGE,
        *(
            pytest.param(size, marks=pytest.mark.long)
            for size in ReportSize
            if size != ReportSize.PAGE
        ),
    ],
)
@pytest.mark.parametrize("lengths", [(128, 256), (128, 512, 2048, 8192, 65_536)])
def test_texts_of_guides_are_apart_from_others(lengths, size):
    check(cost_figure(summary(sweep(lengths=lengths)), TIME, 8192, GUIDED[size]), size)
