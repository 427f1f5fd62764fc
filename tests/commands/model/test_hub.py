"""Models on the Hub: what is fetched of one, and what is said where that cannot be."""

import sys
from types import SimpleNamespace

import pytest

from attnbench.commands.model.hub import fetch
from attnbench.errors import UsageError


def hub(monkeypatch, *missing):
    """The package of the Hub without some files; the list of those that were asked for."""
    asked = []

    def download(model, name):
        asked.append((model, name))
        if name in missing:
            raise OSError("no such file\nof this model")
        return f"/cache/{name}"

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download))
    return asked


def test_a_configuration_is_fetched_with_the_index_of_its_weights(monkeypatch):
    asked = hub(monkeypatch)
    assert str(fetch("owner/model")) == "/cache/config.json"
    assert asked == [
        ("owner/model", "config.json"),
        ("owner/model", "model.safetensors.index.json"),
    ]


def test_a_model_of_one_file_has_no_index(monkeypatch):
    hub(monkeypatch, "model.safetensors.index.json")
    assert str(fetch("owner/model")) == "/cache/config.json"


def test_what_cannot_be_fetched_is_said_in_one_line(monkeypatch):
    hub(monkeypatch, "config.json")
    with pytest.raises(UsageError, match="'owner/model' cannot be fetched from the") as caught:
        fetch("owner/model")
    assert len(str(caught.value).splitlines()) == 1
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match=r"there is no file 'owner/model'; .* 'attnbench\[hub\]'"):
        fetch("owner/model")
