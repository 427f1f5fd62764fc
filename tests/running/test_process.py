"""One process as its parent sees it: what it does, prints and starts, and its ends."""

import signal
import socket

import pytest

from attnbench.running import process
from attnbench.running.process import LOG_BYTES, Process, last_line, receive, tail
from tests.doubles.servers import (
    Obey,
    Obeyed,
)
from tests.running.starting import SLEEP, STARTS, alive

LOUD = "import os\nwhile True: os.write(1, bytes(1 << 16))"


WRITE = """
import os
for number in range(3, 100):
    try: os.write(number, {!r})
    except OSError: pass
"""


FOREIGN = "the process sent something other than its answer"


ENDS = [
    (SLEEP, "timeout", "no answer after 0 s; killed"),
    (LOUD, "timeout", "no answer after 0 s; killed"),
    (WRITE.format(b"x"), "crashed", FOREIGN),
    (WRITE.format(b'{"outcome": "ok"}\n'), "crashed", FOREIGN),
    ("import os; os.write(2, b'a\\x1b[31m\\nlast words'); os._exit(3)", "crashed",
     "the process ended without an answer (exit 3): last words"),
    ("import os; os.kill(os.getpid(), 11)", "crashed", "the process was killed by signal 11"),
    ("import os; os.kill(os.getpid(), 9)", "crashed", "the process was killed by signal 9"),
    ("import os; os.kill(os.getpid(), 15)", "crashed", "the process was killed by signal 15"),
    ("import os, time; os.closerange(3, 99); time.sleep(600)", "crashed",
     "the process closed its connection and went on"),
]  # fmt: skip


@pytest.mark.parametrize(("does", "outcome", "reason"), ENDS, ids=range(len(ENDS)))
def test_each_end_of_a_process_has_its_outcome(light, monkeypatch, capfd, does, outcome, reason):
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    with light.process() as worker:
        answer = worker.ask(Obey(do=does), 0.2 if outcome == "timeout" else 60)
        assert worker.ask(Obey(do=""), 60).outcome == "crashed", "it stays dead"
        assert not worker.alive
    assert (answer.outcome, answer.reason) == (outcome, reason)
    # no fault raises these signals, so that they may come from outside
    assert answer.cause == ("killed" if reason.endswith(("l 9", "l 15")) else None)
    assert not any(capfd.readouterr())
    with light.process() as worker:
        assert worker.ask(Obey(do=""), 60) == Obeyed()


@pytest.mark.parametrize("does", ["import os; os.fork()", "import os; os.close(1); os.close(2)"])
def test_what_a_process_may_do_costs_nothing(light, does):
    with light.process() as worker:
        assert worker.ask(Obey(do=does), 60) == Obeyed()
        assert worker.ask(Obey(do="answer['more'] = 1"), 60).more == 1


def test_what_a_process_prints_takes_no_room(light):
    with light.process() as worker:
        asked = "import os\nfor _ in range(1 << 9): os.write(1, bytes(1 << 16))"
        assert worker.ask(Obey(do=asked), 60) == Obeyed()
        files = [path for path in light.folder.rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) < 1 << 16
        assert len(worker.printed) == LOG_BYTES


def test_a_process_that_prints_while_it_is_read_is_ended_in_time(light):
    ours, theirs = socket.socketpair()
    endless, printing = socket.socketpair()
    with ours, theirs, endless, printing:
        printing.setblocking(False)
        worker = Process(lambda: 1.0, 0, ours, ours, endless)
        worker.listen = lambda: printing.send(bytes(endless.recv(1 << 16)))
        printing.send(b"x")
        assert worker.line(0.01) == b""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_question_to_a_process_that_was_killed_is_asked_once_more(light, tmp_path, number):
    killed = (
        "import os, pathlib; seen = pathlib.Path({!r}); seen.write_text(seen.read_text() + '.')"
    )
    killed += "; len(seen.read_text()) <= {} and os.kill(os.getpid(), {})"
    for times in (1, 2):
        (seen := tmp_path / f"{times}").touch()
        asked = killed.format(str(seen), times, int(number))
        answer = light.ask(Obey(do=asked), 60)
        assert answer == Obeyed() if times == 1 else answer.outcome == "crashed"
        assert len(seen.read_text()) == 2


THEN = {"answer": "", "die": "os.kill(os.getpid(), 9)", "leave": "os._exit(3)", "hang": SLEEP}


@pytest.mark.parametrize("how", ["session", "twice"])
@pytest.mark.parametrize(
    "then", ["answer", "die", "leave", pytest.param("hang", marks=pytest.mark.long)]
)
def test_whatever_a_mechanism_starts_ends_with_its_case_and_is_reported(light, tmp_path, how, then):
    started = tmp_path / "started"
    started.touch()
    with light.process() as worker:
        starts = {"file": str(started), "new_session": how == "session", "then": THEN[then]}
        answer = worker.ask(Obey(do=STARTS.format(**starts)), 2 if then == "hang" else 60)
        if then == "answer":
            end = "from attnbench.measuring.server import end_children as end"
            assert worker.ask(Obey(do=f"{end}; answer['left'] = end()"), 60).left == 40
        assert alive(started) == []
    if then == "answer":
        assert answer == Obeyed()
    else:
        assert answer.outcome == ("timeout" if then == "hang" else "crashed")
    count = len(started.read_text().split())
    if then != "hang":  # whose time may be over before all have started
        assert count == 40
    if then in ("die", "leave"):
        assert answer.notes["processes"] == "started 40 processes that had to be ended"


def test_a_line_that_comes_in_parts_is_read_once_it_is_whole(light):
    question = Obey(do="")
    with light.process() as worker:
        ours, theirs = socket.socketpair()
        worker.pipe.close()
        worker.pipe = ours
        with theirs:
            worker.send(question)
            theirs.sendall(b'[2, {"outcome"')
            assert worker.poll(question) is None
            theirs.sendall(b': "ok"}]\n')
            assert worker.poll(question) == Obeyed()
            worker.send(question)
            theirs.close()
            assert worker.poll(question).outcome == "crashed"


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        (b"", ""),
        (b"one\ntwo\n\n", "two"),
        (b"one\r\n  two  ", "two"),
        (b"\xff\xfe bad", "\ufffd\ufffd bad"),
        (b"no end", "no end"),
    ],
)
def test_the_last_line_of_what_was_printed_is_what_a_message_shows(printed, line):
    assert last_line(printed).strip() == line


def test_only_the_end_of_a_log_is_read_and_none_is_empty(tmp_path):
    (tmp_path / "log").write_bytes(b"a" * LOG_BYTES + b"end")
    assert tail(tmp_path / "log") == b"a" * (LOG_BYTES - 3) + b"end"
    assert tail(tmp_path / "none") == tail(tmp_path) == b""


def test_bytes_are_received_whole_in_time_or_not_at_all():
    ours, theirs = socket.socketpair()
    with ours:
        with pytest.raises(TimeoutError):
            receive(ours, 1, 0.0)
        theirs.sendall(b"abcd")
        assert receive(ours, 3, 60.0) == b"abc"
        theirs.close()
        with pytest.raises(ConnectionResetError):
            receive(ours, 2, 60.0)
