"""The half hour, at tiny sizes on an emulated GPU: each step runs to its end and is resumed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests import emulated
from tests.gpu.half_hour import (
    AROUND_S,
    COMPILED,
    GRACE_S,
    STEP_S,
    STEPS,
    carried_out,
    python,
    run,
)
from tests.gpu.test_parity import every

ROOT = Path(__file__).parents[2]
HELD = {
    "smoke": {"smoke/sweep.jsonl", "smoke/fig2.png", "smoke/report.html"},
    "questions": {"asked.log", "decoding.log", "forgetting.log", "timing.log", "compiled.log"},
    "figure": {"fig2/sweep.jsonl", "fig2/fig2.png", "fig2/report.html", "claims.log"},
    "bfloat16": {"attention/report.html", "decode/sweep.jsonl", "decode/report.html"},
    "doubts": {"cliff/sweep.jsonl", "replayed/report.html", "stopwatch.log"},
}
QUICKEST = "figure"
EACH = [
    pytest.param(s, marks=pytest.mark.long if s == QUICKEST else pytest.mark.faults) for s in STEPS
]


@pytest.mark.parametrize("step", EACH)
def test_a_call_that_is_cut_off_is_finished_by_the_next_one(step, tmp_path, tmp_path_factory):
    libraries = tmp_path_factory.mktemp("libraries")
    env = {**os.environ, **emulated.environment(libraries)}
    command = [sys.executable, "-m", "tests.gpu.half_hour", step, "--tiny", "--out", tmp_path]
    begun, output = 0, {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=env, **output) as process:
        for line in process.stdout:
            begun += ", at most " in line
            if begun == 2:
                process.terminate()
    folder = tmp_path / step
    (first,) = json.loads((folder / "codes.json").read_text()).items()
    assert first[1] == 0
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    sweeps = {name for name, _, words in STEPS[step](folder, True) if "sweep" in words}
    # a sweep knows itself what is left of it
    assert (f"\n{first[0]}, at most" in done.stdout) == (first[0] in sweeps)
    codes = json.loads((folder / "codes.json").read_text())
    assert set(codes.values()) == {0}
    assert all((folder / file).exists() for file in HELD[step] | {f"{name}.log" for name in codes})
    if step == "figure":
        journal = (folder / "fig2" / "sweep.jsonl").read_bytes()
        assert b'"device":"cuda"' in journal
        assert journal.count(b'"kind":"session"') == 2
        assert journal.count(b'"part":"time"') == 8, "nothing is measured twice"


@pytest.mark.parametrize("step", STEPS)
def test_a_step_fits_into_its_time_with_the_budgets_of_its_sweeps(step, tmp_path):
    planned = list(STEPS[step](tmp_path, False))
    assert len({name for name, *_ in planned}) == len(planned)
    budgets_s = 0.0
    for _, limit_s, words in planned:
        if "--budget" in words:
            budget_s = float(words[words.index("--budget") + 1].rstrip("s"))
            assert 0 < budget_s < limit_s - AROUND_S
            budgets_s += budget_s
    assert budgets_s < STEP_S


@pytest.mark.long
def test_the_smoke_step_is_two_minutes_of_what_no_mechanism_refuses(tmp_path):
    ((_, limit_s, words),) = STEPS["smoke"](tmp_path / "smoke", False)
    assert limit_s <= 120
    env = {**os.environ, **emulated.environment(tmp_path, EMULATED_CUDA_MEMORY=79)}
    command, output = [*words, "--dry-run"], {"capture_output": True, "text": True}
    done = subprocess.run(command, cwd=ROOT, env=env, **output, check=False)
    assert done.returncode == 0, done.stderr
    planned, measured = done.stdout.count("1 round "), re.search(r"(\d+) of \1 cases", done.stdout)
    assert measured, done.stdout
    assert planned == int(measured[1]) == 12


def test_compiled_forms_are_chosen_by_whole_names():
    wanted = Expression.compile(COMPILED)
    names = [f"test_it[{trial.id}-float32]" for trial in every(compiled=True)]
    found = {name for name in names if wanted.evaluate(lambda part, *, name=name: part in name)}
    mechanisms = {name.partition("[")[2].partition("-")[0] for name in found}
    assert mechanisms == {"transformer", "fastformer", "longformer", "bigbird"}


def test_what_failed_is_done_again_and_what_went_well_is_not(tmp_path, capsys):
    good, bad = python("-c", "print('found')"), python("-c", "raise SystemExit(3)")
    commands = [("good", 600.0, good), ("bad", 600.0, bad), ("late", 0.0, good)]
    for again in (False, True):
        assert run(commands, tmp_path) == 1
        codes = json.loads((tmp_path / "codes.json").read_text())
        assert codes == {"good": 0, "bad": 3, "late": -1}
        out = capsys.readouterr().out
        assert ("found\n" in out) != again
        assert "exit code 3" in out
        assert "no time left" in out


def test_a_command_that_does_not_end_is_ended(tmp_path):
    waits = python("-c", "import time; time.sleep(60)")
    assert carried_out("waits", GRACE_S + 0.2, waits, tmp_path) == 124
