"""The hook of the build that makes the charting library, without what only builds have."""

import gzip
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import attnbench

FILE = Path(attnbench.__file__).parent / "report" / "web" / "bundle.py"


@pytest.fixture
def bundle(monkeypatch, tmp_path):
    """The file as a module, which writes into another folder."""
    interface = ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("bundle", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "BUNDLE", tmp_path / "vega.js.gz")
    return module


def test_the_bundle_is_made_with_its_licences_and_the_same_each_time(bundle, monkeypatch):
    made = SimpleNamespace(javascript_bundle=lambda code: f"library; {code}")
    monkeypatch.setitem(sys.modules, "vl_convert", made)
    bundle.Bundle().initialize("standard", {})
    first = bundle.BUNDLE.read_bytes()
    text = gzip.decompress(first).decode()
    assert text == bundle.NOTICE + "library; window.vegaEmbed = vegaEmbed;"
    assert "BSD-3-Clause and ISC" in text
    bundle.BUNDLE.unlink()
    bundle.Bundle().initialize("standard", {})
    assert bundle.BUNDLE.read_bytes() == first


def test_only_a_bundle_of_another_release_is_made_again(bundle, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)  # which cannot be imported
    assert bundle.Bundle().dependencies() == [bundle.SOURCE]
    with pytest.raises(ImportError):
        bundle.Bundle().initialize("standard", {})
    bundle.BUNDLE.write_bytes(gzip.compress(f"{bundle.NOTICE}library".encode()))
    assert bundle.Bundle().dependencies() == []
    bundle.Bundle().initialize("standard", {})
    bundle.BUNDLE.write_bytes(gzip.compress(b"/*! an older release */"))
    assert bundle.Bundle().dependencies() == [bundle.SOURCE]
