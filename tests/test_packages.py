"""Modules of public packages, each wrapped in a few lines, are measured and not accused."""

import ast
from pathlib import Path

import pytest

import attnbench

FILE = Path(__file__).with_name("data") / "packages" / "modules.py"
MODULES = tuple(
    one.name
    for one in ast.parse(FILE.read_text()).body
    if isinstance(one, ast.FunctionDef | ast.ClassDef)
)


@pytest.mark.long
def test_modules_of_packages_are_measured_and_not_accused(tmp_path):
    assert len(MODULES) >= 10
    sweep = attnbench.sweep(
        models=[f"{FILE}:{name}" for name in MODULES],
        lengths=[128, 512],
        tokens=1024,
        width=64,
        heads=4,
        rounds=1,
        budget="20m",
        out=tmp_path / "packages",
    )
    cases = sweep.cases
    assert set(cases["outcome"]) == {"ok"}, cases[["series", "outcome", "cause"]]
    assert cases["time_s"].notna().all()
    assert len(cases) == 4 * len(MODULES)
    assert set(cases["suspect"]) == {""}, cases[["series", "suspect"]]
