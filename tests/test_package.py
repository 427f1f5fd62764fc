"""What is published next to the code agrees with it."""

import re
import tomllib
from pathlib import Path

import attnbench
from tests.commands.commands import here

ROOT = Path(__file__).parents[1]


def test_a_citation_names_the_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {attnbench.__version__}\n" in text


def test_the_action_gives_check_options_that_exist():
    text = (ROOT / ".github/actions/check/action.yml").read_text(encoding="utf-8")
    options = set(re.findall(r"--[a-z-]+", text.partition("run: attnbench check")[2]))
    assert {"--base", "--formats", "--out"} <= options
    known = here("check", "--help", COLUMNS="200")
    assert all(option in known.stdout for option in options)


def test_reports_are_installed_with_all_that_is_needed_but_torch():
    text = (ROOT / ".github/CONTRIBUTING.md").read_text(encoding="utf-8")
    installed = re.search(r"^pip install ([a-z][a-z0-9 -]+)$", text, re.MULTILINE)[1].split()
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {*installed, "torch"} == {re.match(r"[\w-]+", need)[0] for need in needs}


def test_types_are_published():
    assert Path(attnbench.__file__).with_name("py.typed").exists()
