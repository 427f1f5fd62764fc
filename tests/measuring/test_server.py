"""The program that forks measuring processes: what it imports, asks, and says of errors."""

import json
import os
import socket
import sys
import sysconfig
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.measuring.server import (
    STATUS,
    Conversation,
    error_text,
    module_name_in,
    outside_packages,
    put_first,
    serve,
    tell,
)


class Echo:
    """Answers with its question; raises and gives what is no data where it is asked to."""

    def answer(self, do, **fields):
        if do == "raise":
            raise SystemExit("gone\nand more")
        return {"outcome": "ok", "given": {1j} if do == "odd" else [do, fields]}


@pytest.fixture
def asked():
    """A function that sends lines to a worker that serves, and gives its next answer."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs, Echo()), daemon=True)
    thread.start()
    lines = ours.makefile("rb")

    def ask(number, **question):
        ours.sendall(json.dumps([number, question]).encode() + b"\n")
        return json.loads(lines.readline())

    yield ask
    ours.shutdown(socket.SHUT_RDWR)
    thread.join(10)
    assert not thread.is_alive(), "it ends with the connection"
    ours.close()
    theirs.close()


def test_every_question_has_an_answer_with_its_number(asked):
    assert asked(5, do="lap", iterations=3) == [
        5,
        {"outcome": "ok", "given": ["lap", {"iterations": 3}]},
    ]
    assert asked(6, do="raise") == [6, {"outcome": "failed", "reason": "SystemExit: gone"}]
    number, answer = asked(7, do="odd")
    assert (number, answer["outcome"]) == (7, "failed")
    assert answer["reason"].startswith("TypeError: ")


def test_a_child_of_a_worker_answers_nothing(monkeypatch):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        conversation = Conversation(theirs)
        conversation.owner = -1
        monkeypatch.setattr(os, "_exit", sys.exit)
        with pytest.raises(SystemExit):
            conversation.reply({})
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)
        conversation.lines.close()


def test_what_became_of_a_process_is_told_to_whoever_listens():
    ours, theirs = socket.socketpair()
    tell(theirs, 12, code=-9, survivors=2)
    assert STATUS.unpack(ours.recv(100)) == (12, -9, 2)
    ours.close()
    tell(theirs, 13)
    theirs.close()


@given(st.text(max_size=20))
def test_an_error_is_one_line_with_its_class(text):
    found = error_text(ValueError(text))
    assert len(found.splitlines()) == 1
    assert found.startswith("ValueError")
    assert found == "ValueError" or text.strip().startswith(found.removeprefix("ValueError: "))


def test_of_an_error_of_several_lines_the_first_is_said():
    assert error_text(KeyError()) == "KeyError"
    assert error_text(ValueError("\n one\n two")) == "ValueError: one"


def test_a_tree_is_found_before_packages_and_these_before_what_was_there(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", ["/before", str(tmp_path / "tree")])
    monkeypatch.setenv("PYTHONPATH", "/earlier")
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "of_a_project.pth").write_text(f"{tmp_path / 'edited'}\n")
    (tmp_path / "edited").mkdir()
    put_first([str(tmp_path / "tree")], [str(packages)])
    expected = [str(tmp_path / "tree"), str(packages), str(tmp_path / "edited")]
    assert sys.path == [*expected, "/before"]
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [*expected, "/earlier"]


def test_a_module_has_the_name_that_it_had_in_an_older_tree(tmp_path):
    module = "attnbench.measuring.worker"
    assert module_name_in([str(tmp_path)], module) == module
    (tmp_path / "attnbench" / "measure").mkdir(parents=True)
    (tmp_path / "attnbench" / "measure" / "server.py").touch()
    assert module_name_in([str(tmp_path)], module) == "attnbench.measure.worker"


def test_files_of_packages_are_nobodys_source_unless_they_are_watched(tmp_path):
    own, linked = tmp_path / "own.py", tmp_path / "linked.py"
    own.touch()
    linked.symlink_to(own)
    installed = tmp_path / "site-packages" / "theirs.py"
    standard = os.path.join(sysconfig.get_path("stdlib"), "json", "__init__.py")
    files = [str(own), str(linked), str(installed), standard]
    assert outside_packages(files, frozenset()) == [os.path.realpath(own)]
    real = os.path.realpath(installed)
    assert outside_packages(files, {real}) == sorted([os.path.realpath(own), real])
