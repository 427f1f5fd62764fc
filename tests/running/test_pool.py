"""The program that forks processes: its start and end, its layouts, and what they load of it."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from attnbench.devices import system
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
from attnbench.running import pool
from attnbench.running.pool import Pool
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
from tests.running.starting import SLEEP, STARTS, alive


def case_of(mechanism):
    workload = Workload(batch=1, seq_len=16, width=16, heads=2, level=Level.ATTENTION)
    return Case(mechanism=mechanism, form="eager", workload=workload)


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
    monkeypatch.setattr(pool.os, "name", "nt")
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
        install(package, {"devices/__init__.py": "from attnbench.devices.system import SYSTEM\n"})
        shutil.copy(system.__file__, package / "devices")
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
        assert set(light.by_layout) == {round_, min(2, round_ + 1)} - {0}
    programs = [other.program for other in light.by_layout.values()]
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
    own = pool.process_variables(2, tmp_path)
    assert own["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "inductor")
    assert own["TRITON_CACHE_DIR"] == str(tmp_path / "triton")
    assert own["TORCHINDUCTOR_COMPILE_THREADS"] == "1"
    assert own["OMP_NUM_THREADS"] == "2"
