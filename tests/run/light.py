"""Servers that start at once: their workers run the code that they are asked, without torch."""

import subprocess
from contextlib import contextmanager

from attnbench.api.servers import SCRIPT
from attnbench.run import processes
from attnbench.run.processes import Server

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


def install(folder, modules):
    """Write the modules into a folder, by path."""
    for path, text in modules.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@contextmanager
def light_server(folder, monkeypatch):
    """A server whose workers run what `do` says; the modules are in the folder."""
    install(folder, MODULES)
    monkeypatch.setattr(processes, "subprocess", subprocess)  # not forked from one with torch
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    with Server(SCRIPT, module="obeying") as server:
        yield server
