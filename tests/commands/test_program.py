"""What the command does where Python finds something else of the package's name."""

import os
import tomllib
from pathlib import Path

import pytest

from attnbench.commands import program
from tests.commands.commands import environment, python

ROOT = Path(__file__).parents[2]


def installed(tmp_path):
    """The module as it is installed: beside the package, not within."""
    names = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = names["tool"]["hatch"]["build"]["targets"]["wheel"]
    (tmp_path / "site").mkdir()
    for source, name in wheel["force-include"].items():
        (tmp_path / "site" / name).write_text((ROOT / source).read_text())
    module, _, function = names["project"]["scripts"]["attnbench"].partition(":")
    return f"import sys; from {module} import {function}; sys.exit({function}())"


def run(tmp_path, *before, code):
    """The command's output where these folders come first on PYTHONPATH."""
    start = installed(tmp_path)
    paths = os.pathsep.join(map(str, [*before, tmp_path / "site"]))
    env = environment(PYTHONPATH=paths)
    return python("-P", "-c", start, "--version", env=env, cwd=tmp_path, code=code)


@pytest.mark.parametrize("name", ["attnbench.py", "attnbench/__init__.py"])
def test_another_module_of_that_name_is_named_in_one_sentence(tmp_path, name):
    """It is not run: who knows what it does."""
    other = tmp_path / "other"
    (other / name).parent.mkdir(parents=True)
    (other / name).write_text("raise SystemError('it ran')")
    done = run(tmp_path, other, code=2)
    assert done.stderr.count("\n") == 1
    path = str(other / Path(name).parts[0])
    said = f"attnbench: Python finds another 'attnbench' before this one, {path!r}; "
    assert done.stderr.startswith(said)
    assert "PYTHONPATH" in done.stderr
    assert done.stdout == ""


def test_folders_without_a_module_of_that_name_change_nothing(tmp_path):
    (tmp_path / "other" / "attnbench").mkdir(parents=True)
    assert run(tmp_path, tmp_path / "other", ROOT, code=0).stdout.startswith("attnbench ")


def test_a_package_that_is_gone_is_said(capsys):
    assert program.refusal(None) == 2
    assert "install it again" in capsys.readouterr().err


def test_the_file_by_which_the_package_is_known_is_there():
    assert (ROOT / "attnbench" / program.OWN).is_file()
