"""Sweeps of several widths, heads, number types or batches: their parts are never mixed."""

from dataclasses import replace

import pytest

from attnbench.analysis.report import analyse, variant, variants
from attnbench.errors import UsageError
from attnbench.records import Variant
from attnbench.store.journal import load
from tests.store.recorded import CROSSED
from tests.sweeps import sweep

NAMES = ["D16-float32", "D16-bfloat16", "D32-float32", "D32-bfloat16"]


@pytest.fixture(scope="module")
def crossed():
    return load(CROSSED)


def test_the_parts_are_the_whole_and_share_nothing(crossed):
    parts = variants(crossed)
    assert list(parts) == NAMES
    keys = [planned.case.key for part in parts.values() for planned in part.plan]
    assert sorted(keys) == sorted(planned.case.key for planned in crossed.plan)
    assert sum(len(part.runs) for part in parts.values()) == len(crossed.runs)
    for part in parts.values():
        cases = {planned.case.key: planned.case.workload for planned in part.plan}
        found = {(w.width, w.dtype) for w in cases.values()}
        assert found == {(part.request.width, part.request.dtype)}
        assert {run.case for run in part.runs} <= cases.keys()


def test_each_part_is_analysed_alone(crossed):
    for part in variants(crossed).values():
        analysis = analyse(part)
        width, dtype = part.request.width, part.request.dtype
        assert set(analysis.cases["width"]) == {width}
        assert set(analysis.cases["dtype"]) == {dtype}
        assert set(analysis.speedups["series"]) <= set(analysis.cases["series"])


def test_the_whole_is_not_analysed(crossed):
    with pytest.raises(UsageError, match=r"has several variants, D16-float32, .*--at"):
        analyse(crossed)
    with pytest.raises(UsageError, match="choose one with --at"):
        variant(crossed, "D64")
    assert variant(crossed, "D32-bfloat16").request.width == 32


def test_a_peak_of_another_number_type_is_no_bound(crossed):
    parts = variants(crossed)
    assert analyse(parts["D32-float32"]).cases["over_bound"].notna().any()
    assert analyse(parts["D32-bfloat16"]).cases["over_bound"].isna().all()


def test_a_sweep_of_one_variant_has_no_name():
    whole = sweep(("fastformer",), lengths=(128,))
    assert variants(whole) == {"": whole}
    assert variant(whole, None) is whole
    with pytest.raises(UsageError, match="has no variants; leave out --at"):
        variant(whole, "D16")


def test_batches_are_told_apart():
    whole = sweep(("fastformer",), lengths=(128,))
    (planned, *_) = whole.plan
    w = planned.case.workload
    plan = tuple(
        replace(planned, case=replace(planned.case, workload=replace(w, batch=batch)))
        for batch in (1, 4)
    )
    several = tuple(
        Variant(width=w.width, heads=w.heads, dtype=w.dtype, batch=batch) for batch in (1, 4)
    )
    request = replace(whole.request, batch=1, variants=several)
    parts = variants(replace(whole, request=request, plan=plan, runs=()))
    assert {name: [p.case.workload.batch for p in part.plan] for name, part in parts.items()} == {
        "B1": [1],
        "B4": [4],
    }
