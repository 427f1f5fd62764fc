"""Badly behaved mechanisms that a sweep must survive."""

import os
import signal
import subprocess
import sys
import time

import torch
from torch import nn


class Well(nn.Module):
    """Adds the mean of all tokens."""

    def __init__(self, width, heads):
        super().__init__()
        self.value = nn.Linear(width, width)

    def forward(self, x):
        return x + self.value(x).mean(1, keepdim=True)


class Killed(Well):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGKILL)


class Segfaults(Well):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSEGV)


class Dies(Well):
    """Ends the process when it is built; reading the card does not build it."""

    def __init__(self, width, heads):
        print("no way", flush=True)
        os._exit(7)


class Starts(Well):
    """Leaves processes behind, each in a new session and with an empty environment."""

    def __init__(self, width, heads):
        super().__init__(width, heads)
        for _ in range(40):
            subprocess.Popen(["sleep", "600"], start_new_session=True, env={})


class Hangs(Well):
    """Hangs and ignores signals."""

    def forward(self, x):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(3600)


class Rubbish(Well):
    """Prints text that resembles journal lines or controls a terminal, then works."""

    def forward(self, x):
        rubbish = b'\x00\xff\x1b[2J\r{"schema":1,"kind":"run"}\n' * 5000
        for number in (1, 2):
            os.write(number, rubbish)
        sys.stdout.write("more\n")
        return super().forward(x)


class Reserves(Well):
    """Allocates memory endlessly without touching it."""

    def forward(self, x):
        kept = []
        while True:
            kept.append(torch.empty(2**26))


class Touches(Well):
    """Fills memory endlessly."""

    def forward(self, x):
        kept = []
        while True:
            kept.append(torch.ones(2**22))
