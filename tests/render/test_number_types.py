"""What runs note of kernels and number types, in the CSV file and in warnings."""

from dataclasses import replace

import pytest

from attnbench.analysis.report import analyse
from attnbench.records import Part
from attnbench.render.conditions import warnings
from tests.sweeps import altered, sweep


@pytest.mark.parametrize(
    ("dtype", "types", "others"),
    [
        ("float32", "float32", ""),
        ("float32", "bfloat16, float32", "bfloat16"),
        ("float32", "float16, float32, float8_e4m3fn", "float16, float8_e4m3fn"),
        ("float32", "float32, float64", ""),
        ("bfloat16", "bfloat16, float32", ""),
        ("bfloat16", "bfloat16, float16", "float16"),
    ],
)
def test_another_number_type_is_a_warning_unless_it_is_wider(dtype, types, others):
    notes = {"number_types": types, "attention_kernel": "flash"}
    whole = sweep(("fastformer",), lengths=(128, 512, 2048))
    analysis = analyse(altered(whole, lambda run: replace(run, notes=notes), Part.MEMORY))
    assert {*analysis.cases["attention_kernel"]} == {"flash"}
    cases = analysis.cases.assign(dtype=dtype)
    said = [line for line in warnings(replace(analysis, cases=cases)) if "autocast" in line]
    assert len(said) == bool(others)
    assert not said or said[0].startswith(f"fastformer computed in {others}, through autocast")
