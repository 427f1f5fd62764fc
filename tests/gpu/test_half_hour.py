"""The half hour, at tiny sizes on an emulated GPU: each step runs to its end and is resumed."""

import json
import os
import signal
import subprocess
import sys
import tarfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from attnbench.devices.finding import find
from tests import emulated
from tests.gpu import half_hour
from tests.gpu.half_hour import FULL, STEP_S, STEPS, Command, carried_out, ended
from tests.gpu.needs import canonical, needed

ROOT = Path(__file__).parents[2]
HELD = {
    "questions": {"doctor.log", "asked.log", "timing.log", "compiled.log"},
    "figure": {"fig2/sweep.jsonl", "fig2/fig2.png", "fig2/report.html", "claims.log"},
    "bfloat16": {"attention/report.html", "decode/sweep.jsonl", "decode/report.html"},
    "speed": {"stopwatch.log", "speed.log"},
}


def call(step, out, *more):
    """The command of a step."""
    return [sys.executable, "-m", "tests.gpu.half_hour", step, "--out", str(out), *more]


def completed(command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def contents(archive):
    """Files of the archive by name, without the folder of the step."""
    with tarfile.open(archive) as packed:
        files = [member for member in packed if member.isfile()]
        return {f.name.partition("/")[2]: packed.extractfile(f).read() for f in files}


QUICKEST = "figure"
EACH = [
    pytest.param(s, marks=pytest.mark.long if s == QUICKEST else pytest.mark.faults) for s in STEPS
]


@pytest.mark.parametrize("step", EACH)
def test_a_call_that_is_cut_off_is_finished_by_the_next_one(step, tmp_path, tmp_path_factory):
    emulated.environment(tmp_path_factory.mktemp("libraries"))  # or this test is skipped
    archive = tmp_path / f"{step}.tar.gz"
    printed = cut_off(step, tmp_path, after=2)
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]
    (before,) = json.loads(contents(archive)["commands.json"])
    assert before["code"] == 0, printed
    done = completed(call(step, tmp_path, "--tiny"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("tried on an emulated GPU" in done.stdout) == bool(find("cuda").missing())
    found = contents(archive)
    assert HELD[step] | {"commands.json", "versions.json"} <= found.keys()
    commands = json.loads(found["commands.json"])
    first = commands[0]
    assert {command["code"] for command in commands} == {0}
    assert (first != before) == ("sweep" in first["words"]), "what went well is not done again"
    assert {f"{command['name']}.log" for command in commands} <= found.keys()
    assert "torch" in json.loads(found["versions.json"])["packages"]
    assert all(b'"device":"cuda"' in found[name] for name in found if name.endswith("sweep.jsonl"))
    if step == "figure":
        journal = found["fig2/sweep.jsonl"]
        assert journal.count(b'"kind":"session"') == 2
        assert journal.count(b'"part":"time"') == 8, "nothing is measured twice"


def cut_off(step, out, after):
    """What a call printed that was ended as it began its command of that number."""
    command = call(step, out, "--tiny")
    printed, begun = "", 0
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            printed += line
            begun += ", at most " in line
            if begun == after:
                process.terminate()
    return printed


@pytest.mark.parametrize("name", ["cuda:99", "tpu"])
def test_without_the_device_nothing_begins(name, tmp_path):
    done = completed(call("figure", tmp_path / "d", "--device", name))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert ("--tiny" if name == "cuda:99" else "--device 'tpu'") in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_went_well_is_known_to_the_next_call(tmp_path):
    good = Command(name="good", words=["true"], limit_s=1.0, code=0, took_s=0.5)
    others = [
        replace(good, name="bad", code=1),
        replace(good, name="late", code=None),
        replace(good, name="fig2", words=["attnbench", "sweep"]),  # it knows itself what is done
    ]
    (tmp_path / "commands.json").write_text(json.dumps([*map(asdict, [good, *others])]))
    assert half_hour.well_done(tmp_path) == {"good": good}
    assert half_hour.well_done(tmp_path / "none") == {}


def test_answers_are_written_as_they_are_found(tmp_path):
    """A command that is cut off leaves no report, and shows nothing of what it has captured."""
    (tmp_path / "conftest.py").write_text("from tests.gpu.conftest import answer\n")
    (tmp_path / "test_it.py").write_text(
        "import os\n\ndef test_it(answer):\n    answer('how many µs', 3)\n    os._exit(9)\n"
    )
    file = tmp_path / "answers.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ATTNBENCH_ANSWERS": str(file)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 9, done.stdout
    (line,) = file.read_text().splitlines()
    assert json.loads(line) == {"test": "test_it", "question": "how many µs", "found": "3"}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_fits_into_its_time_with_the_budgets_of_its_sweeps(step, tmp_path):
    planned = list(STEPS[step](tmp_path, "cuda", FULL))
    assert len({command.name for command in planned}) == len(planned)
    spent = 0.0
    for command in planned:
        if "--budget" in command.words:
            budget_s = float(command.words[command.words.index("--budget") + 1].rstrip("s"))
            assert 0 < budget_s < command.limit_s
            spent += budget_s
    assert spent < STEP_S - half_hour.PACKING_S <= 540


def command(code, limit_s=half_hour.GRACE_S + 600.0):
    return Command(name="one", words=(sys.executable, "-c", code), limit_s=limit_s)


def test_output_and_exit_code_of_a_command_are_kept(tmp_path, capsys):
    done = carried_out(command("print('found'); raise SystemExit(3)"), tmp_path, float("inf"))
    assert done.code == 3
    assert (tmp_path / "one.log").read_text() == "found\n"
    assert "found" in capsys.readouterr().out


def test_a_command_that_does_not_end_is_ended(tmp_path):
    waiting = [sys.executable, "-c", "input()"]
    process = subprocess.Popen(waiting, stdin=subprocess.PIPE, start_new_session=True)
    with process:
        assert ended(process) == -signal.SIGTERM
        assert ended(process) == -signal.SIGTERM, "it is over"


def test_no_command_begins_when_the_time_is_over(tmp_path):
    done = carried_out(command("print('begun')"), tmp_path, 0.0)
    assert done.code is None
    assert not list(tmp_path.iterdir())


def test_what_must_be_carried_is_listed_unless_it_is_there():
    project = ROOT / "pyproject.toml"
    everything = [*needed(project, "")]
    carried = {line.partition("==")[0] for line in everything if not line.startswith("#")}
    assert {"msgspec", "pandas", "pytest", "entmax", "pluggy"} <= carried
    assert "torch" not in carried
    less = [*needed(project, "msgspec==0.21.1\nPlugGy @ file:///x\n")]
    assert {line for line in everything if line not in less} == {
        line for line in everything if line.partition("==")[0] in ("msgspec", "pluggy")
    }


def test_a_package_has_one_name():
    assert canonical(" Typing_Extensions ") == canonical("typing.extensions") == "typing-extensions"
