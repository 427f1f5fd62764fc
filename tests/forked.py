"""Measuring servers that need not import torch: forked from one process that has it already.

The import takes seconds, and the tests start a server some hundred times. Each is still a process
of its own, with its own session, environment and end. As a script, this is the process that forks.
"""

import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from unittest.mock import patch

LARGEST = 1 << 18  # bytes of a message: an environment


@contextmanager
def forked_servers():
    """Within the block, no server imports torch by itself."""
    from attnbench.devices.system import Linux
    from attnbench.running import pool

    origin = Origin()
    system = Linux.end_family.__globals__
    children = system["children"]

    def others(process):
        """What a worker that is tested within this process ends: not the process that forks."""
        own = origin.process and origin.process.pid
        return (pid for pid in children(process) if pid != own)

    with patch.object(pool, "subprocess", origin), patch.dict(system, children=others):
        yield
    origin.close()


class Origin:
    """The process that forks, from its parent's side; it stands in for the module `subprocess`."""

    TimeoutExpired = subprocess.TimeoutExpired
    process = None

    def __init__(self):
        # not those of the test that is the first to need it
        self.environment, self.folder = {**os.environ}, os.getcwd()

    def start(self):
        self.close()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", __file__]
        with theirs:
            self.process = subprocess.Popen(
                command, stdin=theirs, env=self.environment, cwd=self.folder, start_new_session=True
            )

    def Popen(self, command, *, stdin, stdout, stderr, env, start_new_session):  # noqa: N802
        """A process that runs the script of the command and prints to `stdout`."""
        assert start_new_session
        assert stderr is stdout
        if not self.process or self.process.poll() is not None:
            self.start()
        message = json.dumps([command[-1], os.getcwd(), env]).encode()
        socket.send_fds(self.control, [message], [stdin, stdout.fileno()])
        return Forked(int(self.control.recv(LARGEST)))

    def close(self):
        if self.process:
            self.control.close()
            self.process.wait()


class Forked:
    """What a server's parent asks of a `subprocess.Popen`; the process is another one's child."""

    def __init__(self, pid):
        self.pid = pid
        self.file = os.pidfd_open(pid)

    def __del__(self):
        os.close(self.file)

    def poll(self):
        return 0 if select.select([self.file], [], [], 0)[0] else None

    def wait(self, timeout=None):
        if not select.select([self.file], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked server", timeout)

    def send_signal(self, number):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.file, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def main():
    """Fork a process for each message until the other end is closed."""
    import torch
    import torch._dynamo  # noqa: F401

    control, tests = socket.socket(fileno=os.dup(0)), os.getppid()
    signal.signal(signal.SIGCHLD, reap)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, LARGEST, 2)
        if not message:
            break
        pid = os.fork()
        if pid == 0:
            os.setsid()  # before the answer: who has it may end the whole group
            control.send(str(os.getpid()).encode())
            control.close()
            return run(tests, *json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def reap(*_):
    """Collect children that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def run(tests, script, folder, environment, connection, log):
    """The script, as if this process had been started for it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for target, source in enumerate((connection, log, log)):
        os.dup2(source, target)
    os.close(connection)
    os.close(log)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    own, parent = os.getpid(), os.getppid
    os.getppid = lambda: tests if os.getpid() == own else parent()  # whose child it stands for
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
