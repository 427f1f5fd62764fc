"""The shipped tables of published numbers."""

from importlib.resources import files

import pytest

from attnbench.claims.published import sources, table

# files that are not tables of measurements
OTHERS = {"claims.csv", "complexity.csv", "overlays.csv"}
TABLES = sorted(
    path.name.removesuffix(".csv")
    for path in files("attnbench").joinpath("published").iterdir()
    if path.name.endswith(".csv") and path.name not in OTHERS
)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_has_its_columns_and_numbers(name):
    frame = table(name)
    columns = "source table hardware mechanism form length metric value note"
    assert list(frame.columns) == columns.split()
    assert frame["value"].dtype == frame["length"].dtype == float
    assert frame["value"].notna().any()


def test_overlays_name_tables_and_metrics_that_are_shipped():
    assert len(sources()) == 9
    for source in sources():
        assert (table(source.table)["metric"] == source.metric).any()
