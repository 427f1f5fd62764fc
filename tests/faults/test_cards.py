"""Harmful cards of users' files run in a separate process and give one line and exit code 2."""

import os
from itertools import islice
from pathlib import Path

import pytest

from attnbench.running import plan
from tests.commands.commands import here
from tests.faults.hostile_cards import AT_IMPORT

FILE = Path(__file__).with_name("hostile_cards.py")
SWEEP = ("--lengths", "16", "--width", "16", "--heads", "2", "--quick", "--device", "cpu")
ENDED, LATE = "the process ended without an answer (exit 0)", "could not be read within 1 s"
REASONS = {
    "leaves": ENDED,
    "segfaults": "the process was killed by signal 11",
    "loops": LATE,
    "exits": "cannot be loaded: SystemExit: 0",
    "raises": "cannot be loaded: RuntimeError: one",
    "shouts": ENDED,
    "DEFAULT_LOOPS": LATE,
    "DEFAULT_RAISES": "its card fails: ZeroDivisionError: division by zero",
    "NEEDS_LEAVES": ENDED,
    "NEEDS_ODD": "cannot be planned: Expected `str`",
    "FLOPS_LEAVE": ENDED,
}
USUAL = ("raises", "exits", "DEFAULT_RAISES", "FLOPS_LEAVE")  # others take seconds each


def refused(done, *words):
    """One line with the reason, after the progress line."""
    first, last = done.stderr.splitlines()
    assert first.endswith("reading mechanisms …")
    assert last.startswith("attnbench: ")
    assert "\x1b" not in done.stderr
    for word in words:
        assert word in done.stderr


def verbs(name, tmp_path):
    yield "sweep", "--models", name, *SWEEP, "--out", tmp_path / "out"
    yield "sweep", "--models", name, *SWEEP, "--dry-run"
    yield "models", name
    yield "models", name, "--verify"


@pytest.mark.parametrize(
    "which", [pytest.param(w, marks=() if w in USUAL else pytest.mark.long) for w in REASONS]
)
def test_a_file_that_does_harm_when_imported_or_asked(which, tmp_path, monkeypatch):
    """Each in a process of its own, so that one verb stands for all, which are tried with one."""
    if REASONS[which] == LATE:
        monkeypatch.setattr(plan, "TIMEOUT_S", 1.0)
    name = f"{FILE}:{which}"
    if which in AT_IMPORT:
        (tmp_path / f"{which}.py").write_text(AT_IMPORT[which])
        name = f"{tmp_path / which}.py:Thing"
    for words in islice(verbs(name, tmp_path), 4 if which == "leaves" else 1):
        refused(here(*words, code=2), name, REASONS[which])
    assert not (tmp_path / "out").exists()


def test_the_harmful_one_among_several_is_named():
    bad = f"{FILE}:FLOPS_LEAVE"
    names = f"fastformer,{FILE}:GOOD,{bad},linformer"
    done = here("sweep", "--models", names, *SWEEP, "--dry-run", code=2)
    refused(done, f"mechanism {bad!r}")


def test_a_default_that_is_no_form_is_refused():
    done = here("sweep", "--models", f"{FILE}:DEFAULT_UNKNOWN", *SWEEP, "--dry-run", code=2)
    refused(done, "unknown default form", "'fused'", "did you mean folded")


@pytest.mark.long
def test_the_parent_never_imports_a_users_file(tmp_path):
    """Neither to plan nor to measure nor to verify: other processes import it."""
    file, log = tmp_path / "mine.py", tmp_path / "importers"
    file.write_text(
        "import os\n"
        f"with open({str(log)!r}, 'a') as out:\n"
        "    print(os.getpid(), file=out)\n"
        "from attnbench.mechanisms.fastformer import CARD\n"
    )
    for words in verbs(f"{file}:CARD", tmp_path):
        here(*words)
    imported = log.read_text().split()
    assert len(imported) >= 4
    assert str(os.getpid()) not in imported


@pytest.mark.long
def test_a_bad_package_is_named_and_the_others_are_read(monkeypatch):
    """In the list of `doctor` of what does not run here."""
    from attnbench.commands.doctor.command import examine
    from attnbench.mechanisms.catalogue import registry
    from attnbench.running.session import measuring_server

    monkeypatch.setattr(registry, "entry_points", lambda **_: {Point("broken")})
    with measuring_server(1) as server:
        found = examine("cpu", server)
    assert "unknown mechanism 'broken'" in found["broken"]
    assert any("xformers" in form for form in found)


class Point:
    """An entry point that is listed but whose package the reader does not find."""

    def __init__(self, name):
        self.name = name
