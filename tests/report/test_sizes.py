"""The places that a report is written for: their type can be read, and their tables fit."""

from attnbench.report.sizes import LAYOUTS, ReportSize


def test_every_place_has_a_layout_with_type_of_at_least_seven_points():
    assert {*LAYOUTS} == {*ReportSize}
    for layout in LAYOUTS.values():
        assert layout.type >= layout.small >= 7


def test_a_table_is_as_wide_as_a_figure_of_its_place_but_on_slides():
    for place, layout in LAYOUTS.items():
        points = 72.27 * layout.width
        assert (0.97 * points < layout.table < points) == (place is not ReportSize.SLIDES)


def test_lines_grow_with_the_type():
    assert LAYOUTS[ReportSize.COLUMN].scale == 1
    assert LAYOUTS[ReportSize.SLIDES].scale == 2
