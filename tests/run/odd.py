"""What no mechanism should do to its process."""

import os
import signal
import subprocess
import time
from contextlib import suppress


def act(what, then="", started=None):
    match what:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(3600)
        case "leave":
            print("rubbish\x1b[31m\n" * 1000)
            print("last words", flush=True)
            os._exit(3)
        case "fork":
            os.fork()
        case "write":
            write(b"x")
        case "forge":
            write(b'{"outcome": "ok"}\n')
        case "session" | "twice":
            start(what, started)
            act(then)


def write(data):
    """Into whatever is open."""
    for number in range(3, 100):
        with suppress(OSError):
            os.write(number, data)


def start(how, file, count=40):
    """Start processes in new sessions or forked twice, with an empty environment."""
    with open(file, "a") as started:
        for _ in range(count):
            if how == "session":
                pid = subprocess.Popen(["sleep", "600"], start_new_session=True, env={}).pid
            else:
                pid = forked_twice()
            print(pid, file=started, flush=True)


def forked_twice():
    """The id of a process whose parent has gone."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        if (pid := os.fork()) == 0:
            os.execve("/bin/sleep", ["sleep", "600"], {})
        os.write(theirs, str(pid).encode())
        os._exit(0)
    os.wait()
    os.close(theirs)
    with open(ours) as pid_file:
        return int(pid_file.read())
