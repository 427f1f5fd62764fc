"""Mechanisms that do to their process what no mechanism should."""

import os
import signal
import subprocess
import time
from contextlib import suppress

import torch
from torch import nn


class Odd(nn.Module):
    """Does as the environment says when it runs."""

    def __init__(self, width, heads):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(width))

    def forward(self, x, mask=None):
        act(os.environ.get("ODD", ""))
        return x @ self.weight


def act(what):
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
            start(what)
            act(os.environ["THEN"])


def write(data):
    """Into whatever is open."""
    for number in range(3, 100):
        with suppress(OSError):
            os.write(number, data)


def start(how, count=40):
    """Start processes in new sessions or forked twice, with an empty environment."""
    with open(os.environ["STARTED"], "a") as started:
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
