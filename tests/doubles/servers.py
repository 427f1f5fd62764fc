"""Servers that start at once: their workers run the code that they are asked, without torch."""

import os
import select
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnbench.records.messages import ProcessAnswer, ProcessQuestion
from attnbench.running import pool
from attnbench.running.pool import Pool
from attnbench.running.session import SCRIPT

ROOT = Path(__file__).parents[2]
MODULES = {
    "torch/__init__.py": "__version__ = '0'\nset_num_threads = int\n",
    "torch/_dynamo.py": "",
    "obeying.py": (
        "class Worker:\n"
        "    def __init__(self, tree):\n"
        "        pass\n"
        "    def answer(self, do):\n"
        "        answer = {'outcome': 'ok'}\n"
        "        exec(do, {'answer': answer})\n"
        "        return answer\n"
    ),
}


class Obeyed(ProcessAnswer, frozen=True, kw_only=True):
    """What the code that was run has left in `answer`."""

    more: Any = None
    left: Any = None
    seed: Any = None
    address: Any = None
    core: Any = None
    allowed: Any = None


class Obey(ProcessQuestion[Obeyed], frozen=True, kw_only=True):
    """Run this code, in which `answer` is the answer as plain data."""

    do: str


def install(folder, modules):
    """Write the modules into a folder, by path."""
    for path, text in modules.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def light_environment(folder):
    """The environment of a process that may start such servers; the modules are in the folder."""
    install(folder, MODULES)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}


@contextmanager
def light_server(folder, monkeypatch, script=SCRIPT):
    """A server whose workers run what `do` says; the modules are in the folder."""
    monkeypatch.setattr(pool, "subprocess", subprocess)  # not forked from one with torch
    monkeypatch.setenv("PYTHONPATH", light_environment(folder)["PYTHONPATH"])
    with Pool(script, module="obeying") as server:
        yield server


def ends(file):
    """Whether a process, of which this is a file descriptor, ends within a minute."""
    try:
        return bool(select.select([file], [], [], 60)[0])
    finally:
        os.close(file)
