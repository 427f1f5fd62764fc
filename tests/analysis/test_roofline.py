"""Times over the bound of the machine, and shares of its peak."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from attnbench.analysis.roofline import least_bytes, too_fast, with_bounds
from attnbench.analysis.summary import summary
from attnbench.records import Level, Mode
from tests.sweeps import environment, sweep

MACHINE = environment(matmul_flops=1e11, copy_bytes=1e10)
WHOLE = sweep(("fastformer",), machine=MACHINE)


def case(**changes: object) -> pd.DataFrame:
    """One timed case with round numbers."""
    row = {
        "series": "a:eager",
        "mode": "inference",
        "level": "attention",
        "dtype": "float32",
        "outputs": 1000,
        "width": 10,
        "parameters": 400,
        "state_bytes": np.nan,
        "flops": 4e9,
        "core_flops": 1e9,
        "time_s": 0.1,
        "arithmetic": "",
    }
    return pd.DataFrame([row | changes])


def bounds(cases: pd.DataFrame, **machine: object) -> tuple[float, float]:
    sessions = (replace(MACHINE, **machine),)
    row = with_bounds(cases, replace(WHOLE, sessions=sessions)).iloc[0]
    return row["over_bound"], row["peak_share"]


def test_the_bound_is_the_time_of_the_products_at_the_peak():
    assert bounds(case()) == pytest.approx((2.5, 0.4))
    assert bounds(case(mode="training", time_s=0.3)) == pytest.approx((2.5, 0.4)), "three passes"


def test_bytes_set_the_bound_where_products_are_few():
    # 400 parameters, 10,000 numbers in and 10,000 out, of four bytes
    assert bounds(case(flops=1e4, core_flops=0))[0] == pytest.approx(0.1 / (81_600 / 1e10))
    assert bounds(case(flops=1e4, core_flops=0, dtype="bfloat16"), peaks={"bfloat16": 1e11})[
        0
    ] == pytest.approx(0.1 / (40_800 / 1e10))


@pytest.mark.parametrize(
    ("level", "mode", "numbers"),
    [
        (Level.ATTENTION, Mode.TRAINING, 6 * 400 + 20_000),
        (Level.MODEL, Mode.INFERENCE, 400 + 10_000),
        (Level.CORE, Mode.INFERENCE, 40_000),
        (Level.CORE, Mode.TRAINING, 40_000),
    ],
)
def test_least_bytes_are_those_that_must_be_read_and_written(level: str, mode: str, numbers: int):
    assert least_bytes(case(level=level, mode=mode)).tolist() == [4 * numbers]
    step = case(mode=Mode.DECODE, state_bytes=3000.0, outputs=10)
    # 400 parameters, a state, and 10 numbers in and out of each of 10 sequences
    assert least_bytes(step).tolist() == [4 * (400 + 2 * 10 * 10) + 3000]


def test_a_case_that_beats_the_peak_becomes_the_peak_unless_it_is_faked():
    two = pd.concat([case(time_s=0.02), case()], ignore_index=True)
    assert with_bounds(two, WHOLE)["over_bound"].tolist() == pytest.approx([1, 5])
    faked = pd.concat([case(time_s=1e-9), case()], ignore_index=True)
    assert with_bounds(faked, WHOLE)["peak_share"][1] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("row", "machine", "found"),
    [
        ({}, {"matmul_flops": None}, (np.nan, np.nan)),
        ({}, {"copy_bytes": None}, (np.nan, 0.4)),
        ({"dtype": "float8"}, {}, (np.nan, np.nan)),
        ({"flops": np.nan}, {}, (np.nan, np.nan)),
        ({"arithmetic": "3xTF32"}, {}, (np.nan, np.nan)),
    ],
)
def test_what_is_unknown_stays_so(row, machine, found):
    assert bounds(case(**row), **machine) == pytest.approx(found, nan_ok=True)


@pytest.mark.parametrize(("level", "tensors"), [("model", 1), ("attention", 1), ("core", 3)])
def test_a_time_below_that_of_reading_the_input_is_too_fast(level, tensors):
    read_s = tensors * 1000 * 10 * 4 / 1e10
    for share, found in ((1, []), (1 / 3, []), (1 / 5, ["a:eager"])):  # a third: from a cache
        assert too_fast(case(level=level, time_s=read_s * share), WHOLE) == found
    blind = replace(WHOLE, sessions=(environment(copy_bytes=None),))
    assert too_fast(case(level=level, time_s=read_s / 5), blind) == []


def test_no_case_of_a_plausible_sweep_beats_its_bound():
    found = summary(sweep(machine=environment(matmul_flops=1e12, copy_bytes=1e11)))
    timed = found[found["time_s"].notna()]
    assert (timed["over_bound"] > 1).all()
    assert timed["peak_share"].between(0, 1).all()
