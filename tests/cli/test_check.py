"""`check` and `selftest` as a user meets them: exit codes, files, signals, and what is left."""

import json
import re
import signal
import sys
import time
import xml.etree.ElementTree as ET
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from attnbench.gate.finding import Finding, Report
from attnbench.gate.measuring import Runner
from attnbench.gate.selftest import Detection, Rate
from attnbench.statistics.verdict import Verdict
from attnbench.store.selftest import sentence
from tests.cli.commands import here, refused, start
from tests.gate.repositories import Repository, planted
from tests.sweeps import environment

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
        *("--markdown", tmp_path / "page.md", "--junit", tmp_path / "junit.xml"),
        *("--html", tmp_path / "page.html"),
        cwd=repository.folder,
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(summary),
        code=1,
    )
    assert repository.state == before
    found = json.loads(done.stdout)
    assert found["exit_code"] == 1
    assert {row["metric"] for row in found["findings"] if row["fails"]} == {"operators"}
    assert "::error title=attnbench%3A small.py%3ACARD::" in done.stderr
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# attnbench check: FAILED")
    assert summary.read_text() == "before\n" + page
    assert "<h2>FAILED: " in (tmp_path / "page.html").read_text()
    assert ET.parse(tmp_path / "junit.xml").find(".//failure") is not None


def test_a_baseline_is_saved_and_gates_anywhere(repository, tmp_path):
    file, models = tmp_path / "baseline.json", ("--models", "small.py:CARD")
    here("check", "--save", file, *models, *QUICK, cwd=repository.folder)
    data = json.loads(file.read_text())
    assert all(row["operators"] > 0 for row in data["cases"].values())

    data["machine"]["processor"] = "another"
    for row in data["cases"].values():
        row["time"] = {"batch": 4, "seconds": [1.0, 1.0, 1.0]}
    file.write_text(json.dumps(data))
    again = here("check", "--baseline", file, cwd=repository.folder)
    assert again.stdout.startswith("OK: no regression")
    assert "times are not compared: processor: another and" in again.stdout

    repository.write("small.py", planted("weights.exp().exp()"))
    larger = here("check", "--baseline", file, "--no-times", cwd=repository.folder, code=1)
    assert larger.stdout.startswith("FAILED: 1 larger of 1 case;")
    assert re.search(r"Counted\n.*operators.* larger", larger.stdout, re.DOTALL)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "one of --base REF, --baseline FILE and --save FILE"),
        (("--base", "main", "--save", "x"), "one of --base"),
        (("--base", "nowhere"), "'nowhere' is not a commit of this repository"),
        (("--baseline", "nowhere.json"), "cannot read the baseline 'nowhere.json'"),
        (("--baseline", "small.py"), "small.py is not a baseline"),
        (("--changed", "--baseline", "x"), "--changed needs --base"),
        (("--save", "x", "--html", "y"), "--save judges nothing: leave out"),
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


def test_a_name_between_colons_is_no_picture(monkeypatch):
    case = "no.py:X:default/B8-N128-D256-H16/attention/inference/float32/cpu"
    lost = Finding(mechanism="m", case=case, metric="runs", verdict=Verdict.MISSING, unchecked=True)
    report = Report(base="a", head="b", findings=(lost,))
    monkeypatch.setattr("attnbench.cli.starting.runner", lambda *_, **__: nullcontext())
    monkeypatch.setattr("attnbench.gate.check.against_revision", lambda *_, **__: report)
    done = here("check", "--base", "main", code=2)
    assert done.stdout.startswith(f"NOT CHECKED: 1 of 1 case: {case}")


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 3)])
def test_an_unsure_check_fails_only_where_it_is_strict(options, code, monkeypatch):
    unsure = Finding(mechanism="m", case="c", metric="time_s", ratio=1.1, verdict=Verdict.UNSURE)
    same = Finding(mechanism="m", case="c", metric="operators", verdict=Verdict.SAME)
    report = Report(base="a", head="b", findings=(unsure, same))
    monkeypatch.setattr("attnbench.cli.starting.runner", lambda *_, **__: nullcontext())
    monkeypatch.setattr("attnbench.gate.check.against_revision", lambda *_, **__: report)
    here("check", "--base", "main", *options, code=code)


def test_outside_of_a_repository_there_is_no_base(tmp_path):
    said = refused("check", "--base", "main", cwd=tmp_path, GIT_CEILING_DIRECTORIES="/")
    assert "not in the working tree of a git repository" in said


@pytest.mark.faults
def test_a_selftest_is_kept_for_check_to_quote(repository, tmp_path):
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = here("selftest", "--length", "16", "--budget", "3m", "--json", **cache)
    stored = json.loads(done.stdout)
    assert [rate["share"] for rate in stored["rates"]] == [0.0, 0.02, 0.05, 0.1, 0.2]
    assert "false alarms in" in stored["sentence"]
    timed = ("--lengths", "16", "--mode", "inference", "--budget", "20s")
    checked = here("check", "--base", "main", *timed, cwd=repository.folder, **cache)
    assert stored["sentence"] in checked.stdout + checked.stderr


def test_a_selftest_prints_what_it_keeps_for_check(tmp_path, monkeypatch):
    """Whatever was measured: here, that every check of 20 % more work finds it."""
    rates = [Rate(share=share, checks=9, slower=9 * (share > 0), faster=0, unsure=0)
             for share in (0.0, 0.2)]  # fmt: skip
    machine = environment().fingerprint
    runner = Runner(server=None, machine=lambda: machine)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("attnbench.cli.starting.runner", lambda device, seed: nullcontext(runner))
    monkeypatch.setattr(
        "attnbench.gate.selftest.detected", lambda *_: Detection(rates=tuple(rates), pairs=24)
    )
    printed = json.loads(here("selftest", "--json").stdout)
    assert printed["machine"]["torch"] == machine.torch
    assert "detects slowdowns of 20 % or more; 0 false alarms in 9 checks" in printed["sentence"]
    assert sentence(machine) == printed["sentence"]
    assert not sentence(replace(machine, cores=7))


def test_a_selftest_without_time_for_its_pairs_says_how_much_it_needs(tmp_path):
    said = refused("selftest", "--budget", "20s", XDG_CACHE_HOME=str(tmp_path))
    assert re.search(r"needs at least \d+ s here, --budget gives 20 s; try --budget \d+s", said)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_a_stopped_check_leaves_no_worktree_and_no_process(number, repository):
    ready = repository.folder / ".git" / "ready"
    # the mechanism itself says that it is being measured, by which process, and then hangs
    says = f"open({str(ready)!r}, 'w').write(str(os.getpid()))"
    repository.write("small.py", "import os, time\n" + planted(f"{says}; time.sleep(600)"))
    before = repository.git("status", "--porcelain"), repository.git("worktree", "list")
    with start("check", "--base", "main", *QUICK, cwd=repository.folder) as process:
        while not (ready.exists() and ready.read_text()) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == 128 + number
    assert "interrupted" in err
    assert "Traceback" not in err
    assert (repository.git("status", "--porcelain"), repository.git("worktree", "list")) == before
    assert is_gone(int(ready.read_text()))


def is_gone(pid):
    """Whether the process has ended, reaped or not."""
    try:
        return "(zombie)" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("given", [("--baseline", "any.json"), ("--base", "HEAD", "--call", "m:f")])
@pytest.mark.parametrize("option", [("--lengths", "64"), ("--level", "core"), ("--mode", "both")])
def test_an_option_without_effect_is_refused(given, option):
    without_effect(given, option)


@pytest.mark.parametrize(
    "given", [("--baseline", "any.json"), ("--save", "any.json"), ("--base", "HEAD", "--no-times")]
)
def test_a_threshold_is_one_of_times_beside_those_of_a_revision(given):
    without_effect(given, ("--threshold", "0.1"))


def without_effect(given, option):
    done = here("check", *given, *option, code=2)
    assert done.stderr.count("\n") == 1
    assert f"{option[0]} has no effect" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((f"--{name}", "x") for name in ("seed", "lengths", "level", "mode", "budget")),
        ("--threshold", "2"),
        ("--device", "cuda:x"),
        ("--markdown", "nowhere/page.md"),
    ],
)
def test_a_mistake_is_said_before_any_process_starts(option, value):
    done = here("check", "--base", "HEAD", option, value, code=2)
    assert option in done.stderr or value in done.stderr
    assert done.stderr.count("\n") == 1, "nothing is begun"
