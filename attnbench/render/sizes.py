"""The sizes in which figures are printed; loads no drawing library."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from attnbench.records import FigureSize


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """The measures of a size. All that is not the width is in units of the type, so it scales.

    `width`: inches. `type`: points of the labels; ticks and notes are a little smaller, titles
    larger. `height`: least height of a panel's axes. `stacked`: one panel to a row.
    """

    width: float
    type: float
    height: float
    stacked: bool = False

    @property
    def inches(self) -> float:
        """The type size in inches."""
        return self.type / 72


# The narrowest column of the usual two-column styles (ICML), and the narrowest text width of the
# one-column ones (NeurIPS): no style has to shrink a figure below its type size.
SHEETS: Mapping[FigureSize, Sheet] = MappingProxyType({
    FigureSize.COLUMN: Sheet(width=3.25, type=6.5, height=15, stacked=True),
    FigureSize.TEXT: Sheet(width=5.5, type=7.0, height=19),
    FigureSize.SLIDE: Sheet(width=12.0, type=15.0, height=19),
})  # fmt: skip
