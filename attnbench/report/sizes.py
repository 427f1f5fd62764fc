"""Where figures and tables of a report are meant to stand: how wide they are, and their type.

Loads no drawing library.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class ReportSize(StrEnum):
    """The place that a report is written for."""

    COLUMN = "column"
    PAGE = "page"
    TEXT = "text"
    SLIDES = "slides"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The measures of figures and tables in one place. No type is below 7 points.

    width: of a figure, in inches. No usual style has to shrink it below its type size.
    type: of titles less 1 point, labels and legends, in points.
    small: of ticks and notes, in points.
    height: of the axes of one panel with its title, ticks and label, in points.
    stacked: whether panels stand one below the other with the legend below them, not side by side
        with the legend beside them.
    table: the width that a LaTeX table may take, in points of TeX (72.27 to the inch).
    table_height: the height that a LaTeX table may take with its caption on the same page.
    guides: whether figures show how steep costs are that grow as N and as N².
    """

    width: float
    type: float = 7.0
    small: float = 7.0
    height: float = 177.0
    stacked: bool = False
    table: float
    table_height: float = 580.0
    guides: bool = False

    @property
    def scale(self) -> float:
        """How much stronger lines, marks and gaps are than those that stand beside 7 points."""
        return self.type / 7.0


# `column` and `text` are the narrowest of usual two-column styles (ICML, IEEE, ACL), `page` is the
# text of a usual one-column style (NeurIPS). Slides are 10 in wide, with type that is read from the
# last row; their tables fit the text of a wide slide of beamer (398 by 230 pt).
LAYOUTS: Mapping[ReportSize, Layout] = MappingProxyType({
    ReportSize.COLUMN: Layout(width=3.3, height=140.0, stacked=True, table=234.0),
    ReportSize.PAGE: Layout(width=5.5, table=396.0),
    ReportSize.TEXT: Layout(width=6.8, type=8.0, height=190.0, table=486.0),
    ReportSize.SLIDES: Layout(
        width=10.0, type=14.0, small=12.0, height=330.0, table=396.0, table_height=200.0
    ),
})  # fmt: skip
