"""Errors that a user can cause: their exit codes, and what they say in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench import errors
from attnbench.errors import (
    AttnbenchError,
    Interrupted,
    SweepExists,
    UsageError,
    clean,
    first_line,
    one_line,
    small_file,
)

EVERY = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, AttnbenchError)
]


def test_the_tree_of_errors_is_as_it_is_drawn():
    """A class stands below the one that it inherits from, with its exit code."""
    above, drawn = [], {}
    for line in errors.__doc__.splitlines():
        name, _, further = line.lstrip(" │├└─").partition(" ")
        if isinstance(vars(errors).get(name), type):
            depth = (len(line) - len(line.lstrip(" │├└─"))) // 4 - 1
            above[depth:] = [name]
            drawn[name] = (above[-2] if depth else "Exception", further.split()[0])
    kinds = {kind.__name__: kind for kind in EVERY}
    assert len(drawn) > 10
    for name, (parent, code) in drawn.items():
        assert kinds[name].__mro__[1].__name__ == parent
        if parent != "Exception" and name != "Interrupted":  # whose code follows from its signal
            assert str(kinds[name].exit_code) == code, name


@pytest.mark.parametrize(("number", "code"), [(2, 130), (15, 143), (1, 129)])
def test_a_signal_ends_with_the_code_of_a_shell(number, code):
    assert Interrupted("kept", number).exit_code == code


def test_a_folder_that_is_taken_is_named_with_the_ways_out(tmp_path):
    text = str(SweepExists(tmp_path / "a b"))
    assert repr(str(tmp_path / "a b")) in text
    assert "--resume" in text
    assert "--out" in text


@given(st.text(max_size=40))
def test_a_clean_text_is_one_printable_line(text):
    found = clean(text)
    assert found.isprintable()
    assert len(found.splitlines()) <= 1
    assert clean(found) == found
    assert not text.isprintable() or found == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a\tb\r\nc", "a b  c"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u202eabc", "\\x202eabc"),
        ("α × 7 %", "α × 7 %"),
    ],
)
def test_what_controls_a_terminal_is_made_visible(text, found):
    assert clean(text) == found


@pytest.mark.parametrize(
    ("error", "line", "named"),
    [
        (ValueError("one\ntwo"), "one", "ValueError: one"),
        (ValueError("\n  one  \n"), "one", "ValueError: one"),
        (KeyError(), "", "KeyError"),
    ],
)
def test_of_a_message_its_first_line_is_said(error, line, named):
    assert (first_line(error), one_line(error)) == (line, named)


def test_a_file_that_is_far_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(errors, "LARGEST_FILE", 10)
    file = tmp_path / "file"
    file.write_bytes(b"x" * 10)
    assert small_file(file) == b"x" * 10
    file.write_bytes(b"x" * 11)
    with pytest.raises(UsageError, match="is larger than 0 MiB; give another"):
        small_file(file)
