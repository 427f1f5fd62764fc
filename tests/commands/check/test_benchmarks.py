"""Benchmarks that a change changes: which files they are, and how head's are laid over base's."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from attnbench.commands.check import benchmarks
from attnbench.commands.check.benchmarks import (
    benchmark,
    copy,
    functions_on_base,
    lay_over,
    remove,
    to_lay_over,
)
from attnbench.records import messages

CHANGES = ("tests/test_a.py", "tests/data/x.csv", "src/code.py", "tests/__pycache__/a.pyc", "b.py")


@pytest.fixture
def trees(tmp_path):
    """Two trees with the same tests and code."""
    found = {side: tmp_path / side for side in ("base", "head")}
    for side, tree in found.items():
        for path in ("tests/test_a.py", "src/code.py", "bench_x.py"):
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(side)
    return found


class Answering:
    """A runner whose processes of a side answer by the name that they are asked about."""

    def __init__(self, answers):
        self.answers = answers
        self.sides = []

    def loaded_process(self, side, tree):
        self.sides.append(side)
        return nullcontext(SimpleNamespace(ask=self.ask))

    def ask(self, question, limit_s):
        return self.answers[getattr(question, "mechanism", "")]


@pytest.mark.parametrize(
    ("file", "found"),
    [
        ("tests/test_a.py", "tests"),
        ("packages/b/tests/deep/code.py", "packages/b/tests"),
        ("benchmarks/x.py", "benchmarks"),
        ("bench/x.py", ""),
        ("bench_x.py", "bench_x.py"),
        ("src/x_test.py", "src/x_test.py"),
        ("src/x_benchmark.py", "src/x_benchmark.py"),
        ("src/testing.py", ""),
        ("src/contest.py", ""),
        ("src/test_x.txt", ""),
        ("", ""),
    ],
)
def test_a_file_is_of_benchmarks_by_its_name_or_folder(file, found):
    assert benchmark(file) == found


def test_all_changed_files_in_the_folder_of_a_benchmark_are_laid_over_and_no_code(trees):
    names = ["tests/test_a.py:run", "src/code.py:index"]
    assert to_lay_over(names, trees, ".", CHANGES) == ("tests/test_a.py", "tests/data/x.csv")
    assert to_lay_over(["bench_x.py:run"], trees, ".", ("bench_x.py", "bench_x.pyi")) == (
        "bench_x.py",
    )
    assert to_lay_over(["src/code.py:index"], trees, ".", CHANGES) == ()


def test_what_was_laid_over_is_heads_and_is_said(trees):
    (said,) = lay_over(("tests/test_a.py", "tests/none.py"), trees)
    assert said.startswith("the benchmark itself differs: both sides ran head's tests/test_a.py,")
    assert (trees["base"] / "tests/test_a.py").read_text() == "head"
    assert (trees["base"] / "src/code.py").read_text() == "base"
    assert lay_over(("tests/none.py",), trees) == ()


def test_what_head_lacks_is_removed_and_is_said(trees):
    for tree in trees.values():
        (tree / "tests/conftest.py").write_text("import time")
        (tree / "tests/helpers.py").write_text("x = 1")
    (trees["head"] / "tests/conftest.py").unlink()
    (trees["head"] / "tests/helpers.py").unlink()
    paths = ("tests/conftest.py", "tests/none.py", "tests/helpers.py")
    assert lay_over(paths, trees) == (
        "the benchmark itself differs: base ran without its tests/conftest.py, which head lacks",
    )
    assert not (trees["base"] / "tests/conftest.py").exists()
    assert (trees["base"] / "tests/helpers.py").exists(), "base's own code may import it"
    (trees["base"] / "tests/conftest.py").write_text("import time")
    (said,) = lay_over(("tests/test_a.py", *paths), trees)
    assert said.endswith(
        "both sides ran head's tests/test_a.py, whose own changes are not compared; base ran"
        " without its tests/conftest.py, which head lacks"
    )


def test_nothing_is_removed_out_of_a_tree(trees, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.py").write_text("1")
    (trees["base"] / "link").symlink_to(outside)
    assert not remove(trees["base"] / "link" / "x.py", trees["base"])
    assert not remove(trees["base"] / "tests", trees["base"]), "a folder"
    assert (outside / "x.py").exists()
    assert remove(trees["base"] / "link", trees["base"]), "a link, and not what it names"
    assert (outside / "x.py").exists()


def test_nothing_is_copied_out_of_a_tree(trees, tmp_path):
    (tmp_path / "outside").mkdir()
    (trees["base"] / "link").symlink_to(tmp_path / "outside")
    source = trees["head"] / "bench_x.py"
    assert not copy(source, trees["base"] / "link" / "x.py", trees["base"])
    assert not copy(source, trees["base"] / "bench_x.py" / "x.py", trees["base"]), "a file"
    assert not copy(trees["head"] / "tests", trees["base"] / "t", trees["base"]), "no file"
    assert [*(tmp_path / "outside").iterdir()] == []
    (trees["base"] / "new.py").symlink_to(tmp_path / "kept")
    assert copy(source, trees["base"] / "new.py", trees["base"])
    assert not (tmp_path / "kept").exists(), "a link is replaced, and not followed"


def test_base_is_asked_for_its_functions_in_files_that_are_laid_over(trees):
    names = [f"tests/test_a.py:{name}" for name in ("here", "gone", "odd")]
    runner = Answering(
        {
            names[0]: messages.Done(),
            names[1]: messages.Failure(outcome="missing", reason="no gone"),
            names[2]: messages.Failure(outcome="crashed", reason="it died"),
        }
    )
    asked = [*names, "src/code.py:index"]
    found, said = functions_on_base(asked, ["tests/test_a.py"], trees, ".", runner)
    assert found == {names[0]}
    assert said == (f"whether base has {names[2]} is not known: it died",)
    assert runner.sides == ["base"]


def test_no_process_is_started_where_nothing_is_laid_over(trees):
    runner = Answering({})
    assert functions_on_base(["src/code.py:index"], ["b.py"], trees, ".", runner) == (set(), ())
    assert runner.sides == []


def test_the_tests_of_base_are_named_or_why_they_are_not_known(trees):
    runner = Answering({"": messages.TestNames(tests=("a", "b"))})
    assert benchmarks.tests_on_base(trees, runner) == ({"a", "b"}, ())
    runner = Answering({"": messages.Failure(outcome="crashed", reason="it died")})
    assert benchmarks.tests_on_base(trees, runner) == (
        frozenset(),
        ("which tests base alone has is not known: it died",),
    )
