"""What modules do to their process, to the server and to its folder, and what becomes of it."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from attnbench.errors import OverBudget
from attnbench.run import pool, process
from attnbench.run.process import LOG_BYTES, Process
from tests.run.light import MODULES, ends, install, light_server

PASS = "pass"


@pytest.fixture
def server(tmp_path, monkeypatch):
    with light_server(tmp_path / "modules", monkeypatch) as server:
        yield server


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_what_a_process_prints_takes_no_room(server):
    with server.process() as worker:
        asked = "import os\nfor _ in range(1 << 9): os.write(1, bytes(1 << 16))"
        assert worker.ask(60, do=asked) == {"outcome": "ok"}
        assert size(server.folder) < 1 << 16
        assert len(worker.printed) == LOG_BYTES
        answer = worker.ask(60, do="import os; os.write(2, b'\\nlast words'); os._exit(3)")
    assert answer["reason"] == "the process ended without an answer (exit 3): last words"


def test_a_process_that_prints_without_end_is_ended_in_time(server):
    with server.process() as worker:
        answer = worker.ask(0.2, do="import os\nwhile True: os.write(1, bytes(1 << 16))")
        assert answer["outcome"] == "timeout"
    ours, theirs = socket.socketpair()
    endless, printing = socket.socketpair()
    with ours, theirs, endless, printing:
        printing.setblocking(False)
        process = Process(server, 0, ours, ours, endless)
        process.listen = lambda: printing.send(bytes(endless.recv(1 << 16)))
        printing.send(b"x")
        assert process.line(0.01) == b""


def test_a_process_that_closes_what_it_prints_to_goes_on(server):
    with server.process() as worker:
        assert worker.ask(60, do="import os; os.close(1); os.close(2)") == {"outcome": "ok"}
        assert worker.output.fileno() < 0, "or it would be read for ever"
        assert worker.ask(60, do=PASS) == {"outcome": "ok"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_that_no_fault_raises_may_come_from_outside(server, number):
    with server.process() as worker:
        answer = worker.ask(60, do=f"import os; os.kill(os.getpid(), {int(number)})")
        assert worker.ask(60, do=PASS)["outcome"] == "crashed", "and it stays dead"
    assert answer["reason"] == f"the process was killed by signal {int(number)}"
    assert answer.get("cause") == (None if number == signal.SIGSEGV else "killed")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_question_to_a_process_that_was_killed_is_asked_once_more(server, tmp_path, number):
    killed = (
        "import os, pathlib; seen = pathlib.Path({!r}); seen.write_text(seen.read_text() + '.')"
    )
    killed += "; len(seen.read_text()) <= {} and os.kill(os.getpid(), {})"
    for times, outcome in ((1, "ok"), (2, "crashed")):
        (seen := tmp_path / f"{times}").touch()
        asked = killed.format(str(seen), times, int(number))
        assert server.ask(60, do=asked)["outcome"] == outcome
        assert len(seen.read_text()) == 2


def test_a_server_that_is_killed_while_it_imports_is_started_once_more(tmp_path, monkeypatch):
    once = tmp_path / "once"
    text = f"import os\ntry:\n    open({str(once)!r}, 'x')\n    os.kill(os.getpid(), 9)\n"
    text += "except FileExistsError:\n    set_num_threads = int\n"
    monkeypatch.setitem(MODULES, "torch/__init__.py", text)
    with light_server(tmp_path / "modules", monkeypatch) as server, server.process() as worker:
        assert worker.ask(60, do=PASS) == {"outcome": "ok"}
    assert once.exists()


def test_a_process_that_closes_its_connection_is_not_killed_from_outside(server, monkeypatch):
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    with server.process() as worker:
        answer = worker.ask(60, do="import os, time; os.closerange(3, 99); time.sleep(600)")
    assert answer["reason"] == "the process closed its connection and went on"
    assert "cause" not in answer


def stop(server):
    """Stop the server, and wait until it is."""
    server.program.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.program.pid, os.WSTOPPED | os.WNOWAIT)


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="this system does not say what is stopped")
def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_the_budget(server, monkeypatch):
    server.wait()
    stop(server)
    over = pytest.raises(OverBudget, match="ended before a process was started")
    with server.until(time.monotonic() + 0.1), over:
        server.process()
    start = server.start

    def anew():
        monkeypatch.setattr(pool, "STUCK_S", 60.0)
        start()

    monkeypatch.setattr(server, "start", anew)
    monkeypatch.setattr(pool, "STUCK_S", 0.1)
    monkeypatch.setattr(pool, "GRACE_S", 0.1)
    with server.process() as worker:
        assert worker.ask(60, do=PASS) == {"outcome": "ok"}, "it is started anew"


@pytest.mark.skipif(sys.platform != "linux", reason="a parent's death is signalled on Linux")
def test_a_server_ends_with_its_parent_while_it_imports_torch(tmp_path):
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    slow = f"import os, time\nopen({str(begun)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    install(tmp_path, {"torch/__init__.py": slow})
    code = (
        "import time\n"
        "from attnbench.api.measuring import SCRIPT, Pool\n"
        "server = Pool(SCRIPT)\n"
        "time.sleep(600)\n"
    )
    paths = os.pathsep.join([str(tmp_path), os.getcwd()])
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths})
    file = os.pidfd_open(int(begun.read_text()))
    parent.kill()
    parent.wait()
    assert ends(file), "it outlived its parent"
