"""Output to other encodings, closed pipes, full devices, narrow terminals and no terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.real import SMALL, attnbench, command, complete, environment, said

FULL = Path("/dev/full")
ALPHABETS = (
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"PYTHONIOENCODING": "latin-1"},
)
NARROW = 30


def shell(line, *, env=None):
    """Runs a line of bash in which "$@" is attnbench."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}", "bash", *command()],
        env=environment(**(env or {})),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ('"$@" --version > /dev/full', 2, "attnbench: the system refused: OSError: "),
        ('"$@" --version 2> /dev/full', 0, ""),
        ('"$@" --version >&-', 0, ""),
        ('"$@" --help | true', 0, ""),
        ('"$@" report 2>&-', 2, ""),
    ],
)
def test_streams_that_fail_do_not_decide(line, code, words):
    done = shell(line)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(words)
    assert done.stderr.count("\n") == (1 if words else 0)


@pytest.mark.faults
@pytest.mark.parametrize("line", ['"$@" report {} | head -1', '"$@" report {} --json | head -1'])
def test_a_reader_that_leaves_is_not_a_failure(swept, line):
    done = shell(line.format(swept))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert (swept / "report.html").exists()


@pytest.mark.faults
@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(("to", "code"), [("> /dev/full", 2), (">&-", 0), ("2>&-", 0)])
def test_a_sweep_whose_words_go_nowhere_is_whole(tmp_path, to, code):
    folder = tmp_path / "sweep"
    done = shell(f'"$@" sweep {" ".join(SMALL)} --out {folder} {to}')
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    complete(folder)


@pytest.mark.faults
@pytest.mark.parametrize("env", ALPHABETS, ids=lambda env: "-".join(env))
@pytest.mark.parametrize("name", [os.fsencode("größe und 時間"), b"not \xff utf-8"])
def test_any_alphabet_and_any_folder_do(tmp_path, env, name):
    folder = os.fsencode(tmp_path) + b"/" + name
    path = os.fsdecode(folder)
    said(attnbench("sweep", *SMALL, "--out", path, env=env, encoding="utf-8", errors="replace"), 0)
    complete(Path(path))
    done = attnbench("report", path, env=env, encoding="utf-8", errors="replace")
    said(done, 0)
    assert "Fastformer" in done.stdout


def on_a_terminal(*arguments, columns=NARROW, until=None):
    """Exit code and output on a terminal with so many columns, which may hang up at a word."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 20, columns, 0, 0))
    variables = environment(COLUMNS=str(columns), TERM="xterm-256color")
    process = subprocess.Popen(
        command(*arguments), env=variables, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    sent = b""
    with suppress(OSError):  # the other end is closed
        while until is None or until not in sent:
            sent += os.read(ours, 65536)
    os.close(ours)
    return process.wait(), sent.decode()


@pytest.mark.faults
@pytest.mark.parametrize("columns", [1, 10, NARROW])
def test_a_narrow_terminal_gets_narrow_tables(swept, columns):
    code, sent = on_a_terminal("report", swept, columns=columns)
    assert code == 0
    assert "Traceback" not in sent
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    assert max(map(len, plain.replace("\r", "").split("\n"))) <= columns


@pytest.mark.faults
def test_a_terminal_that_is_hung_up_loses_no_run(tmp_path):
    """Its window is closed in the middle: every later word fails."""
    code, sent = on_a_terminal("sweep", *SMALL, "--out", tmp_path, until=b"fastformer")
    assert code in (0, 2, 129), code
    assert "\x1b[" in sent, "no progress was shown"
    if code:
        said(attnbench("sweep", *SMALL, "--resume", tmp_path), 0)
    complete(tmp_path)
