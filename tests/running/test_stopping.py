"""A process stops together with all that it has started, goes on, and ends."""

import os
import subprocess
import sys

from tests.doubles.servers import (
    Obey,
    Obeyed,
    ends,
    light_environment,
)
from tests.running.starting import BUSY, states


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
