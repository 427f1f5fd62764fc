"""The contents of a figure file: each line of text, its size and its position on the page."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from unittest import mock
from xml.etree import ElementTree

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath
from matplotlib.transforms import Bbox

from attnbench.render import panels
from attnbench.render.panels import Ending, Panels

NUMBER = r"(-?[\d.]+)"


class Line(NamedTuple):
    """A horizontal line of text, its box from the lower left corner of the page, and its size."""

    text: str
    box: Bbox
    size: float


class Page(NamedTuple):
    """The lines of a page and its size."""

    lines: list[Line]
    width: float
    height: float


class Drawn(NamedTuple):
    """A figure with the rows of its panels and their legends."""

    figure: Figure
    panels: Panels
    legends: Sequence[Sequence[Ending]]


def drawn(draw: Callable[[], Figure]) -> Drawn:
    """The figure that `draw` makes, with what it asked for."""
    arranged, taken = Panels.arranged, []

    def spied(self: Panels, legends: Sequence[Sequence[Ending]], *notes: object) -> Figure:
        taken.append((self, legends))
        return arranged(self, legends, *notes)

    with mock.patch.object(Panels, "arranged", spied):
        figure = draw()
    return Drawn(figure, *taken[0])


BEYOND = "–"  # stands for every letter beyond Latin-1, which a PDF's text does not name


def pages(made: Figure) -> Iterator[tuple[str, Page]]:
    """The page of the figure in each format."""
    yield "png", _png(made)
    yield "svg", _svg(panels.saved(made, "svg").decode())
    with matplotlib.rc_context({"pdf.compression": 0}):
        yield "pdf", _pdf(panels.saved(made, "pdf"))


def _png(made: Figure) -> Page:
    """Measured by the renderer that draws the pixels, at their resolution."""
    canvas = FigureCanvasAgg(made)
    canvas.draw()
    renderer, points = canvas.get_renderer(), made.dpi / 72
    lines = []
    for text in made.findobj(matplotlib.text.Text):
        if not (text.get_visible() and text.get_text()) or text.get_rotation():
            continue
        box = text.get_window_extent(renderer)
        parts = text.get_text().split("\n")
        step = box.height / len(parts)
        for i, part in enumerate(parts):
            top = box.y1 - i * step
            corners = [box.x0 / points, (top - step) / points, box.x1 / points, top / points]
            lines.append(Line(part, Bbox.from_extents(*corners), text.get_fontsize()))
    return Page(lines, *(72 * made.get_size_inches()))


def _svg(content: str) -> Page:
    root = ElementTree.fromstring(content)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    lines = []
    for node in root.iter("{http://www.w3.org/2000/svg}text"):
        if "rotate(-90 " in node.attrib.get("transform", ""):
            continue
        size = float(re.search(rf"font-size: {NUMBER}px", node.attrib["style"])[1])
        moved = re.search(rf"translate\({NUMBER} {NUMBER}\)", node.attrib.get("transform", ""))
        x, y = moved.groups() if moved else (node.attrib["x"], node.attrib["y"])
        anchored = re.search(r"text-anchor: (\w+)", node.attrib["style"])
        anchor = anchored[1] if anchored else "start"
        lines.append(_line("".join(node.itertext()), float(x), height - float(y), size, anchor))
    return Page(lines, width, height)


def _pdf(content: bytes) -> Page:
    _, _, width, height = map(float, re.search(rb"/MediaBox \[([^]]*)\]", content)[1].split())
    block = re.compile(
        rb"(?:(\S+) \S+ \S+ \S+ (\S+) (\S+) cm\s+)?"
        rb"BT\s+/\S+ (\S+) Tf\s+(?:\S+ \S+ \S+ \S+ )?(\S+) (\S+) T[dm]\s(.*?)\bET\b",
        re.S,
    )
    lines = []
    for found in block.finditer(content):
        turned, x0, y0, size, x, y = (float(number or 0) for number in found.groups()[:6])
        if found[1] and not turned:
            continue
        raw = b"".join(re.findall(rb"\(((?:\\.|[^\\()])*)\)", found[7], re.S))
        text = re.sub(rb"\\(.)", rb"\1", raw, flags=re.S).decode("utf-16-be")
        text = text.replace("\0", BEYOND)
        lines.append(_line(text, x0 + x, y0 + y, size))
    return Page(lines, width, height)


def _line(text: str, x: float, base: float, size: float, anchor: str = "start") -> Line:
    width, height, descent = TextToPath().get_text_width_height_descent(
        text, FontProperties(size=size), ismath=False
    )
    left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return Line(text, Bbox.from_bounds(left, base - descent, width, height), size)
