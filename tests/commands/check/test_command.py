"""`check` as a user meets it: exit codes, files, signals, and what is left."""

import json
import re
import signal
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from attnbench.commands.check.finding import CheckAnswer, CheckReport, Finding
from tests.commands.check.repositories import Repository, planted
from tests.commands.commands import here, refused
from tests.faults.real import start

QUICK = ("--lengths", "16", "--mode", "inference", "--no-times")


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path / "größe und zeit")
    made.write("small.py", planted("weights.exp()"))
    return made


def test_a_failing_check_writes_every_output(repository, tmp_path):
    before = repository.state
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    done = here(
        *("check", "--base", "main", *QUICK, "--json"),
        *("--formats", "markdown,junit,bmf", "--out", tmp_path / "new"),
        cwd=repository.folder,
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(summary),
        code=1,
    )
    assert repository.state == before
    found = json.loads(done.stdout)
    assert found["exit_code"] == 1
    assert {row["metric"] for row in found["findings"] if row["fails"]} == {"operators"}
    assert "::error file=small.py,title=attnbench%3A small.py%3ACARD::" in done.stderr
    page = (tmp_path / "new" / "check.md").read_text()
    assert page.startswith("# attnbench check: FAILED")
    assert summary.read_text() == "before\n" + page
    assert ET.parse(tmp_path / "new" / "junit.xml").find(".//failure") is not None
    assert list(json.loads((tmp_path / "new" / "bmf.json").read_text())) == [
        "small.py:CARD:eager/inference/N16"
    ]


def test_a_baseline_is_saved_and_gates_anywhere(repository, tmp_path):
    file, models = tmp_path / "baseline.json", ("--models", "small.py:CARD")
    here("check", "--save", file, *models, *QUICK[:-1], cwd=repository.folder)
    data = json.loads(file.read_text())
    assert all(row["counts"]["operators"] > 0 for row in data["cases"].values())

    file.write_text(json.dumps({**data, "torch": "another"}))
    again = here("check", "--baseline", file, cwd=repository.folder)
    assert again.stdout.startswith("OK: no regression")
    assert "saved with torch another" in again.stdout
    repository.write("small.py", planted("weights.exp().exp()"))
    larger = here("check", "--baseline", file, cwd=repository.folder, code=1)
    assert larger.stdout.startswith("FAILED: 1 larger of 1 case")
    assert re.search(r"Counted\n.*operators.* larger", larger.stdout, re.DOTALL)


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 3)])
def test_only_a_strict_check_fails_what_is_uncertain(options, code, tmp_path, monkeypatch):
    same = Finding(mechanism="m", case="c", metric="time_s", answer=CheckAnswer.SAME, ratio=1.0)
    unsure = Finding(
        mechanism="m", case="d", metric="time_s", answer=CheckAnswer.NOT_KNOWN, ratio=1.02
    )
    found = CheckReport(base="a", head="b", findings=(same, unsure))
    monkeypatch.setattr("attnbench.commands.check.baseline.against_file", lambda *_: found)
    here("check", "--baseline", tmp_path / "x.json", *options, code=code)


def test_what_is_always_causal_is_saved_as_it_was_counted(tmp_path):
    file = tmp_path / "baseline.json"
    here("check", "--save", file, "--models", "mamba2", *QUICK[:-1])
    assert here("check", "--baseline", file).stdout.startswith("OK: no regression in 1 case")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "one of --base REF, --baseline FILE and --save FILE"),
        (("--base", "main", "--save", "x"), "one of --base"),
        (("--base", "nowhere"), "'nowhere' is not a commit of this repository"),
        (("--baseline", "nowhere.json"), "cannot read the baseline 'nowhere.json'"),
        (("--baseline", "small.py"), "small.py is not a baseline"),
        (("--save", "x", "--formats", "bmf"), "--formats has no effect: --save judges nothing"),
        (("--base", "main", "--out", "x"), "--out has no effect without --formats"),
        (("--base", "main", "--formats", "xml"), "'xml': known are markdown, junit, bmf"),
        (("--base", "main", "--call", ""), "--call '' has an empty part"),
        (("--base", "main", "--call", "small:f, small"), "'small' is not of the form package.mod"),
        (("--base", "main", "--models", "linfromer"), "did you mean linformer"),
        (("--base", "main", "--models", "../x.py:C"), "no file|outside the repository"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_usage_is_one_line_and_leaves_no_trace(arguments, words, repository):
    before = repository.state
    said = refused("check", *arguments, cwd=repository.folder)
    assert any(word in said for word in words.split("|"))
    assert repository.state == before


def test_outside_of_a_repository_there_is_no_base(tmp_path):
    said = refused("check", "--base", "main", cwd=tmp_path, GIT_CEILING_DIRECTORIES="/")
    assert "not in the working tree of a git repository" in said


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_a_stopped_check_leaves_no_file_and_no_process(number, repository, tmp_path):
    ready = tmp_path / "ready"
    # the mechanism itself says that it is being measured, by which process, and then hangs
    says = f"open({str(ready)!r}, 'w').write(str(os.getpid()))"
    repository.write("small.py", "import os, time\n" + planted(f"{says}; time.sleep(600)"))
    before = repository.state
    with start("check", "--base", "main", *QUICK, cwd=repository.folder) as process:
        while not (ready.exists() and ready.read_text()) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == 128 + number, err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert repository.state == before
    assert is_gone(int(ready.read_text()))


def is_gone(pid):
    """Whether the process has ended, reaped or not."""
    try:
        return "(zombie)" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


ALL = "--lengths 64 --level core --mode both --device cpu --models x --threshold 0.1"


@pytest.mark.parametrize(
    ("given", "useless"),
    [
        ("--baseline any.json", "--lengths --level --device --models --threshold"),
        ("--base HEAD --call m:f", "--lengths --level --mode --device"),
        ("--base HEAD --no-times", "--threshold"),
        ("--save any.json", "--threshold --no-times --strict"),
    ],
)
def test_an_option_without_effect_is_refused_before_anything_begins(given, useless):
    words = ALL.split()
    values = dict(zip(words[::2], words[1::2], strict=True))
    for option in useless.split():
        value = (values[option],) if option in values else ()
        done = here("check", *given.split(), option, *value, code=2)
        assert f"{option} has no effect" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "mistake",
    ["--lengths x", "--level x", "--mode x", "--budget x", "--threshold 2", "--device cuda:x"],
)
def test_a_mistake_is_said_before_anything_begins(mistake):
    done = here("check", "--base", "HEAD", *mistake.split(), code=2)
    assert re.search(mistake.replace(" ", "|"), done.stderr)
    assert done.stderr.count("\n") == 1
