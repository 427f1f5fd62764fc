"""The mechanisms that a change reaches, by the files that processes of both trees load."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from attnbench.commands.check.cases import CheckPlan
from attnbench.commands.check.measuring import Runner
from attnbench.commands.check.reach import Reach, chosen_selections, file_of, mechanism_name, reach
from tests.commands.check.repositories import MECHANISM, Repository

CARD = MECHANISM
PACKAGE = Path(__file__).parents[3] / "attnbench"
ALL = ["fastformer", "fnet", "linformer", "small.py:CARD"]


@pytest.fixture
def found(server, tmp_path):
    """The names that changes reach in two trees of these files, and the files nothing covers.

    Each tree is a repository, as `check` has them, or the folder of one.
    """

    def ask(base, head, *changes):
        trees = {"base": base, "head": head}
        for side, files in ((side, tree) for side, tree in trees.items() if isinstance(tree, dict)):
            repository = Repository(tmp_path / side)
            (repository.folder / "small.py").unlink()
            for path, text in files.items():
                repository.write(path, text)
            trees[side] = repository.folder
        result = reach(trees, changes, Runner(server=server), "cpu")
        return [*result.reached], result.uncovered

    return ask


def test_cards_are_found_by_their_text(found):
    text = "TEXT = r'''\nCARD = Card()\n'''\n"
    files = {"a.py": CARD, "b.py": CARD, "c.py": "x = 1\n", "text.py": text}
    head = {**files, "a.py": CARD + "#", "c.py": "x = 2\n", "d.py": CARD}
    reached, uncovered = found(files, head, "a.py", "c.py", "text.py", "d.py")
    assert (reached, uncovered) == (["a.py:CARD", "d.py:CARD"], ("c.py", "text.py"))


def test_mechanisms_are_named_as_models_takes_them():
    assert mechanism_name("attnbench/mechanisms/transformer.py", "CARD") == "transformer"
    assert mechanism_name("src/a.py", "MINE") == "src/a.py:MINE"


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("src/a.py:MINE", "src/a.py"),
        ("pack.part:function", "src/pack/part.py"),
        ("pack:function", "src/pack/__init__.py"),
        ("local", "attnbench/mechanisms/local.py"),
        ("transformer", ""),
        ("stack(local)", ""),
        ("x" * 5000 + ".py:A", ""),
    ],
)
def test_the_file_of_what_is_checked(name, file, tmp_path):
    own = "attnbench/mechanisms/local.py"
    for path in ("src/a.py", "src/pack/part.py", "src/pack/__init__.py", own):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert file_of(name, tmp_path) == file


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("class Small Small", marks=pytest.mark.long),
        MECHANISM + "\nraise KeyError",
        "x = 1",
    ],
)
def test_a_card_that_can_no_longer_be_loaded_is_reached(broken, found):
    both = {"a.py": CARD, "b.py": CARD}, {"a.py": broken}
    assert found(*both, "a.py", "b.py") == (["a.py:CARD", "b.py:CARD"], ())


@pytest.mark.parametrize(
    ("where", "line"),
    [
        pytest.param("parts/deep.py", "from parts import deep\n", marks=pytest.mark.long),
        ("parts/deep.py", "def late():\n    from parts.deep import x\n"),
        ("more.py", "from middle import y\n"),
        pytest.param("src/pack/inner.py", "from pack.inner import x\n", marks=pytest.mark.long),
        ("beside.py", "import importlib; importlib.import_module('beside')\n"),
    ],
)
def test_imports_count_wherever_they_are(where, line, found):
    files = {
        "a.py": line + CARD,
        "b.py": CARD,
        "middle.py": "from more import x as y\n",
        "more.py": "x = 1\n",
        "parts/__init__.py": "",
        where: "x = 1\n",
    }
    assert found(files, {**files, where: "x = 2\n"}, where) == (["a.py:CARD"], ())


def test_what_only_base_loads_counts(found):
    text = "try:\n    from extra import x\nexcept ImportError:\n    x = 0\n" + CARD
    base = {"a.py": text, "extra.py": "x = 1\n"}
    assert found(base, {"a.py": text}, "extra.py") == (["a.py:CARD"], ())


@pytest.fixture
def package(tmp_path):
    """A copy of this package with three mechanisms, as base and as head."""

    def ignored(folder, names):
        left = {"fastformer.py", "linformer.py", "fnet.py", "__init__.py", "catalogue", "peers"}
        drop = set(names) - left if Path(folder).name == "mechanisms" else set()
        return drop | {"__pycache__", "vega.js.gz"}

    made = {}
    for side in ("base", "head"):
        made[side] = Repository(tmp_path / side).folder
        shutil.copytree(PACKAGE, made[side] / "attnbench", ignore=ignored)
    return made


@pytest.mark.parametrize(
    ("file", "names"),
    [
        pytest.param("mechanisms/linformer.py", ["linformer"], marks=pytest.mark.long),
        ("attention/contract.py", ALL),
        pytest.param("commands/main.py", [], marks=pytest.mark.long),
        pytest.param("devices/kinds/cpu.py", ALL, marks=pytest.mark.long),
        pytest.param("mechanisms/peers/linformer.py", [], marks=pytest.mark.long),
    ],
)
def test_a_shared_file_reaches_what_stands_on_it(file, names, package, found):
    path = f"attnbench/{file}"
    with open(package["head"] / path, "a") as text:
        text.write("# changed\n")
    assert found(*package.values(), path) == (names, () if names else (path,))


def test_every_form_is_checked_where_the_budget_is_enough_and_else_the_default():
    result = Reach(reached={f"m{number}": ["eager", "folded"] for number in range(9)}, considered=9)
    every, words = chosen_selections(result, CheckPlan(), 3600.0)
    assert len(every) == 27
    assert words == "the change reaches all 9 of 9 mechanisms: m0, m1, m2, m3, m4, …"
    some, words = chosen_selections(result, CheckPlan(), 300.0)
    assert sorted(map(str, some)) == [*result.reached]
    assert "default forms are checked, since --budget is not enough for every form" in words
    assert len(chosen_selections(result, replace(CheckPlan(), times=False), 300.0)[0]) == 27
