"""The mechanisms that a change reaches, by the files that processes of both trees load."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from attnbench.gate.cases import CheckPlan, MechanismPair
from attnbench.gate.measuring import Runner
from attnbench.gate.reach import Loaded, Reach, chosen, describe_reach, file_of, named, reach
from attnbench.gate.repository import Change, changes
from attnbench.records import Selection
from tests.gate.repositories import MECHANISM, Repository, planted

CARD = MECHANISM
PACKAGE = Path(__file__).parents[2] / "attnbench"
ALL = ["fastformer", "fnet", "linformer", "small.py:CARD"]


@pytest.fixture
def trees(tmp_path):
    """Makes the two trees from their files; each is a repository, as `check` has them."""

    def make(base, head):
        made = {}
        for side, files in (("base", base), ("head", head)):
            repository = Repository(tmp_path / side)
            (repository.folder / "small.py").unlink()
            for path, text in files.items():
                repository.write(path, text)
            made[side] = repository.folder
        return made

    return make


def same(*paths):
    return [Change(base=path, head=path) for path in paths]


def both(name):
    return MechanismPair(base=Selection(name=name), head=Selection(name=name))


@pytest.fixture
def found(server):
    """The names that changes reach, and the files that nothing covers."""

    def ask(trees, changes, asked=None):
        runner = Runner(server=server)
        result = reach(trees, changes, runner, "cpu", asked)
        return [one.compared.head.name for one in result.reached], result.uncovered

    return ask


def test_cards_are_found_by_their_text(trees, found):
    files = {"a.py": CARD, "b.py": CARD, "c.py": "x = 1\n", "text.py": f"T = '''\n{CARD!s}'''\n"}
    files["text.py"] = "TEXT = r'''\nCARD = Card()\n'''\n"
    both_trees = trees(files, {**files, "a.py": CARD + "#", "c.py": "x = 2\n", "d.py": CARD})
    given = [*same("a.py", "c.py", "text.py"), Change(base=None, head="d.py")]
    assert found(both_trees, given) == (["a.py:CARD", "d.py:CARD"], ("c.py", "text.py"))


def test_mechanisms_are_named_as_models_takes_them():
    assert named("attnbench/mechanisms/transformer.py", "CARD") == Selection(name="transformer")
    assert named("src/a.py", "MINE") == Selection(name="src/a.py:MINE")


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


@pytest.mark.parametrize("broken", ["class Small Small", MECHANISM + "\nraise KeyError"])
def test_a_card_that_can_no_longer_be_loaded_is_reached(broken, trees, found):
    assert found(trees({"a.py": CARD}, {"a.py": broken}), same("a.py"))[0] == ["a.py:CARD"]


def test_a_card_that_is_gone_is_reached(trees, found):
    given = [*same("a.py"), Change(base="b.py", head=None)]
    both_trees = trees({"a.py": CARD, "b.py": CARD}, {"a.py": "x = 1\n"})
    assert found(both_trees, given) == (["a.py:CARD", "b.py:CARD"], ())


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("parts/deep.py", "from parts import deep\n"),
        pytest.param("parts/deep.py", "import parts.deep\n", marks=pytest.mark.long),
        ("parts/deep.py", "def late():\n    from parts.deep import x\n"),
        ("more.py", "from middle import y\n"),
        pytest.param("src/pack/inner.py", "from pack.inner import x\n", marks=pytest.mark.long),
        ("beside.py", "import importlib; importlib.import_module('beside')\n"),
    ],
)
def test_imports_count_wherever_they_are(where, line, trees, found):
    files = {
        "a.py": line + CARD,
        "b.py": CARD,
        "middle.py": "from more import x as y\n",
        "more.py": "x = 1\n",
        "parts/__init__.py": "",
        where: "x = 1\n",
    }
    both_trees = trees(files, {**files, where: "x = 2\n"})
    assert found(both_trees, same(where)) == (["a.py:CARD"], ())


def test_relative_imports_count(trees, found):
    files = {
        "pack/__init__.py": "",
        "pack/a.py": "from .b import x\n" + CARD,
        "pack/sub/__init__.py": "",
        "pack/sub/c.py": "def late():\n    from .. import b\n" + CARD,
        "pack/b.py": "x = 1\n",
    }
    names, _ = found(trees(files, {**files, "pack/b.py": "x = 2\n"}), same("pack/b.py"))
    assert names == ["pack/a.py:CARD", "pack/sub/c.py:CARD"]


def test_what_only_base_loads_counts(trees, found):
    text = "try:\n    from extra import x\nexcept ImportError:\n    x = 0\n" + CARD
    both_trees = trees({"a.py": text, "extra.py": "x = 1\n"}, {"a.py": text})
    assert found(both_trees, [Change(base="extra.py", head=None)]) == (["a.py:CARD"], ())


def test_a_plain_class_is_reached_by_what_its_file_imports(trees, found):
    plain = "from helper import x\nimport torch\n\nclass Mean(torch.nn.Module):\n    pass\n"
    files = {"mine.py": plain, "helper.py": "x = 1\n", "other.py": "x = 1\n"}
    both_trees = trees(files, {**files, "helper.py": "x = 2\n"})
    asked = [both("mine.py:Mean"), both("mine.py:Nowhere")]
    assert found(both_trees, same("helper.py"), asked)[0] == ["mine.py:Mean", "mine.py:Nowhere"]
    assert found(both_trees, same("other.py"), asked[:1]) == ([], ("other.py",))
    assert found(both_trees, same("other.py")) == ([], ("other.py",))


def test_what_only_moved_has_not_changed(tmp_path, trees, found):
    files = {"a.py": "from old import x\n" + CARD, "old.py": "x = 1\n", "b.py": CARD}
    head = {"a.py": "from new import x\n" + CARD, "new.py": "x = 1\n", "c.py": CARD}
    both_trees = trees(files, head)
    moved = [Change(base="old.py", head="new.py"), Change(base="b.py", head="c.py")]
    assert found(both_trees, moved) == ([], ())
    assert found(both_trees, [*moved, *same("a.py")])[0] == ["a.py:CARD"]


def test_a_renamed_mechanism_is_compared_with_itself(tmp_path, trees, found):
    repository = Repository(tmp_path / "renamed")
    repository.git("mv", "small.py", "tiny.py")
    renamed = changes(repository.folder, "main")
    assert renamed == (Change(base="small.py", head="tiny.py"),)
    repository.write("tiny.py", planted("weights.exp()"))
    both_trees = {"base": trees({"small.py": CARD}, {})["base"], "head": repository.folder}
    assert found(both_trees, renamed) == (["tiny.py:CARD"], ())


@pytest.fixture
def package(tmp_path):
    """A copy of this package with three mechanisms, as base and as head."""

    def ignored(folder, names):
        left = {"fastformer.py", "linformer.py", "fnet.py", "__init__.py"}
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
        ("mechanisms/linformer.py", ["linformer"]),
        ("attention/contract.py", ALL),
        ("cli/main.py", []),
        pytest.param("attention/kernels/pooling.py", ["fastformer"], marks=pytest.mark.long),
        pytest.param("devices/kinds/cpu.py", ALL, marks=pytest.mark.long),
        pytest.param("peers/linformer.py", [], marks=pytest.mark.long),
    ],
)
def test_a_shared_file_reaches_what_stands_on_it(file, names, package, found):
    path = f"attnbench/{file}"
    with open(package["head"] / path, "a") as text:
        text.write("# changed\n")
    assert found(package, same(path)) == (names, () if names else (path,))


def test_as_many_are_timed_as_the_budget_allows_and_that_is_said():
    answer = {"outcome": "ok", "forms": ["eager", "folded", "compiled"], "compiled": ["compiled"]}
    every = tuple(Loaded(both(f"m{number}"), answer, answer) for number in range(9))
    result = Reach(reached=every, known=9)
    plan = CheckPlan()
    some = chosen(result, plan, 300.0, "0")
    timed = {pair.head.name for pair in some if pair.timed}
    assert 1 <= len(timed) < 9
    assert {pair.head.name for pair in some} == {f"m{number}" for number in range(9)}
    assert {p.head.form for p in some if p.head.name in timed} == {
        None,
        "eager",
        "folded",
    }
    assert chosen(result, plan, 300.0, "0") == some
    words = describe_reach(result, some)
    assert words.startswith("the change reaches all 9 of 9 mechanisms; all are counted")
    assert set(words.rpartition(": ")[2].split(", ")) == timed
    assert all(pair.timed for pair in chosen(result, plan, float("inf"), "0"))
    assert len(chosen(result, replace(plan, times=False), 300.0, "0")) == 27
