"""Whatever a worker starts and however it ends, nothing of it is left."""

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from attnbench.run.launch import Launcher
from attnbench.run.orphans import descendants, end_descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="found by /proc")


@pytest.fixture(scope="module")
def launch():
    launcher = Launcher("tests.run.odd_worker")
    yield launcher
    launcher.stop()


def alive(told):
    """The processes in the file that are running."""
    found = []
    for pid in told.read_text().split():
        with suppress(OSError), open(f"/proc/{pid}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] not in "ZX":
                found.append(int(pid))
    return found


@pytest.mark.parametrize("how", ["session", "twice"])
@pytest.mark.parametrize(
    ("then", "limit_s", "exit_code"),
    [("answer", 60, 0), ("die", 60, -signal.SIGKILL), ("leave", 60, 1), ("hang", 2, -9)],
)
def test_what_a_worker_started_ends_with_it(launch, tmp_path, how, then, limit_s, exit_code):
    told = tmp_path / "told"
    told.touch()
    asked = {"do": "start", "how": how, "count": 40, "told": str(told), "then": then}
    reply = launch(asked, limit_s)
    assert alive(told) == []
    started = len(told.read_text().split())
    if then == "hang":  # its time may be over before all have started
        assert reply.ended >= started
    else:
        assert reply.ended == started == 40
    assert reply.timed_out == (then == "hang")
    assert (reply.answer is not None) == (then == "answer")
    assert reply.exit_code == (3 if then == "leave" else exit_code)


def test_a_worker_that_starts_nothing_is_not_said_to(launch):
    assert launch({"do": "answer"}, 60).ended == 0


def test_they_end_with_the_parent_too(tmp_path):
    """Kill the parent hard while the worker hangs."""
    told = tmp_path / "told"
    told.touch()
    asked = {"do": "start", "how": "twice", "count": 3, "told": str(told), "then": "hang"}
    script = tmp_path / "parent.py"
    script.write_text(
        "from attnbench.run.launch import Launcher\n"
        "if __name__ == '__main__':\n"
        f"    Launcher('tests.run.odd_worker')({asked}, None)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    parent = subprocess.Popen([sys.executable, str(script)], env=environment)
    while len(told.read_text().split()) < 3:
        assert parent.poll() is None
    files = [os.pidfd_open(pid) for pid in alive(told)]
    parent.kill()
    parent.wait()
    for file in files:
        assert select.select([file], [], [], 60)[0], "a process outlived the parent"
        os.close(file)


def test_only_what_is_below_is_found():
    ours = subprocess.Popen(["sh", "-c", "sleep 600 & wait"], stdout=subprocess.PIPE)
    other = subprocess.Popen(["sleep", "600"])
    try:
        while not (below := descendants(ours.pid)):
            pass
        assert ours.pid not in below
        assert end_descendants(ours.pid) == len(below) == 1
        assert other.poll() is None
    finally:
        for process in (ours, other):
            process.kill()
            process.communicate()
