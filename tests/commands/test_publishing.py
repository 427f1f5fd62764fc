"""Reports in the terminal and as files: warnings, JSON, and errors that lose nothing."""

import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.commands.commands import here
from tests.records.storage.recorded import SMALL, rewrite

DATA = Path(__file__).parents[1] / "data" / "small"  # N = 512, 2,048 and 8,192


def report(*arguments):
    return here("report", *arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(DATA, tmp_path / "sweep")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_one_length_has_no_slopes_to_show(tmp_path: Path):
    (tmp_path / "sweep.jsonl").write_bytes(SMALL)
    assert "--slopes: figures of one length have none" in report(tmp_path, "--slopes").stderr


def test_a_report_that_fails_says_that_all_runs_are_kept(folder, tmp_path):
    def fails(*arguments):
        raise KeyError("outcome")

    with patch("attnbench.report.page.conditions", fails):
        done = here("report", folder, code=2, unexpected=True)
    assert done.stderr.splitlines()[-1] == (
        f"attnbench: unexpected KeyError: 'outcome'; all runs are kept in '{folder}';"
        f" attnbench report '{folder}' makes the report again"
    )
    assert names(folder) == {"sweep.jsonl"}


def test_bad_conditions_are_reported_on_the_terminal_and_on_the_page(folder: Path):
    def busy(kind, data):
        if kind == "session":
            data["environment"]["load"] = 99.0

    done = report(rewrite(folder, busy))
    assert "warning: the machine was busy: load 99.0" in done.stderr
    page = (folder / "report.html").read_text()
    assert "the machine was busy: load 99.0" in page
    assert page.index('href="#warnings">1 warning</a>') < page.index("<img")
