"""Where code came from: what a side ran of another tree, or what base lacks, is not compared."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from attnbench.commands.check.cases import CheckedCase, Loaded
from attnbench.commands.check.origins import Origins, built_from, installed_copies
from attnbench.records import Selection
from tests.commands.check.repositories import Repository


@pytest.fixture
def trees(tmp_path):
    """Two trees; head's is a repository that ignores `_version.py`, which it has built."""
    head = Repository(tmp_path / "head")
    head.write(".gitignore", "_version.py\n")
    head.write("src/code.py", "")
    head.commit("code")
    head.write("src/_version.py", "")
    base = tmp_path / "base"
    (base / "src").mkdir(parents=True)
    (base / "src" / "code.py").touch()
    return {"base": base, "head": head.folder}


def case(**files):
    """A case for which each side loaded these modules."""
    loaded = {side: Loaded(modules=tuple(map(str, paths))) for side, paths in files.items()}
    return CheckedCase(selection=Selection(name="m"), loaded=loaded)


def test_sides_that_ran_their_own_code_can_be_compared(trees):
    own = {side: [tree / "src" / "code.py"] for side, tree in trees.items()}
    assert Origins(trees=trees).reason_apart(case(**own)) == ""
    assert Origins(trees=trees).reason_apart(case()) == ""


def test_base_that_ran_heads_code_is_not_compared(trees):
    said = Origins(trees=trees).reason_apart(case(base=[trees["head"] / "src" / "code.py"]))
    assert said.startswith("both sides ran head's src/code.py, which imports found in place of")


def test_a_base_within_heads_tree_is_base(tmp_path):
    trees = {"base": tmp_path / "tree" / "base", "head": tmp_path / "tree"}
    assert Origins(trees=trees).shared_code([str(trees["base"] / "code.py")]) == ""


def test_an_installed_copy_of_the_repository_is_on_neither_side(trees):
    copy = "/site-packages/shop/fast.so"
    said = Origins(trees=trees, copies=frozenset([copy])).reason_apart(case(base=[copy]))
    assert said.startswith("both sides ran fast.so of /site-packages/shop, installed from this")
    assert said.endswith("--prepare 'pip install -e .' builds one for each side")


def test_what_git_ignores_and_base_lacks_is_named_with_the_way_out(trees):
    loaded = case(head=[trees["head"] / "src" / "_version.py"])
    said = Origins(trees=trees).reason_apart(loaded)
    assert said.startswith("base lacks src/_version.py, which git ignores; build it on both sides")
    said = Origins(trees=trees, prepared=True).reason_apart(loaded)
    assert said.endswith("which git ignores and --prepare did not make there")
    (trees["base"] / "src" / "_version.py").touch()
    assert Origins(trees=trees).reason_apart(loaded) == ""


def test_what_a_change_added_is_no_lack(trees):
    assert Origins(trees=trees).reason_apart(case(head=[trees["head"] / "src" / "new.py"])) == ""


def test_a_submodule_whose_commit_is_missing_is_named(trees):
    loaded = case(head=[trees["head"] / "deep" / "sub" / "x.py"])
    assert Origins(trees=trees, lost=["deep/sub"]).reason_apart(loaded) == (
        "base lacks deep/sub/x.py: its commit of the submodule deep/sub is not here"
    )


def test_code_of_neither_tree_is_named_by_its_folders(trees):
    origins = Origins(trees=trees, copies=frozenset(["/copy/x.py"]), ours=[Path("/ours")])
    own = Path(sys.modules["attnbench"].__file__)
    files = ["/other/b.py", "/other/a.py", "/ours/c.py", "/copy/x.py", "built-in", str(own)]
    (said,) = origins.outside_code([case(base=[trees["base"] / "src" / "code.py"], head=files)])
    assert said == (
        "code from outside the repository ran on both sides: /other; changes there are not compared"
    )
    assert [*origins.outside_code([case(head=files[2:])])] == []


def distribution(url=None, text=None):
    """An installed package that was built from this address."""
    stored = json.dumps({"url": url}) if text is None else text
    return SimpleNamespace(
        read_text=lambda name: stored if name == "direct_url.json" else None,
        files=[Path("shop/code.py"), Path("shop/fast.so"), Path("__editable__shop.py"), Path("x")],
        locate_file=lambda file: Path("/site-packages") / file,
    )


def test_a_package_is_of_the_repository_if_it_was_built_in_a_folder_of_it(tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    address = folder.as_uri()
    assert "%20" in address
    assert built_from(distribution(address), tmp_path)
    assert built_from(distribution(f"{address}/packages/b"), folder)
    assert not built_from(distribution(address), folder / "deeper")
    for other in (distribution("https://example.org/x"), distribution(text="[]"),
                  distribution(text="{"), distribution(text="")):  # fmt: skip
        assert not built_from(other, Path("/"))


def test_the_copies_of_a_package_are_its_modules_and_not_what_makes_it_editable(
    tmp_path, monkeypatch
):
    found = [distribution(tmp_path.as_uri()), distribution("https://example.org/x")]
    monkeypatch.setattr("attnbench.commands.check.origins.distributions", lambda: found)
    assert installed_copies(tmp_path) == {
        "/site-packages/shop/code.py",
        "/site-packages/shop/fast.so",
    }
