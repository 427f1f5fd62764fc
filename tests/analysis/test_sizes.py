"""Sweeps that cross widths, heads, number types or batches: sizes are part of series' names."""

from dataclasses import replace
from itertools import combinations

import pytest

from attnbench.analysis.report import analyse
from attnbench.analysis.statistics.curves import series_names
from attnbench.commands.compare.analysis import compare
from attnbench.errors import UnknownMechanism
from attnbench.records import Name
from attnbench.records.storage.journal import load
from attnbench.report.page import report_tables
from tests.records.storage.recorded import CROSSED
from tests.sweeps import sweep

NAMES = ["D=16 fp32", "D=16 bf16", "D=32 fp32", "D=32 bf16"]


@pytest.fixture(scope="module")
def crossed():
    return analyse(load(CROSSED))


def of(series):
    return Name.read(series).sizes


def test_what_differs_is_part_of_the_names(crossed):
    cases = crossed.cases
    assert [*dict.fromkeys(cases["sizes"])] == NAMES
    assert [*cases["series"].map(of)] == [*cases["sizes"]]
    assert "transformer:sdpa D=32 bf16" in set(cases["series"])
    whole = sweep(("fastformer", "transformer"), lengths=(128, 256))
    assert set(series_names(whole.plan).values()) == {"fastformer:eager", "transformer:eager"}
    assert set(analyse(whole).cases["sizes"]) == {""}
    bounds = cases.set_index("dtype")["over_bound"]
    assert bounds["float32"].notna().all()
    assert bounds["bfloat16"].isna().all(), "the peak of another number type is no bound"


@pytest.mark.parametrize(
    ("field", "values", "sizes"),
    [("batch", (1, 4), ["B=1", "B=4"]), ("heads", (2, 8), ["H=2", "H=8"])],
)
def test_each_size_is_told_apart_and_a_batch_that_follows_the_length_is_none(field, values, sizes):
    whole = sweep(("fastformer",), lengths=(128, 256))
    assert len({planned.case.workload.batch for planned in whole.plan}) == 2
    assert set(series_names(whole.plan).values()) == {"fastformer:eager"}
    (planned, *_) = whole.plan
    w = planned.case.workload
    plan = [
        replace(planned, case=replace(planned.case, workload=replace(w, **{field: value})))
        for value in values
    ]
    assert [*map(of, series_names(plan).values())] == sizes


def test_only_series_of_equal_sizes_are_compared(crossed):
    assert len(crossed.speedups) == len(crossed.cases) / 2
    assert {of(base) for base in crossed.baselines} == set(NAMES)
    assert all(base.startswith("transformer") for base in crossed.baselines)
    pairs = [(a, b) for _, a, b, _ in crossed.standings.pairs]
    pairs += [*zip(crossed.crossovers["series"], crossed.crossovers["other"], strict=True)]
    pairs += [(one.first, t.series) for one in crossed.answers.fastest for t in one.ties]
    assert {of(a) == of(b) for a, b in pairs} == {True}
    for a, b in combinations(dict.fromkeys(crossed.cases["series"]), 2):
        raced = crossed.ratios.ratio(a, b, "inference", 33)
        assert (raced is not None) == (of(a) == of(b)), (a, b)
    assert len(crossed.ratios.certainties) == 2 * len(NAMES)
    assert len(crossed.answers.fastest) == 2 * len(NAMES)


def test_the_series_to_compare_with_may_be_named_with_or_without_sizes():
    whole = load(CROSSED)
    for name in ("fastformer", "transformer", "transformer:sdpa"):
        assert {of(base) for base in analyse(whole, name).baselines} == set(NAMES)
    one = analyse(whole, "transformer:sdpa D=32 bf16")
    assert one.baselines == ("transformer:sdpa D=32 bf16",)
    assert {of(series) for series in one.speedups["series"]} == {"D=32 bf16"}
    with pytest.raises(UnknownMechanism):
        analyse(whole, "transformer:sdpa D=64")


def test_one_table_has_all(crossed):
    tables = {table.name: table for table in report_tables(crossed)}
    rows = tables["latency_inference"].rows
    assert [row[0].text for row in rows] == [*dict.fromkeys(crossed.cases["series"])]
    assert len(tables["answer_inference"].rows) == len(rows) == 8
    assert "Compared with Transformer of the same sizes" in tables["answer_inference"].note
    assert tables["speedup_inference"].title == "Speed-up over Transformer in inference"
    assert {row[2].text for row in tables["digits"].rows} == set(NAMES)
    assert "float32 and bfloat16" in tables["digits"].title


def test_cases_of_two_sweeps_are_matched_by_their_sizes(crossed):
    rows = compare(crossed, crossed).rows
    assert not rows.duplicated(["case", "metric"]).any()
    assert set(rows["ratio"].dropna()) == {1.0}
    part = replace(crossed.sweep, plan=tuple(
        planned for planned in crossed.sweep.plan
        if (planned.case.workload.width, planned.case.workload.dtype) == (16, "float32")
    ))  # fmt: skip
    rows = compare(analyse(part), crossed).rows
    both = rows[rows["first"].notna() & rows["second"].notna()]
    assert set(both["series"]) == set(analyse(part).cases["series"])
