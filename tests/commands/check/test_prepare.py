"""A command that prepares both trees: where it runs, what it sees, and how it may fail."""

import os
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

import pytest

from attnbench.commands.check.prepare import (
    last_lines,
    make_environment,
    prepare,
    run,
    variables,
)
from attnbench.errors import CannotRun
from tests.doubles.servers import ends


@pytest.fixture
def trees(tmp_path):
    """Empty folders."""
    found = {side: tmp_path / side for side in ("base", "head")}
    for tree in found.values():
        tree.mkdir()
    return found


def test_a_command_runs_in_both_trees_before_anything_else(trees):
    seen = []
    command = "pwd > where; echo $VIRTUAL_ENV >> where"
    with prepare(command, trees, lambda: 60.0, seen.append) as sites:
        assert {*sites} == {*trees.values()}
        assert len({*sites.values()}) == 2
        assert all(Path(site).is_dir() for site in sites.values())
        for side, tree in trees.items():
            where, environment = (tree / "where").read_text().split()
            assert where == str(tree)
            assert Path(sites[tree]).is_relative_to(environment)
            assert environment.endswith(side)
    assert seen == [f"preparing {side}: {command}" for side in trees]
    assert not any(Path(site).exists() for site in sites.values())


@pytest.mark.parametrize(
    ("command", "left_s", "said"),
    [
        ("echo one; echo; echo two; exit 3", 60.0, r"exit code 3 in base's tree \| one \| two$"),
        ("test $(basename $PWD) = base", 60.0, "exit code 1 in head's tree$"),
        ("sleep 600", 0.1, "took longer than --budget allows in base's tree; raise it"),
    ],
)
def test_a_command_that_fails_is_told_with_its_side_and_last_lines(trees, command, left_s, said):
    fails = pytest.raises(CannotRun, match=said)
    with fails, prepare(command, trees, lambda: left_s, lambda text: None):
        pass


def test_what_a_command_leaves_running_ends_with_it(tmp_path):
    log = tmp_path / "log"
    assert run("sleep 600 & echo $!", tmp_path, {**os.environ}, log, 60.0) == 0
    pid = int(log.read_text())
    with suppress(ProcessLookupError):  # it has ended already
        assert ends(os.pidfd_open(pid))


def test_the_path_of_imports_is_moved_into_the_tree_of_the_side(trees, tmp_path, monkeypatch):
    places = [str(trees["head"] / "src"), "", "/elsewhere", str(trees["base"])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
    monkeypatch.setenv("PYTHONHOME", "/python")
    monkeypatch.setenv("GIT_DIR", "/repository")
    found = variables(tmp_path / "venv", "base", trees)
    assert found["PYTHONPATH"].split(os.pathsep) == [
        *(str(trees["base"] / "src"), "/elsewhere", str(trees["base"])),
    ]
    assert found["PATH"].startswith(f"{tmp_path / 'venv' / 'bin'}{os.pathsep}")
    assert not {"PYTHONHOME", "GIT_DIR"} & {*found}


def test_an_environment_sees_the_packages_of_this_one_after_its_own(tmp_path):
    site = Path(make_environment(tmp_path / "venv"))
    assert site.is_relative_to(tmp_path / "venv")
    (link,) = site.glob("*.pth")
    lines = link.read_text().splitlines()
    assert any(repr(sysconfig.get_path("purelib")) in line for line in lines)
    assert (tmp_path / "venv" / "bin" / "python").resolve() == Path(sys.executable).resolve()
    assert os.access(tmp_path / "venv" / "bin" / "pip", os.X_OK)


def test_only_the_last_lines_with_words_are_told(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"\n".join([b"%d" % n for n in range(9)] + [b"", b"  \xff end  "]))
    assert last_lines(log) == " | 5 | 6 | 7 | 8 | \ufffd end"
    log.write_bytes(b"")
    assert last_lines(log) == ""
