"""Measuring on a POSIX system without what Linux has: Linux with that hidden (`tests/unlinux`)."""

import mmap
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from attnbench.analysis.report import analyse
from attnbench.devices import system
from attnbench.devices.system import LOST, Linux, Posix
from attnbench.records import LOST as SYSTEM_NOTE
from attnbench.records import Clock
from attnbench.records.storage.journal import load
from attnbench.report.machine import noise_warnings
from tests import sweeps
from tests.doubles.servers import Obey, Obeyed, ends, light_environment, light_server
from tests.faults.real import (
    SIZES,
    attnbench,
    lines,
    members,
    nothing_left,
    runs,
    said,
    server,
    start,
    until,
    workers,
)

PACKAGE = Path(system.__file__).parents[1]
HIDING = str(Path(__file__).parents[1] / "unlinux")
# what Linux has beyond POSIX, in code
BEYOND = re.compile(r"\bsched_|prctl\(|mallopt\(|malloc_trim|[\"']/(proc|sys|dev/shm)\b|PDEATHSIG")
SAID = "this system does not offer what measuring uses on Linux: processes are bound to no core"


def hiding(variables):
    """The environment of processes that have nothing beyond POSIX."""
    return variables | {"PYTHONPATH": os.pathsep.join([HIDING, variables["PYTHONPATH"]])}


@pytest.fixture
def light(tmp_path, monkeypatch):
    """A server without Linux, whose workers run what they are asked."""
    with light_server(tmp_path / "modules", monkeypatch) as pool:
        pool.close()
        monkeypatch.setenv("PYTHONPATH", hiding({**os.environ})["PYTHONPATH"])
        with type(pool)(pool.script, module="obeying") as hidden:
            yield hidden


def python(code, tmp_path):
    """What code prints in a process without Linux."""
    variables = hiding(light_environment(tmp_path / "modules"))
    return subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    ).stdout.split()


def test_what_linux_alone_has_stands_in_one_place():
    asking = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if BEYOND.search(file.read_text())
    }
    assert asking == {"devices/system.py", "devices/cgroups.py"}


def test_the_system_is_chosen_by_what_is_there(monkeypatch):
    assert isinstance(system.chosen(), Linux)
    assert system.chosen().lost == ()
    with monkeypatch.context() as patch:
        patch.setattr(system, "has_prctl", lambda: False)
        assert isinstance(system.chosen(), Posix)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert system.chosen().lost == LOST


def test_nothing_of_linux_is_left_where_it_is_hidden(tmp_path):
    code = (
        "import ctypes, os\n"
        "from pathlib import Path\n"
        "from attnbench.devices import SYSTEM, cgroups, host\n"
        "print(type(SYSTEM).__name__, Path('/proc/self/status').exists(), os.path.exists('/sys'))\n"
        "print(hasattr(os, 'sched_getaffinity'), hasattr(ctypes.CDLL(None), 'prctl'))\n"
        "print(len(SYSTEM.cores()), cgroups.cores(), host.memory_bytes() > 1 << 20)\n"
        "print(host.user_s(os.getpid()) >= 0, host.cpu_s(os.getpid()), host.processor() != '')\n"
    )
    cores = str(os.cpu_count())
    found = python(code, tmp_path)
    assert found[:5] == ["Posix", "False", "False", "False", "False"]
    assert found[5:] == [cores, cores, "True", "True", "nan", "True"]


def test_a_peak_of_resident_memory_is_that_since_it_is_watched():
    """It is polled, and exact where the process never had as much."""
    size = 32 << 20
    peak = Posix().resident_peak()
    with mmap.mmap(-1, size) as held:  # of pages that nothing had before
        for start in range(0, size, mmap.PAGESIZE):
            held[start] = 1
        until(lambda: peak.most >= peak.before + size, "a look at what is held")
    assert peak.is_known
    assert size <= peak.grown_bytes() < 4 * size
    assert not peak.thread.is_alive()


def test_the_unit_of_the_highest_peak_is_that_of_the_system(monkeypatch):
    kibibytes = system.highest_bytes() // 1024
    assert kibibytes > 1024, "an interpreter alone needs more than 1 MiB"
    monkeypatch.setattr(system.platform, "system", lambda: "Darwin")
    assert kibibytes <= system.highest_bytes() < 2 * kibibytes


STARTS = """
import os, subprocess, time
children = [subprocess.Popen(["sleep", "600"], start_new_session=each).pid for each in {sessions}]
with open({file!r}, "w") as started:
    print(*children, "all", file=started)
time.sleep({seconds})
"""


def started_by(worker, tmp_path, sessions, seconds=600):
    """The files of processes that a worker has started; whether in sessions of their own."""
    file = tmp_path / "started"
    worker.send(Obey(do=STARTS.format(file=str(file), sessions=sessions, seconds=seconds)))
    until(lambda: file.exists() and "all" in file.read_text(), "the start of all")
    return [os.pidfd_open(int(pid)) for pid in file.read_text().split()[:-1]]


def test_what_a_mechanism_starts_ends_with_its_process_and_is_counted(light, tmp_path):
    with light.process() as worker:
        files = started_by(worker, tmp_path, (False, False), seconds=0)
        assert worker.receive(Obey(do=""), 60) == Obeyed()
        dying = worker.ask(Obey(do="import os; os._exit(3)"), 60)
    assert dying.notes["processes"] == "started 2 processes that had to be ended"
    assert all(map(ends, files))


def test_what_a_mechanism_starts_in_sessions_of_its_own_ends_with_its_case(light, tmp_path):
    with light.process() as worker:
        files = started_by(worker, tmp_path, (True, False), seconds=0)
        worker.receive(Obey(do=""), 60)
        end = "from attnbench.measuring.server import end_children as end"
        assert worker.ask(Obey(do=f"{end}; answer['left'] = end()"), 60).left == 2
        assert all(map(ends, files))


def test_a_server_that_is_killed_takes_its_workers_along(light, tmp_path):
    with light.process() as worker:
        files = [os.pidfd_open(worker.pid), *started_by(worker, tmp_path, (False,))]
        light.program.kill()
        assert all(map(ends, files))


def test_a_worker_whose_supervisor_and_server_are_killed_ends_itself(light, tmp_path):
    with light.process() as worker:
        started_by(worker, tmp_path, ())
        stat = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        file = os.pidfd_open(worker.pid)
        light.program.kill()
        os.kill(int(stat[1]), signal.SIGKILL)
        assert ends(file)


@pytest.mark.parametrize("imports", [False, True])
def test_nothing_outlives_a_parent_that_is_killed(tmp_path, imports):
    """While its worker hangs, with what that has started; or while its server imports torch."""
    begun = tmp_path / "begun"
    tells = f"open({str(begun)!r}, 'a').write(f'{{os.getpid()}} all')\n"
    variables = hiding(light_environment(tmp_path / "modules"))
    if imports:
        slow = f"import os, time\n{tells}time.sleep(600)\n"
        (tmp_path / "modules" / "torch" / "__init__.py").write_text(slow)
    hangs = STARTS.format(file=str(begun), sessions=(False, True), seconds=600)
    script = (
        "from attnbench.running.session import SCRIPT, Pool\n"
        "from tests.doubles.servers import Obey\n"
        "with Pool(SCRIPT, module='obeying') as server, server.process() as worker:\n"
        f"    worker.ask(Obey(do={hangs!r}), 1e9)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], env=variables)
    until(lambda: begun.exists() and "all" in begun.read_text(), "the start of all")
    files = [os.pidfd_open(int(pid)) for pid in begun.read_text().split()[:-1]]
    parent.kill()
    parent.wait()
    assert all(map(ends, files))


def test_what_is_lost_is_said_before_a_sweep_and_in_its_report():
    here = sweeps.environment(notes={SYSTEM_NOTE: "; ".join(LOST)}, threads=1, cores=2)
    assert [text.startswith(SAID) for text in noise_warnings(here, Clock.CPU)] == [True]
    whole = sweeps.sweep(("fastformer",), rounds=2, lengths=(128,))
    lost = "measured on a system without what measuring uses on Linux"
    for sessions, times in (((here, here), 1), ((sweeps.environment(),), 0)):
        warned = analyse(replace(whole, sessions=sessions)).warnings
        assert sum(line.startswith(lost) for line in warned) == times


MODULE = """
from torch import nn


class Mine(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.value = nn.Linear(width, width)

    def forward(self, x):
        return x + self.value(x).mean(1, keepdim=True)
"""
LENGTHS = ("--lengths", "16,32,64", "--rounds", "2")
HIDDEN = {"PYTHONPATH": os.pathsep.join([HIDING, str(PACKAGE.parent)])}


def three(tmp_path):
    """The arguments of a sweep of two mechanisms and a module of one's own."""
    (tmp_path / "mine.py").write_text(MODULE)
    mine = f"fastformer,transformer,{tmp_path / 'mine.py'}:Mine"
    return ("sweep", "--models", mine, *LENGTHS, *SIZES)


def peaks(folder):
    """The peaks of what torch allocates, in bytes, by case."""
    memory = {key: run for key, run in runs(folder).items() if key[1] == "memory"}
    return {key[0]: run["values"]["allocated_peak_bytes"] for key, run in memory.items()}


@pytest.mark.long
def test_a_sweep_without_linux_is_whole_and_its_peaks_are_those_of_linux(tmp_path):
    done = attnbench(*three(tmp_path), "--out", tmp_path / "hidden", env=HIDDEN)
    words = " ".join(said(done, 0).split())
    assert words.count(SAID) == 1
    assert all(each in words for each in LOST)
    found = runs(tmp_path / "hidden")
    assert {run["outcome"] for run in found.values()} == {"ok"}
    assert len(found) == 3 * 3 * 2 * (2 + 1)
    memory = [run["values"] for key, run in found.items() if key[1] == "memory"]
    assert all(values["grown_bytes"] >= 0 for values in memory)
    sweep = load(tmp_path / "hidden")
    assert sweep.sessions[0].notes[SYSTEM_NOTE] == "; ".join(LOST)
    assert any("without what measuring uses on Linux" in line for line in analyse(sweep).warnings)
    assert list((tmp_path / "hidden").glob("*.png"))
    said(attnbench(*three(tmp_path), "--out", tmp_path / "linux"), 0)
    assert peaks(tmp_path / "hidden") == peaks(tmp_path / "linux")


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_without_linux_that_is_ended_leaves_no_process_and_is_resumed(tmp_path, number):
    folder = tmp_path / "sweep"
    sweep = start(*three(tmp_path), "--out", folder, env=HIDDEN)
    until(lambda: lines(folder) > 20 and workers(sweep), "a worker after the first runs")
    all_of_it = members(sweep)
    assert server(sweep) in all_of_it
    os.kill(sweep.pid, number)
    _, err = sweep.communicate()
    assert sweep.returncode in (130, -number), err
    assert "Traceback" not in err
    nothing_left(sweep)
    before = runs(folder)
    said(attnbench("sweep", "--resume", folder, env=HIDDEN), 0)
    after = runs(folder)
    assert {key: after[key] for key in before} == before
    assert len(after) == 3 * 3 * 2 * (2 + 1)
