"""Labels are on the page, in the panel of their curve, next to the end of that curve."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from attnbench.analysis.roofline import roof, roofline
from attnbench.analysis.scaling import local_slopes
from attnbench.analysis.summary import summary
from attnbench.records import Outcome, Part, Run
from attnbench.render import figures, styles
from attnbench.render import roofline as roofs
from attnbench.render.panels import MARGINS, PANEL
from attnbench.store.journal import load
from tests.render.drawn import BEYOND, figure, pages
from tests.sweeps import sweep

STORED = sorted(path.parent for path in Path("reports").glob("*/sweep.jsonl"))
RIGHT = 72 * MARGINS["right"]
ACROSS = 72 * PANEL[0]
LINE = 9.0  # points that no line of a label exceeds


def labels(made):
    """The annotations next to each panel of a figure, by panel."""
    return [
        [text for text in axes.texts if getattr(text, "arrow_patch", None) or _listed(text)]
        for axes in made.axes
    ]


def _listed(text):
    """Whether it names a curve of which nothing was drawn."""
    return getattr(text, "anncoords", None) == "figure points"


def check(made, names):
    """`names`: for each panel, the series that it must name."""
    columns = round(made.get_size_inches()[0] / PANEL[0])
    texts = labels(made)
    assert [Counter(t.get_text().split("\n")[0] for t in found) for found in texts] == names
    columned = []
    for suffix, page in pages(made):
        for place, found in enumerate(texts):
            column, axes = place % columns, made.axes[place]
            left = (column + 1) * ACROSS - RIGHT
            low, high = (page.height * y for y in axes.get_position().intervaly)
            wanted = Counter(part for text in found for part in text.get_text().split("\n"))
            if suffix == "pdf":
                wanted = Counter({part.replace("–", BEYOND): n for part, n in wanted.items()})
            inside = [
                line
                for line in page.lines
                if line.text in wanted
                and left < line.box.x0 and line.box.x1 <= left + RIGHT
                and low - 20 <= line.box.y0 and line.box.y1 <= high + 20
            ]  # fmt: skip
            lost = [line for line in page.lines if line.text in wanted and line not in inside]
            assert wanted == Counter(line.text for line in inside), (suffix, place, lost)
            others = [line for line in page.lines if line.text not in wanted]
            if suffix != "png":  # whose ticks off the axes are known but not drawn
                hit = [o for line in inside for o in others if line.box.overlaps(o.box)]
                assert not hit, (suffix, hit)
            ordered = sorted(inside, key=lambda line: line.box.y0)
            for below, above in pairwise(ordered):
                # descenders may touch, letters may not
                assert above.box.y0 >= below.box.y1 - 1.0, (suffix, below, above)
            columned.append((suffix, found, ordered))
    for suffix, found, ordered in columned:
        _check_heights(found, [_end(text) for text in found], ordered, suffix)


def _check_heights(found, ended, ordered, suffix):
    """Names have the order of the ends of their curves, as close to them as possible."""
    unused = list(ordered)
    placed = []
    for text, end in sorted(zip(found, ended, strict=True), key=lambda pair: _key(pair[1])):
        name = text.get_text().split("\n")[0]
        line = next(line for line in unused if line.text == name)
        unused.remove(line)
        placed.append((end, line))
    known = [(end, line) for end, line in placed if end is not None]
    for (one, below), (two, above) in pairwise(known):
        if two > one + 1e-6:
            assert above.box.y0 > below.box.y0, (suffix, below.text, above.text)
    for end, line in known:
        away = (line.box.y0 + line.box.y1) / 2 - end
        # only a neighbour keeps a name from the end of its curve
        if abs(away) > 2 * LINE:
            beyond = (
                (line.box.y1, line.box.y1 + LINE) if away < 0 else (line.box.y0 - LINE, line.box.y0)
            )
            near = [
                o
                for o in ordered
                if o is not line and o.box.y0 < beyond[1] and o.box.y1 > beyond[0]
            ]
            assert near, (suffix, line, end)


def _key(end):
    return -np.inf if end is None else end


def _end(text):
    """The height of the end of a curve on the page, in points; None where nothing was drawn."""
    if text.arrow_patch is None:
        return None
    axes = text.axes
    _, y = (axes.transData - axes.transAxes).transform(text.xy)
    box = axes.get_position()
    return 72 * axes.figure.get_size_inches()[1] * (box.y0 + np.clip(y, 0, 1) * box.height)


def drawings(whole):
    """Every figure of a sweep, with the names that belong to its panels."""
    cases = summary(whole)
    modes = [mode for mode in ("training", "inference") if mode in set(cases["mode"])]
    short = styles.labels(dict.fromkeys(cases["series"]))
    every = [
        Counter(short[s] for s in dict.fromkeys(cases.loc[cases["mode"] == mode, "series"]))
        for mode in modes
    ]
    yield (
        figure(figures, lambda: figures.cost_figure(cases, figures.TIME, whole.request.tokens)),
        every,
    )
    yield (
        figure(figures, lambda: figures.cost_figure(cases, figures.MEMORY, whole.request.tokens)),
        every,
    )
    local = local_slopes(cases)
    if len(local.dropna(subset="slope")):
        local["expected"] = 1.0
        both = figure(
            figures,
            lambda: figures.cost_figure(cases, figures.TIME, whole.request.tokens, slopes=local),
        )
        sloped = [
            Counter(short[s] for s in dict.fromkeys(local.loc[local["mode"] == mode, "series"]))
            if len(local[local["mode"] == mode].dropna(subset="slope")) else Counter()
            for mode in modes
        ]  # fmt: skip
        yield both, every + sloped


@pytest.mark.parametrize("folder", STORED, ids=lambda path: path.name)
def test_labels_of_stored_sweeps_are_next_to_their_curves(folder):
    whole = load(folder)
    for made, names in drawings(whole):
        check(made, names)


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


# drawing is slow, so failing examples are not shrunk
@settings(
    max_examples=8,
    deadline=None,
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
def test_labels_of_any_sweep_are_next_to_their_curves(count, lengths, share, seed):
    for made, names in drawings(with_ends(count, lengths, share, seed)):
        check(made, names)


@pytest.mark.parametrize("count", [1, 26])
def test_labels_of_the_roofline_are_next_to_their_series(count):
    names = [f"mechanism_{i}" for i in range(count)]
    whole = sweep(names, lengths=(128, 2048), rounds=1, samples=1)
    cases = summary(whole)
    points = roofline(cases, roof(whole))
    made = figure(roofs, lambda: roofs.roofline_figure(points, roof(whole)))
    short = Counter(styles.labels(dict.fromkeys(cases["series"])).values())
    check(made, [short, short])
