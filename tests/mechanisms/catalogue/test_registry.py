"""Cards by name, file or path: what is found, what is suggested, and what runs no code."""

import sys

import pytest

from attnbench.errors import UnknownMechanism
from attnbench.mechanisms.catalogue import registry
from attnbench.mechanisms.catalogue.registry import (
    FEEDS,
    built_in,
    card,
    decodes,
    is_built_in,
    module_of,
    names,
    package_forms,
    unknown_name_message,
)


def test_a_mechanism_is_found_by_its_file():
    files = {file.stem for file in (registry.PACKAGE / "mechanisms").glob("*.py")} - {"__init__"}
    assert built_in() == files
    assert {*names()} >= files
    assert list(names()) == sorted(names())
    for name in ("transformer", "feed_forward"):
        assert "eager" in card(name).forms


def test_feed_forwards_are_cards_and_no_mechanisms():
    assert not {*FEEDS} & {*names()}
    assert all(is_built_in(name) for name in FEEDS)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("linformer", True),
        ("stack(3*mamba2+grouped_query)", True),
        ("stack(mamba2+mine.py:It)", False),
        ("mine.py:It", False),
    ],
)
def test_a_stack_is_of_this_package_if_all_its_layers_are(name, own):
    assert is_built_in(name) is own


@pytest.mark.parametrize("name", ["transformer", "retention", "fnet", "reformer"])
def test_what_decodes_is_read_without_running_its_card(name):
    assert decodes(name) is not bool(card(name).no_decode_reason)
    assert not decodes("mine.py:It")


def test_forms_of_packages_stand_beside_those_of_a_mechanism():
    forms = package_forms("grouped_query")
    assert {*forms} >= {"transformers"}
    assert card("grouped_query").forms["transformers"] is forms["transformers"]
    assert package_forms("linformer") == {}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("linfromer", "did you mean linformer"),
        ("delta", "did you mean gated_delta_net or kimi_delta?"),
        ("xyzzy", "attnbench models lists them"),
    ],
)
def test_an_unknown_name_suggests_the_nearest_or_says_where_all_are(name, said):
    with pytest.raises(UnknownMechanism) as raised:
        card(name)
    assert str(raised.value).startswith(f"unknown mechanism {name!r}; {said}")


def test_what_is_known_of_another_kind_is_listed():
    message = unknown_name_message("q", ("eager", "sdpa"), "form of transformer")
    assert message == "unknown form of transformer 'q'; known: eager, sdpa"


@pytest.fixture
def path(monkeypatch):
    """The import path as it was, afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.usefixtures("path")
def test_a_file_is_run_once_and_imports_what_stands_beside_it(tmp_path):
    (tmp_path / "beside_it.py").write_text("value = 7\n")
    file = tmp_path / "mine.py"
    file.write_text("from beside_it import value\nruns = []\n")
    module = module_of(file)
    assert (module.value, module_of(file)) == (7, module)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.py").write_text("value = 8\n")
    assert module_of(other / "mine.py").value == 8, "of the same name in another folder"


@pytest.mark.usefixtures("path")
def test_a_file_that_fails_may_be_loaded_again(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("raise ValueError('no')\n")
    with pytest.raises(ValueError, match="no"):
        module_of(file)
    file.write_text("value = 12345\n")
    assert module_of(file).value == 12345


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("Atention", "unknown name in .*mine.py 'Atention'; did you mean Attention?"),
        ("broken", "cannot be loaded: ZeroDivisionError: division by zero"),
    ],
)
def test_what_a_file_lacks_or_raises_is_one_line(attribute, said, tmp_path):
    file = tmp_path / "mine.py"
    text = "1 / 0\n" if attribute == "broken" else "class Attention:\n    pass\n"
    file.write_text(text)
    with pytest.raises(UnknownMechanism, match=said):
        card(f"{file}:{attribute}")
    with pytest.raises(UnknownMechanism, match=r"no file 'nowhere.py'"):
        card("nowhere.py:It")
    with pytest.raises(UnknownMechanism, match=r"no file 'nowhere.py' for the kernel of trans"):
        card("transformer:nowhere.py")
