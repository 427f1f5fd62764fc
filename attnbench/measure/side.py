"""The processes of a comparison's sides: one tree each, asked through a pipe.

Run as a file, by its path, so that nothing of attnbench is loaded before a tree is named. The
first process imports torch, computes nothing, and forks a child for each connection that arrives
on its standard input. A child puts its tree first on the import path and takes the tree's own
contract, registry and mechanisms, but this folder's measuring code: one loop times every side.
Questions and answers are JSON; whatever a mechanism does, there is an answer.
"""

import ctypes
import gc
import importlib.util
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch loads libgomp

import torch
import torch._dynamo  # optimisers import it at first use, which costs seconds in every process

PR_SET_PDEATHSIG = 1
READY = b"."


def main() -> None:
    """Fork a child for each connection that the other end of standard input sends."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what ends when
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # what torch brought is not the children's to collect: it took a third of their lives
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=os.dup(0))
    control.sendall(READY)
    while True:
        _, found, _, _ = socket.recv_fds(control, 1, 1)
        if not found:
            return
        if os.fork() == 0:
            control.close()
            os.close(0)
            die_with_parent()
            serve(Connection(found[0]))
            os._exit(0)
        os.close(found[0])


def serve(pipe: Connection) -> None:
    """Answer until the other end is closed; the first question says which tree this is."""
    answer: Callable[..., Mapping[str, Any]] = load
    while True:
        try:
            asked = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        try:
            found = answer(**asked)
        except (Exception, SystemExit) as error:
            found = {"outcome": "failed", "reason": described(error)}
        if "answer" in found:
            answer, found = found["answer"], {"outcome": "ok", **about()}
        pipe.send_bytes(json.dumps(found).encode())


def load(
    tree: str, own: bool, measure: str, caches: str, threads: int, seed: int
) -> Mapping[str, Any]:
    """What answers from now on: this folder's measuring code over the tree's own package."""
    sys.pycache_prefix = caches  # a tree is read, never written
    sys.path[:0] = [p for p in (tree, f"{tree}/src") if Path(p).is_dir()]
    sys.path.append(str(Path(measure).parents[1]))  # where no attnbench is in tree or installed
    os.chdir(tree)
    torch.set_num_threads(threads)
    graft(Path(measure))
    try:
        from attnbench.measure.answers import Answers
    except (ImportError, AttributeError) as error:
        raise ImportError(f"its attnbench does not fit this measuring code: {error}") from error
    return {"answer": Answers(tree, own, seed).answer}


def graft(measure: Path) -> None:
    """Have `attnbench.measure` mean the measuring code in that folder, whatever the tree holds."""
    import attnbench

    spec = importlib.util.spec_from_file_location(
        "attnbench.measure", measure / "__init__.py", submodule_search_locations=[str(measure)]
    )
    attnbench.measure = sys.modules["attnbench.measure"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(attnbench.measure)


def about() -> dict[str, Any]:
    """What the parent wants to know of this process."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return {"pid": os.getpid(), "torch": torch.__version__, "gpu": gpu}


def described(error: BaseException) -> str:
    """One line of an exception."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def die_with_parent() -> None:
    """End this process when its parent dies (Linux; elsewhere its pipe tells)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
