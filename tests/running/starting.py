"""What processes are told to start, and which of that is running."""

from contextlib import suppress
from pathlib import Path

SLEEP = "import time; time.sleep(600)"


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
