"""Real processes: what modules do to them, to the server and to its folder, and their ends."""

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest

from attnbench.errors import CannotRun, OverBudget
from attnbench.records import Case, Level, Workload
from attnbench.records.messages import (
    Build,
    Files,
    Finish,
    Lap,
    Loads,
    MeasureMemory,
    of_case,
)
from attnbench.running import pool, process
from attnbench.running.pool import Pool
from attnbench.running.process import LOG_BYTES, Process
from attnbench.running.session import SCRIPT
from tests.doubles.servers import (
    MODULES,
    Obey,
    Obeyed,
    ends,
    install,
    light_environment,
    light_server,
)


def case_of(mechanism):
    workload = Workload(batch=1, seq_len=16, width=16, heads=2, level=Level.ATTENTION)
    return Case(mechanism=mechanism, form="eager", workload=workload)


@pytest.fixture
def light(tmp_path, monkeypatch):
    with light_server(tmp_path / "modules", monkeypatch) as server:
        yield server


SLEEP = "import time; time.sleep(600)"
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


STARTS = """
import os, subprocess, time
with open({file!r}, "a") as started:
    for _ in range(40):
        if {new_session}:
            pid = subprocess.Popen(["sleep", "600"], start_new_session=True, env={{}}).pid
        else:  # forked twice, so that its parent has gone
            ours, theirs = os.pipe()
            if os.fork() == 0:
                if (pid := os.fork()) == 0:
                    os.execve("/bin/sleep", ["sleep", "600"], {{}})
                os.write(theirs, str(pid).encode())
                os._exit(0)
            os.wait()
            os.close(theirs)
            with open(ours) as pid_file:
                pid = int(pid_file.read())
        print(pid, file=started, flush=True)
{then}
"""
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


def alive(started):
    """The processes in the file that are running."""
    found = []
    for pid in started.read_text().split():
        with suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            found += [int(pid)] * (state not in "ZX")
    return found


BUSY = """
import os, pathlib, subprocess, sys, threading
seen = pathlib.Path({folder!r}, "go")
def busy():
    while not seen.exists(): pass
threading.Thread(target=busy).start()
code = "import os, pathlib, subprocess, threading\\n" \\
    "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\\n" \\
    "threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()\\n" \\
    "pathlib.Path({folder!r}, 'pids.new').write_text(f'{{os.getpid()}} {{child.pid}}')\\n" \\
    "os.rename({folder!r} + '/pids.new', {folder!r} + '/pids')\\n"
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
busy()
"""


def states(pid):
    """The states of the threads of a process."""
    stats = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


def test_a_process_stops_with_all_that_it_has_started_and_goes_on(light, tmp_path):
    """Its child and grandchild are in sessions of their own, and have threads."""
    question = Obey(do=BUSY.format(folder=str(tmp_path)))
    with light.process() as worker, light.process() as other:
        worker.bind([min(os.sched_getaffinity(0))])
        assert worker.send(question) is None
        while not (tmp_path / "pids").exists():
            assert worker.poll(question) is None
        pids = [worker.pid, *map(int, (tmp_path / "pids").read_text().split())]
        assert worker.stop()
        assert [states(pid) for pid in pids] == [{"T"}] * 3
        (tmp_path / "go").touch()
        assert other.ask(Obey(do=""), 60) == Obeyed(), "others go on"
        assert worker.poll(question) is None
        worker.go_on()
        while (answer := worker.poll(question)) is None:
            worker.wait(60, other)
        assert answer == Obeyed()
        assert not {"T"} & set.union(*map(states, pids))
        assert worker.stop()
        files = [os.pidfd_open(pid) for pid in pids]
        worker.end()
        assert all(map(ends, files)), "what is stopped ends too"


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


def test_what_is_stopped_ends_with_its_server_and_with_the_parent(tmp_path):
    (tmp_path / "modules").mkdir()
    started = tmp_path / "pids"
    script = tmp_path / "parent.py"
    script.write_text(
        "import time\n"
        "from pathlib import Path\n"
        "from attnbench.running.session import SCRIPT, Pool\n"
        "from tests.doubles.servers import Obey\n"
        "with Pool(SCRIPT, module='obeying') as server, server.process() as worker:\n"
        f"    worker.send(Obey(do={BUSY.format(folder=str(tmp_path))!r}))\n"
        f"    while not Path({str(started)!r}).exists(): pass\n"
        "    assert worker.stop()\n"
        f"    with open({str(started)!r}, 'a') as file:\n"
        "        print('', server.program.pid, worker.pid, 'stopped', file=file, flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, str(script)], env=light_environment(tmp_path / "modules")
    )
    while not started.exists() or "stopped" not in started.read_text():
        assert parent.poll() is None
    files = [os.pidfd_open(int(pid)) for pid in started.read_text().split()[:-1]]
    parent.kill()
    parent.wait()
    assert len(files) == 4
    assert all(map(ends, files)), "a process outlived the parent"


def test_a_server_its_workers_and_all_they_started_end_with_their_parent(tmp_path):
    """It is killed while its worker hangs."""
    started = tmp_path / "started"
    starts = STARTS.format(file=str(started), new_session=False, then=SLEEP)
    script = tmp_path / "parent.py"
    script.write_text(
        "from pathlib import Path\n"
        "from attnbench.running.session import SCRIPT, Pool\n"
        "from tests.doubles.servers import Obey\n"
        "with Pool(SCRIPT, module='obeying') as server, server.process() as worker:\n"
        f"    Path({str(started)!r}).write_text(f'{{server.program.pid}} {{worker.pid}}\\n')\n"
        f"    worker.ask(Obey(do={starts!r}), 1e9)\n"
    )
    env = light_environment(tmp_path / "modules")
    parent = subprocess.Popen([sys.executable, str(script)], env=env)
    while not started.exists() or len(started.read_text().split()) < 5:
        assert parent.poll() is None
    files = [os.pidfd_open(pid) for pid in alive(started)]
    parent.kill()
    parent.wait()
    assert len(files) >= 5
    for file in files:
        assert ends(file), "a process outlived the parent"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("raise SystemExit('no room here')", "no process could be started: no room here"),
        ("raise ModuleNotFoundError(\"No module named 'torch'\")", "pip install torch"),
    ],
)
def test_a_script_that_cannot_start_is_reported(line, said, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(line)
    with Pool(script) as broken, pytest.raises(CannotRun, match=said):
        broken.wait()


def test_other_systems_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(CannotRun, match="measuring needs Linux"):
        Pool(tmp_path)


def test_processes_load_the_package_of_their_parent_and_not_another_copy(tmp_path, monkeypatch):
    """As where `python -m attnbench` runs in a clone beside an installed copy."""
    text = "import attnbench\nclass Worker:\n    def __init__(self, tree): pass\n"
    text += "    def answer(self, do): return {'outcome': 'ok', 'more': attnbench.__file__}\n"
    for copy in ("clone", "installed"):
        package = tmp_path / copy / "attnbench"
        install(package, {"__init__.py": "", "place.py": text})
        (package / "measuring").mkdir()
        shutil.copy(SCRIPT, package / "measuring")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    script = tmp_path / "clone" / "attnbench" / "measuring" / "server.py"
    (tmp_path / "tree").mkdir()
    for preload in ((), ("attnbench.place",)):
        with Pool(script, modules=preload, module="attnbench.place") as server:
            for tree in (None, tmp_path / "tree"):
                with server.process(tree) as worker:
                    file = worker.ask(Obey(do=""), 60).more
                assert Path(file).is_relative_to(tmp_path / "clone")


def test_a_tree_whose_package_does_not_fit_says_so(tmp_path):
    (tmp_path / "attnbench").mkdir()
    (tmp_path / "attnbench" / "__init__.py").write_text("")
    with Pool(SCRIPT, seed=0) as server, server.process(tmp_path) as worker:
        answer = worker.ask(Files(), 60.0)
    assert answer == worker.refused
    assert answer.outcome == "failed"
    assert "its attnbench does not fit this one" in answer.reason


def test_a_tree_with_this_package_is_measured_by_its_own_code(tmp_path):
    package = Path(shutil.copytree(SCRIPT.parents[1], tmp_path / "attnbench"))
    mechanism = package / "mechanisms" / "transformer.py"
    mechanism.write_text(mechanism.read_text().replace('"sdpa": ', '"older": '))
    worker = package / "measuring" / "worker.py"
    own = "\nWorker.files = lambda self, question: LoadedFiles(modules=(__file__,))\n"
    own += "from attnbench.records.messages import LoadedFiles\n"
    worker.write_text(worker.read_text() + own)
    build = Build(**of_case(case_of("fastformer")), warmup_s=0.01)
    with Pool(SCRIPT, seed=0) as server, server.process(tmp_path) as worker:
        loads = worker.ask(Loads(mechanism="transformer", device="cpu"), 60.0)
        unknown = worker.ask(Build(**of_case(case_of("no_such_mechanism"))), 60.0)
        warm = worker.ask(build, 60.0)
        lapped = worker.ask(Lap(iterations=3), 60.0)
        finished = worker.ask(Finish(), 60.0)
        weighed = worker.ask(MeasureMemory(**of_case(case_of("fastformer"))), 60.0)
        (file,) = worker.ask(Files(), 60.0).modules
    assert "older" in loads.forms
    assert Path(file).is_relative_to(tmp_path)
    assert unknown.outcome == "missing"
    assert "no_such_mechanism" in unknown.reason
    assert warm.iteration_s > 0
    assert lapped.sample.iterations == 3
    assert finished.needs_new_process is False
    assert weighed.values["allocated_peak_bytes"] > 0


PLACE = """
import os, torch
answer['seed'], answer['address'] = os.environ['PYTHONHASHSEED'], id(torch)
answer['core'], answer['allowed'] = list(getattr(torch, 'core', ())), list(os.sched_getaffinity(0))
"""


def test_each_round_has_a_server_with_another_layout_which_starts_beside_the_last(light, tmp_path):
    whole = os.sched_getaffinity(0)
    core = max(whole)
    text = "__version__ = '0'\nset_num_threads = int\n"
    text += "import os; core = os.sched_getaffinity(0)\n"
    (tmp_path / "modules" / "torch" / "__init__.py").write_text(text)
    found = []
    for round_ in (0, 1, 1, 2):
        with light.of_round(round_, 3, {core}).process() as worker:
            found.append(worker.ask(Obey(do=PLACE), 60))
        assert set(light.others) == {round_, min(2, round_ + 1)} - {0}
    programs = [other.program for other in light.others.values()]
    light.close()
    assert [place.seed for place in found] == ["0", "1", "1", "2"]
    assert len({place.address for place in found}) > 1
    assert found[1] == found[2], "the same server"
    assert [set(place.core) for place in found[1:]] == [{core}] * 3, "not where laps are timed"
    assert all(set(place.allowed) == whole for place in found)
    assert all(program.poll() is not None for program in programs)


def test_a_server_that_dies_takes_its_workers_along_and_is_started_anew(light):
    with light.process() as idle, light.process() as busy:
        file = os.pidfd_open(busy.pid)
        light.program.kill()
        assert ends(file), "the worker outlived its server"
        assert busy.ask(Obey(do=""), 60).cause == "killed"
        with light.process() as fresh:
            assert idle.ask(Obey(do=""), 60).cause == "killed", "it is no worker of the new one"
            assert fresh.ask(Obey(do=""), 60) == Obeyed()


def test_a_server_that_is_killed_while_it_imports_is_started_once_more(tmp_path, monkeypatch):
    once = tmp_path / "once"
    text = f"import os\ntry:\n    open({str(once)!r}, 'x')\n    os.kill(os.getpid(), 9)\n"
    text += "except FileExistsError:\n    set_num_threads = int\n"
    monkeypatch.setitem(MODULES, "torch/__init__.py", text)
    with light_server(tmp_path / "modules", monkeypatch) as server, server.process() as worker:
        assert worker.ask(Obey(do=""), 60) == Obeyed()
    assert once.exists()


def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_the_budget(light, monkeypatch):
    light.wait()
    light.program.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, light.program.pid, os.WSTOPPED | os.WNOWAIT)
    over = pytest.raises(OverBudget, match="ended before a process was started")
    with light.until(time.monotonic() + 0.1), over:
        light.process()
    start = light.start

    def anew():
        monkeypatch.setattr(pool, "STUCK_S", 60.0)
        start()

    monkeypatch.setattr(light, "start", anew)
    monkeypatch.setattr(pool, "STUCK_S", 0.1)
    monkeypatch.setattr(pool, "GRACE_S", 0.1)
    with light.process() as worker:
        assert worker.ask(Obey(do=""), 60) == Obeyed(), "it is started anew"


def test_a_budget_that_has_ended_limits_no_later_process_of_another_layout(light):
    with light.until(time.monotonic()):
        assert light.of_layout(1).left_s == 0
    with light.of_layout(1).process() as worker:
        assert worker.ask(Obey(do=""), 60) == Obeyed()


def test_a_server_ends_with_its_parent_while_it_imports_torch(tmp_path):
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    slow = f"import os, time\nopen({str(begun)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    install(tmp_path, {"torch/__init__.py": slow})
    code = (
        "import time\n"
        "from attnbench.running.session import SCRIPT, Pool\n"
        "server = Pool(SCRIPT)\n"
        "time.sleep(600)\n"
    )
    paths = os.pathsep.join([str(tmp_path), os.getcwd()])
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths})
    file = os.pidfd_open(int(begun.read_text()))
    parent.kill()
    parent.wait()
    assert ends(file), "it outlived its parent"


def test_a_server_that_is_closed_starts_nothing(light):
    light.wait()
    light.close()
    with pytest.raises(CannotRun):
        light.process()
    assert light.program.poll() is not None


def test_where_the_system_has_no_room_for_a_process_the_others_go_on(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import errno, os, runpy
            fork, forked, server = os.fork, [], os.getpid()
            def second_fails():
                forked.append(1)
                if len(forked) == 2 and os.getpid() == server:
                    raise OSError(errno.EAGAIN, "no")
                return fork()
            os.fork = second_fails
            runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
            """
        )
    )
    light = light_server(tmp_path / "modules", monkeypatch, script)
    with light as server, server.process() as one:
        with pytest.raises(CannotRun, match=os.strerror(errno.EAGAIN).lower()):
            server.process()
        with server.process() as other:
            assert one.ask(Obey(do=""), 60) == Obeyed()
            assert other.ask(Obey(do=""), 60) == Obeyed()


def test_what_torch_compiles_is_kept_in_the_folder_of_the_server_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/elsewhere")
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "32")
    own = pool.environment(2, tmp_path)
    assert own["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "inductor")
    assert own["TRITON_CACHE_DIR"] == str(tmp_path / "triton")
    assert own["TORCHINDUCTOR_COMPILE_THREADS"] == "1"
    assert own["OMP_NUM_THREADS"] == "2"
