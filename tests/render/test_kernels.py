"""The table of kernels of fused attention, and the warning about number types."""

from dataclasses import replace

import pytest

from attnbench.analysis.report import analyse
from attnbench.records import Part
from attnbench.render.conditions import warnings
from attnbench.render.page import report_files
from tests.render.test_page import rows_of
from tests.sweeps import altered, sweep

LENGTHS = (128, 512, 2048)


def noted(whole, notes):
    """The sweep with these notes on each case's measurement of memory."""
    cases = {line.case.key: line.case for line in whole.plan}
    return altered(whole, lambda run: replace(run, notes=notes(cases[run.case])), Part.MEMORY)


def by_length(case):
    if case.form == "eager":
        return {}
    kernel = "flash_attention" if case.workload.seq_len < 1000 else "attention_math"
    return {"attention_kernel": f"scaled_dot_product_{kernel}"}


def test_each_kernel_of_a_form_is_shown_with_its_lengths():
    whole = sweep(("transformer:eager", "transformer:sdpa"), lengths=LENGTHS)
    files = report_files(analyse(noted(whole, by_length)))
    names = ("form", "mode", "n", "operator")
    found = [tuple(row[name] for name in names) for row in rows_of(files["kernels.csv"])]
    kernels = (("128 to 512", "flash_attention"), ("2,048", "attention_math"))
    modes = ("training", "inference")
    assert found == [("sdpa", mode, *kernel) for mode in modes for kernel in kernels]
    each = {(row["form"], row["seq_len"]): row for row in rows_of(files["cases.csv"])}
    assert each["eager", "128"]["attention_kernel"] == ""
    assert each["sdpa", "128"]["attention_kernel"] == "scaled_dot_product_flash_attention"


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
    whole = noted(sweep(("fastformer",), lengths=LENGTHS), lambda case: {"number_types": types})
    analysis = analyse(whole)
    cases = analysis.cases.assign(dtype=dtype)
    said = [line for line in warnings(replace(analysis, cases=cases)) if "autocast" in line]
    assert len(said) == bool(others)
    assert not said or said[0].startswith(f"fastformer computed in {others}, through autocast")
