"""Where text goes, and what of it is shown: no control characters, and null for no number."""

import errno
import io
import json
import math
import os

import pandas as pd
import pytest

from attnbench.commands import console
from attnbench.commands.console import plain
from attnbench.report.grid import Table, words


def test_a_newline_in_the_name_of_a_folder_is_shown_and_not_printed(capsys):
    console.err().print("figures and tables are in a\nb\x1b[2J")
    assert capsys.readouterr().err == "figures and tables are in a\\nb\\x1b[2J\n"
    console.out().print("an equation\nof no.py:X:default")  # which is a picture to rich
    assert capsys.readouterr().out == "an equation\nof no.py:X:default\n"


def test_what_is_not_a_number_is_null_in_json():
    found = {"a": math.nan, "b": [1, math.inf], "c": pd.DataFrame({"x": [0.5, math.nan]})}
    assert plain(found) == {"a": None, "b": [1, None], "c": [{"x": 0.5}, {"x": None}]}


def test_data_are_json_in_ascii_without_control_characters(capsys):
    console.data({"a": ("größe", "\x1b[2J"), "n": math.nan})
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out) == {"a": ["größe", "\x1b[2J"], "n": None}


def test_each_warning_is_a_line_with_what_it_concerns(capsys):
    console.warn(["few rounds", "a\nb"])
    console.warn(["few rounds"], of="sweeps/a")
    assert capsys.readouterr().err.splitlines() == [
        "warning: few rounds",
        "warning: a\\nb",
        "warning: sweeps/a: few rounds",
    ]


@pytest.mark.parametrize(
    ("number", "log", "swallowed"),
    [
        (errno.EPIPE, False, True),
        (errno.ENOSPC, False, False),
        (errno.ENOSPC, True, True),
        (errno.EIO, False, False),  # a terminal that hung up has it, and a disk too
    ],
)
def test_a_stream_goes_on_without_its_reader_and_a_log_without_its_disk(
    number, log, swallowed, tmp_path
):
    class Refusing(io.FileIO):
        def write(self, data):
            raise OSError(number, os.strerror(number))

    class Stream(console.Stream, Refusing):
        pass

    with Stream(tmp_path / "file", "w") as stream:
        stream.log = log
        if swallowed:
            assert stream.write(b"abc") == 3
        else:
            with pytest.raises(OSError, match=os.strerror(number)):
                stream.write(b"abc")


@pytest.fixture
def full():
    """Both ends of a pipe that must not block and has no room."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, bytes(1 << 12))
        except BlockingIOError:
            break
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_a_log_drops_what_does_not_fit_and_the_sweep_goes_on(full):
    _, writer = full
    raw = console.Stream(writer, "w", closefd=False)
    raw.log = True
    text = io.TextIOWrapper(io.BufferedWriter(raw), line_buffering=True)
    print("x" * (1 << 20), file=text)
    print("one line more", file=text, flush=True)


def test_results_wait_until_there_is_room_for_them(full, monkeypatch):
    reader, writer = full
    read = []

    def room(readers, writers, others):
        assert not readers
        assert [each.fileno() for each in writers] == [writer]
        read.append(os.read(reader, 1 << 24))

    monkeypatch.setattr(console, "select", room)
    text = io.TextIOWrapper(
        io.BufferedWriter(console.Stream(writer, "w", closefd=False)), line_buffering=True
    )
    print("x" * (1 << 20), file=text, flush=True)
    read.append(os.read(reader, 1 << 24))
    assert b"".join(read).strip(b"\0") == b"x" * (1 << 20) + b"\n"


def test_a_table_is_wide_where_there_is_no_terminal(capsys):
    rows = ((words("a" * 70), words("b" * 70)),)
    console.show(Table(name="t", title="Title", columns=("One", "Two"), rows=rows))
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.strip() == "Title"
    assert any("a" * 70 in line and "b" * 70 in line for line in lines)
