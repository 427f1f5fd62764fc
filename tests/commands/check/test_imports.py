"""Where a side finds its code: folders of the nearest project, and paths that lead elsewhere."""

import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.commands.check.imports import places
from attnbench.measuring.server import in_place_of, redirect

PROJECTS = [
    ("pyproject.toml", "[tool.setuptools]\npackage-dir = {'' = 'lib'}\n"),
    ("pyproject.toml", "[tool.setuptools.packages.find]\nwhere = ['lib']\n"),
    ("pyproject.toml", "[tool.hatch.build.targets.wheel]\npackages = ['lib/pack']\n"),
    ("pyproject.toml", "[[tool.poetry.packages]]\ninclude = 'pack'\nfrom = 'lib'\n"),
    ("pyproject.toml", "[tool.pdm.build]\npackage-dir = 'lib'\n"),
    ("pyproject.toml", "[tool.maturin]\npython-source = 'lib'\n"),
    ("pyproject.toml", "[tool.uv.build-backend]\nmodule-root = 'lib'\n"),
    ("setup.cfg", "[options]\npackage_dir =\n    = lib\n"),
    ("setup.cfg", "[options.packages.find]\nwhere = lib\n"),
]


@pytest.mark.parametrize(("file", "text"), PROJECTS)
def test_packages_are_found_where_the_build_tool_finds_them(file, text, tmp_path):
    project = tmp_path / "packages" / "b"
    (project / "lib").mkdir(parents=True)
    (project / "inner").mkdir()
    (project / file).write_text(text)
    assert places(tmp_path, "packages/b")[0] == "packages/b/lib"
    assert places(tmp_path, "packages/b/inner")[:2] == ["packages/b/lib", "packages/b"]
    assert places(tmp_path) == [""]


@given(st.text())
def test_no_text_of_a_project_ends_in_an_error_or_leads_elsewhere(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp() / "project"
    folder.mkdir(exist_ok=True)
    for content in (text, f"[tool.poetry]\npackages = [{text!r}]", "[tool]\nsetuptools = 3"):
        (folder / "pyproject.toml").write_text(content, errors="replace")
        assert places(folder) == [""]


def test_a_project_cannot_lead_out_of_the_tree(tmp_path):
    (tmp_path / "repo").mkdir()
    text = "[tool.setuptools.packages.find]\nwhere = ['..', '/']\n"
    (tmp_path / "repo" / "pyproject.toml").write_text(text)
    assert places(tmp_path / "repo") == [""]


def test_paths_into_head_lead_into_the_same_folder_of_base(tmp_path, monkeypatch):
    head, base = tmp_path / "head", tmp_path / "base"
    for tree in (head, base):
        (tree / "packages" / "a").mkdir(parents=True)
    inside = head / ".venv" / "lib" / "site-packages"
    for path, expected in (
        (str(head / "packages" / "a"), str(base / "packages" / "a")),
        (str(base / "packages"), str(base / "packages")),
        (str(inside), str(inside)),
        ("/elsewhere", "/elsewhere"),
    ):
        assert in_place_of(path, str(head), str(base)) == expected
    finder = SimpleNamespace(MAPPING={"a": str(head / "packages" / "a")}, NAMESPACES={})
    monkeypatch.setitem(sys.modules, "__editable___a_finder", finder)
    monkeypatch.setattr(sys, "path", [str(head), "/elsewhere"])
    monkeypatch.setenv("PYTHONPATH", f"{head}:/elsewhere")
    redirect(str(head), str(base))
    assert sys.path == [str(base), "/elsewhere"]
    assert {"a": str(base / "packages" / "a")} == finder.MAPPING
