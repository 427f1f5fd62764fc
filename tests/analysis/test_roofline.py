from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from attnbench.analysis.roofline import (
    Roof,
    least_bytes,
    rates,
    roof,
    roofline,
    too_fast,
    with_shares,
)
from attnbench.analysis.summary import summary
from attnbench.records import Level, Mode, Sweep
from tests.sweeps import environment, sweep

ROOF = Roof(flops_per_s=1e11, bytes_per_s=1e10)


def case(**changes: object) -> pd.DataFrame:
    """One timed case with round numbers."""
    row = {
        "series": "a:eager",
        "form": "eager",
        "mode": "inference",
        "level": "attention",
        "seq_len": 100,
        "tokens": 1000,
        "outputs": 1000,
        "batch": 10,
        "state_bytes": np.nan,
        "width": 10,
        "parameters": 400,
        "flops": 4e9,
        "core_flops": 1e9,
        "moved_bytes": 1e8,
        "time_s": 0.1,
        "time_lo_s": 0.09,
        "time_hi_s": 0.12,
    }
    return pd.DataFrame([row | changes])


def test_the_floor_is_the_time_of_the_products_at_the_peak():
    row = roofline(case(), ROOF).iloc[0]
    assert row["floor_s"] == pytest.approx(0.04)
    assert (row["over"], row["low"], row["high"]) == pytest.approx((2.5, 2.25, 3.0))
    assert (row["bound"], row["core_share"], row["intensity"]) == ("products", 0.25, 40.0)
    assert row["rate"] == pytest.approx(4e10)


@pytest.mark.parametrize(("level", "tensors"), [("model", 1), ("attention", 1), ("core", 3)])
def test_a_time_below_that_of_reading_the_input_is_too_fast(level, tensors):
    whole = sweep(("fastformer",))
    bytes_per_s = roof(whole).bytes_per_s
    read_s = tensors * 1000 * 10 * 4 / bytes_per_s
    assert too_fast(whole, case(level=level, time_s=read_s)) == []
    assert too_fast(whole, case(level=level, time_s=read_s / 3)) == []  # from a cache
    assert too_fast(whole, case(level=level, time_s=read_s / 5)) == ["a:eager"]
    blind = replace(whole, sessions=(environment(copy_bytes=None),))
    assert too_fast(blind, case(level=level, time_s=read_s / 5)) == []


def test_training_counts_each_product_three_times():
    row = roofline(case(mode="training"), ROOF).iloc[0]
    assert row["floor_s"] == pytest.approx(0.12)


def test_bytes_set_the_bound_where_products_are_few():
    row = roofline(case(flops=1e4, core_flops=0), ROOF).iloc[0]
    # 400 parameters, 10,000 numbers in and 10,000 out, of four bytes
    assert row["floor_s"] == pytest.approx(4 * 20_400 / 1e10)
    assert row["bound"] == "bytes"


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
    assert least_bytes(case(level=level, mode=mode), 4).tolist() == [4 * numbers]


def test_a_step_reads_its_state_and_one_token_of_each_sequence():
    step = case(mode=Mode.DECODE, state_bytes=3000.0, outputs=10)
    # 400 parameters, and 10 numbers in and out of each of 10 sequences
    assert least_bytes(step, 2).tolist() == [2 * (400 + 2 * 10 * 10) + 3000]
    # the prompt is not read again
    whole = sweep(("fastformer",), machine=environment(matmul_flops=1e11, copy_bytes=1e10))
    read_s = 4 * 10 * 10 / 1e10
    assert too_fast(whole, step.assign(time_s=read_s)) == []
    assert too_fast(whole, step.assign(time_s=read_s / 5)) == ["a:eager"]


SPLITS = {"arithmetic": "3xTF32"}


def test_a_core_that_splits_its_numbers_has_a_roof_of_its_own():
    split = replace(ROOF, split_flops_per_s=4e11)
    row = roofline(case(**SPLITS), split).iloc[0]
    assert row["floor_s"] == pytest.approx(3e9 / 1e11 + 1e9 / 4e11)
    assert roofline(case(), split).iloc[0]["floor_s"] == pytest.approx(0.04)
    assert roofline(case(**SPLITS), ROOF).iloc[0]["floor_s"] == pytest.approx(0.04), "unknown"


def test_what_splits_its_numbers_raises_no_roof():
    machine = environment(device="GPU", cuda="13.0", matmul_flops=1e11, peaks={"tf32": 6e11})
    whole = sweep(("fastformer",), machine=machine)
    fast = case(time_s=0.03, series="fastformer:eager")
    assert roof(whole).split_flops_per_s == 2e11
    assert roof(whole, fast).raised
    assert not roof(whole, fast.assign(**SPLITS)).raised


def test_rates_are_shares_of_measured_and_of_nominal_peaks():
    nominal = {"float32": 4e11, "copy": 1e11}
    whole = sweep(("fastformer",), machine=environment(matmul_flops=1e11, copy_bytes=1e10))
    unknown = with_shares(case(), whole).iloc[0]
    assert (unknown["flops_share"], unknown["bytes_share"]) == pytest.approx((0.4, 0.1))
    assert unknown[["nominal_flops_share", "nominal_bytes_share"]].isna().all()
    machine = replace(whole.sessions[0], nominal=nominal)
    stated = with_shares(case(mode="training"), replace(whole, sessions=(machine,))).iloc[0]
    assert stated["nominal_flops_share"] == pytest.approx(0.3), "in three passes"
    assert stated["nominal_bytes_share"] == pytest.approx(0.01)
    uncounted = with_shares(case(moved_bytes=np.nan), whole).iloc[0]
    assert uncounted["bytes_share"] == pytest.approx(4 * 20_400 / 0.1 / 1e10)


def test_no_case_of_a_plausible_sweep_beats_its_floor():
    whole = sweep(machine=environment(matmul_flops=1e12, copy_bytes=1e11))
    found = roofline(summary(whole), roof(whole))
    assert len(found) == 57
    assert (found["over"] > 1).all()


def test_of_several_sessions_the_fastest_peak_counts():
    slow, fast = environment(matmul_flops=1e10), environment(copy_bytes=2e10)
    whole = replace(sweep(lengths=(128,)), sessions=(slow, fast))
    assert roof(whole) == Roof(flops_per_s=9.5e10, bytes_per_s=2e10)


def test_a_smaller_dtype_has_a_lower_bound_of_bytes():
    whole = sweep(lengths=(128,))
    halved = replace(whole, request=replace(whole.request, dtype="bfloat16"))
    assert (roof(whole).item_bytes, roof(halved).item_bytes) == (4, 2)
    few = case(flops=1e4, core_flops=0)
    four, two = (roofline(few, replace(ROOF, item_bytes=n)).iloc[0]["floor_s"] for n in (4, 2))
    assert two == pytest.approx(four / 2)


def blind(whole: Sweep) -> list[Sweep]:
    newer = replace(whole.request, dtype="float8")
    return [
        replace(whole, request=newer),
        replace(whole, sessions=()),
        replace(whole, sessions=(environment(copy_bytes=None),)),
    ]


def test_without_a_peak_there_is_no_roof():
    assert [roof(whole) for whole in blind(sweep(lengths=(128,)))] == [None] * 3


def lengths(core_rate: float, rest_rate: float, noise: float = 0.0) -> pd.DataFrame:
    """Ten lengths of softmax attention whose two parts run at known rates."""
    rng = np.random.default_rng(0)
    rows = []
    for n in 2 ** np.arange(7, 17):
        core, rest = 1e6 * n, 5e8
        time = (core / core_rate + rest / rest_rate) * np.exp(noise * rng.standard_normal())
        rows.append(case(seq_len=n, flops=core + rest, core_flops=core, time_s=time))
    return pd.concat(rows)


def test_the_rates_of_core_and_rest_are_recovered():
    row = rates(lengths(2e10, 8e10)).iloc[0]
    assert (row["core"], row["rest"]) == pytest.approx((2e10, 8e10))
    row = rates(lengths(2e10, 8e10, noise=0.05)).iloc[0]
    assert row["core_low"] < 2e10 < row["core_high"]
    assert row["rest_low"] < 8e10 < row["rest_high"]


def test_parts_that_grow_alike_are_not_separated():
    flat = lengths(2e10, 8e10).assign(flops=4e9, core_flops=1e9)
    assert rates(flat).empty
    assert rates(lengths(2e10, 8e10)[:3]).empty
    assert set(rates(summary(sweep()))["series"]) == {"transformer:eager"}
