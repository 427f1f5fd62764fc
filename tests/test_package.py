"""What is published next to the code agrees with it."""

import re
from pathlib import Path

import attnbench
from tests.cli.commands import here

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


def test_types_are_published():
    assert Path(attnbench.__file__).with_name("py.typed").exists()
