"""The mechanisms that a change touches, from files that are parsed and never run."""

import pytest

from attnbench.gate.cases import Compared
from attnbench.gate.repository import Change, changed, changes, shared
from attnbench.records import Selection
from tests.gate.repositories import Repository

CARD = "raise RuntimeError('run')\nCARD = Card()\n"


@pytest.fixture
def trees(tmp_path):
    def make(name, files):
        for path, text in files.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path / name

    return make


def same(path):
    return Change(base=path, head=path)


def compared(base, head):
    base, head = (name and Selection(name=name) for name in (base, head))
    return Compared(base=base, head=head)


def both(name):
    return compared(name, name)


def test_cards_are_found_by_their_text(trees):
    base = trees("base", {"a.py": CARD, "b.py": CARD, "c.py": "x = 1\n"})
    head = trees(
        "head",
        {"a.py": CARD + "#", "b.py": CARD, "c.py": "x = 2\n", "d.py": "MINE: Card = m.Card()\n"},
    )
    found = changed(base, head, [same("a.py"), same("c.py"), Change(base=None, head="d.py")])
    assert found == (both("a.py:CARD"), compared(None, "d.py:MINE"))


def test_mechanisms_of_the_package_are_named_by_their_file(trees):
    path = "attnbench/mechanisms/transformer.py"
    base, head = trees("base", {path: CARD}), trees("head", {path: CARD + "#"})
    assert changed(base, head, [same(path)]) == (both("transformer"),)


@pytest.mark.parametrize("broken", ["class Small Small", "CARD = made()\n"])
def test_a_card_that_can_no_longer_be_read_is_not_removed(broken, trees):
    base, head = trees("base", {"a.py": CARD}), trees("head", {"a.py": broken})
    assert changed(base, head, [same("a.py")]) == (both("a.py:CARD"),)


def test_a_card_that_is_gone_is_removed(trees):
    base, head = trees("base", {"a.py": CARD, "b.py": CARD}), trees("head", {"a.py": "x = 1\n"})
    found = changed(base, head, [same("a.py"), Change(base="b.py", head=None)])
    assert found == (compared("a.py:CARD", None), compared("b.py:CARD", None))


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("parts/deep.py", "from parts import deep\n"),
        ("parts/deep.py", "import parts.deep\n"),
        ("parts/deep.py", "from parts.deep import x\n"),
        ("more.py", "from middle import y\n"),
        ("src/pack/inner.py", "from pack.inner import z\n"),
    ],
)
def test_imports_count_wherever_they_are(where, line, trees):
    files = {
        "a.py": line + CARD,
        "b.py": CARD,
        "middle.py": "from more import y\n",
        "parts/__init__.py": "",
        where: "x = 1\n",
    }
    base, head = trees("base", files), trees("head", {**files, where: "x = 2\n"})
    assert changed(base, head, [same(where)]) == (both("a.py:CARD"),)


def test_relative_imports_count(trees):
    files = {
        "pack/__init__.py": "",
        "pack/a.py": "from .b import x\n" + CARD,
        "pack/sub/__init__.py": "",
        "pack/sub/c.py": "from ..b import x\n" + CARD,
        "pack/b.py": "x = 1\n",
    }
    base, head = trees("base", files), trees("head", files)
    found = changed(base, head, [same("pack/b.py")])
    assert found == (both("pack/a.py:CARD"), both("pack/sub/c.py:CARD"))


def test_an_import_from_the_same_folder_counts(trees):
    files = {"deep/a.py": "import b\n" + CARD, "deep/b.py": "x = 1\n"}
    base, head = trees("base", files), trees("head", files)
    assert changed(base, head, [same("deep/b.py")]) == (both("deep/a.py:CARD"),)


def test_shared_files_are_reported_and_select_no_mechanism(trees):
    contract = "attnbench/attention/contract.py"
    files = {"a.py": "from attnbench.attention import Card\n" + CARD, contract: ""}
    base, head = trees("base", files), trees("head", files)
    change = same(contract)
    assert changed(base, head, [change]) == ()
    assert shared([change, same("attnbench/cli/main.py")]) == (contract,)


def test_a_renamed_mechanism_is_compared_with_itself(tmp_path, trees):
    repository = Repository(tmp_path / "head")
    repository.git("mv", "small.py", "tiny.py")
    base = trees("base", {"small.py": CARD})
    found = changes(repository.folder, "main")
    assert found == (Change(base="small.py", head="tiny.py"),)
    assert changed(base, repository.folder, found) == (compared("small.py:CARD", "tiny.py:CARD"),)
