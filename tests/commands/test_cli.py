"""The command line as a user meets it, with real workers."""

import re
import shutil
from pathlib import Path

import pytest

import attnbench
from attnbench.commands.verbs import VERBS
from attnbench.records.storage.journal import load
from tests.commands.commands import here, python, refused

DATA = Path(__file__).parents[1] / "data" / "small"
SMALL = ("--models", "fastformer,transformer", "--tokens", "64", "--width", "32", "--heads", "2")
QUICK = (*SMALL, "--lengths", "16,33", "--quick", "--device", "cpu", "--budget", "none")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A real sweep of two mechanisms at two lengths, in a folder with an odd name."""
    folder = tmp_path_factory.mktemp("sweeps") / "größe und zeit"
    done = here("sweep", *QUICK, "--out", folder)
    return folder, done


def test_a_sweep_leaves_its_journal_figures_and_tables(swept):
    folder, done = swept
    names = {path.name for path in folder.iterdir()}
    assert {"sweep.jsonl", "fig2.png", "memory.png", "tables.md", "cases.csv"} <= names
    assert "fastformer" in done.stdout
    assert "64 tokens per batch" in done.stderr
    first = r"N = (16|33) (inference|training)   (\w+) \S+ .s   (\w+) \S+ .s(, \S+× slower)?"
    told = [line for line in done.stderr.splitlines() if re.fullmatch(first, line)]
    assert len(told) == 2 * 2, done.stderr
    assert (folder / "fig2.png").read_bytes().startswith(b"\x89PNG")


def test_every_planned_case_was_measured(swept):
    frame = attnbench.load(swept[0]).cases
    assert len(frame) == 2 * 2 * 2
    assert set(frame["outcome"]) == {"ok"}
    assert (frame["time_s"] > 0).all()
    assert (frame["allocated_peak_bytes"] > 0).all()
    assert (frame["operators"] > 0).all()
    training = frame[frame["mode"] == "training"]
    assert (training["forward_backward_s"] < training["time_s"]).all()


def test_a_report_is_made_again_from_the_journal_alone(swept, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    shutil.copy(swept[0] / "sweep.jsonl", folder)
    here("report", folder)
    for name in ("tables.md", "cases.csv", "fig2.png", "latency_training.csv"):
        assert (folder / name).read_bytes() == (swept[0] / name).read_bytes(), name


@pytest.mark.parametrize(
    "words",
    [("--resume", "{}"), pytest.param((*QUICK, "--resume", "{}"), marks=pytest.mark.long)],
)
def test_a_resumed_sweep_that_is_done_measures_nothing(swept, words):
    before = len(load(swept[0]).runs)
    here("sweep", *(word.format(swept[0]) for word in words))
    assert len(load(swept[0]).runs) == before


def test_a_sweep_is_repeated_by_its_file(swept, tmp_path):
    def planned(*more):
        again = ("sweep", "--config", swept[0] / "sweep.toml", "--dry-run", *more)
        return here(*again, cwd=tmp_path).stdout

    table, *_ = planned().partition("Total time")
    assert here("sweep", *QUICK, "--dry-run").stdout.startswith(table)
    assert "Measured: 4 of 4 cases, rounds: 1." in planned("--lengths", "7"), "what is written wins"


def test_a_dry_run_writes_nothing(tmp_path):
    done = here("sweep", *QUICK, "--dry-run", cwd=tmp_path)
    rows = [line.split() for line in done.stdout.splitlines() if " 1 round" in line]
    assert len(rows) == 8
    assert rows[0][:3] == ["fastformer:eager", "training", "16"]
    assert "Total time: " in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--models", "linfromer"], r"unknown mechanism 'linfromer'; did you mean linformer"),
        (["--models", "transformer:egaer"], r"unknown form of transformer 'egaer'.*eager"),
        (["--models", "fastformer[rank=3]"], r"fastformer: no option 'rank'; options: .*inter"),
        (["--models", "nowhere.py:X"], r"no file 'nowhere.py'"),
        (["--lengths", "0"], "'0' is not between 1 and 16,777,216"),
        (["--width", "30", "--heads", "4"], r"30 is not divisible by 4"),
        (["--device", "cuda:99"], r"this machine has \d+ CUDA devices"),
        (["--device", "tpu"], r"'tpu' is not auto, cpu"),
        (["--resume", "a", "--out", "b"], r"--resume FOLDER is the folder .* leave out --out"),
        (["--resume", "nowhere"], r"no sweep in 'nowhere'"),
        (["--config", "nowhere.toml"], r"cannot read --config 'nowhere.toml': No such file"),
        (["--cold", "--device", "cpu"], r"--cold .* no effect on cpu"),
        (["--cuda-graphs", "--device", "cpu"], r"--cuda-graphs needs a GPU"),
        (["--layers", "3", "--level", "core"], r"--layers has no effect"),
        (["--mode", "decode", "--level", "core"], r"--mode decode has no level core: a step is"),
        (["--bogus"], r"No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_usage_is_one_line_and_writes_nothing(arguments, words, tmp_path):
    assert re.search(words, refused("sweep", *arguments, cwd=tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_folder_with_a_sweep_is_left_alone(tmp_path):
    folder = shutil.copytree(DATA, tmp_path / "there")
    before = (folder / "sweep.jsonl").read_bytes()
    done = here("sweep", *QUICK, "--out", folder, code=2)
    assert "already holds a sweep; --resume to continue it" in done.stderr
    other = here("sweep", *QUICK, "--resume", folder, code=2)
    assert "cannot resume" in other.stderr
    assert (folder / "sweep.jsonl").read_bytes() == before


def test_help_and_version():
    assert python("-m", "attnbench", "--version").stdout.startswith("attnbench ")
    shown = here("--help").stdout
    for verb in VERBS.values():
        assert verb.summary in " ".join(shown.split()), "it is cut"


@pytest.mark.parametrize(
    "command",
    [("bytes",), ("sweep", "--config"), ("check", "--baseline"), ("claims", DATA)],
    ids=lambda words: words[0],
)
def test_a_file_without_end_is_refused(command):
    assert "'/dev/zero' is larger than 16 MiB" in refused(*command, "/dev/zero")
