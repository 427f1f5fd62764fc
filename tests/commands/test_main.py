"""How the program begins and ends: a first line, one line for each error, and never by chance 1."""

import errno
import io
import re
from contextlib import redirect_stderr

import pytest

from attnbench.commands import main, verbs
from attnbench.errors import CannotRun
from tests.commands.commands import here, python, refused

FIRST = """
import sys
from attnbench.__main__ import main
from attnbench.commands import console
def begin(doing):
    print(doing, file=sys.stderr)
    sys.exit(9 if "torch" in sys.modules or "pandas" in sys.modules else 7)
console.begin = begin
sys.argv = "attnbench {words}".split()
main()
"""


@pytest.mark.parametrize(
    "words",
    ["sweep", "models", "doctor", "check --base HEAD", "explain fnet local --length 16"],
)
def test_a_verb_says_what_it_does_before_anything_heavy_is_loaded(words):
    assert python("-c", FIRST.format(words=words), code=7).stderr.strip()


@pytest.fixture
def ends(monkeypatch):
    """Runs the program with a verb that raises; exit code and errors."""

    def ended(error):
        def doctor():
            raise error

        monkeypatch.setattr("attnbench.commands.doctor.command.doctor", doctor)
        verbs.command.cache_clear()
        monkeypatch.setattr(main.sys, "argv", ["attnbench", "doctor"])
        with redirect_stderr(io.StringIO()) as err:
            code = main.run()
        verbs.command.cache_clear()
        return code, err.getvalue()

    return ended


@pytest.mark.parametrize("error", [ImportError("libx.so: no room"), AssertionError("\u202e")])
def test_what_nobody_foresaw_is_a_line_below_its_traceback(ends, error):
    code, err = ends(error)
    assert code == 2
    assert err.startswith("Traceback")
    assert err.splitlines()[-1].startswith(f"attnbench: unexpected {type(error).__name__}: ")
    assert "\u202e" not in err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CannotRun("no GPU"), "no GPU"),
        # its exit code is not the gate's 1
        (BrokenPipeError(errno.EPIPE, "Broken pipe"),
         "the system refused: BrokenPipeError: [Errno 32] Broken pipe"),
        (MemoryError(), "the system refused: MemoryError"),
    ],
)  # fmt: skip
def test_what_was_foreseen_is_a_line_alone(ends, error, said):
    assert ends(error) == (2, f"attnbench: {said}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--b\u202eogus"], r"No such option:? '?--b\\[xu]202eogus"),
        (["sweep", "--b\u202eogus"], r"No such option:? '?--b\\[xu]202eogus"),
        (
            ["sweep", "--level", "a\u202eb\x1b[2J"],
            "--level 'a.*b.*' is not core or attention or model",
        ),
        (["n\u202eo"], "No such command"),
        (["report"], "Missing argument .SWEEP.; see attnbench report --help"),
    ],
)
def test_what_the_parser_cannot_read_is_one_clean_line(arguments, words):
    said = refused(*arguments)
    assert re.match("attnbench: " + words, said), said
    assert said.isprintable()


def test_without_a_verb_the_help_is_shown():
    assert "Commands:" in here(code=2).stderr
