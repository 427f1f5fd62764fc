"""The program that forks measuring processes, and the loop that runs in each of them.

Run as a script, by its path. It imports torch where mechanisms are measured, computes nothing, and
forks a process whenever it is asked to on its standard input. A process that measures this package
has the modules already; one that measures another source tree puts that tree first on the import
path: where the tree has this package, its own measuring code answers. Questions and answers are
JSON; every question gets an answer.
"""

import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import site
import socket
import struct
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Protocol

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch loads libgomp

# of questions and answers; a change that another version would not understand takes the next number
PROTOCOL = 2

PR_SET_PDEATHSIG = 1  # the signal that this process gets when its parent dies
PR_SET_CHILD_SUBREAPER = 36  # orphans among the descendants become children of this process
STATUS = struct.Struct("<iii")  # a process id, an exit code, a number of processes
# folders of installed packages
INSTALLED = frozenset({"site-packages", "dist-packages"})


class Unmeasured(Exception):
    """Why something is not measured: an outcome, and the reason in the text."""

    def __init__(self, outcome: str, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


def main() -> None:
    """Import the modules that the first message names, then fork whenever it is asked to.

    The connection is on standard input; with it, all processes end.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent decides what ends when
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that supervise
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    control = socket.socket(fileno=os.dup(0))
    parent, modules = json.loads(control.recv(1 << 16))
    end_with(parent)
    load_shared(*modules)
    prctl(PR_SET_PDEATHSIG, 0)  # from now on it ends with the connection, after its workers
    control.sendall(b"o")
    fork_when_asked(control, start_worker)
    end_children()


def fork_when_asked(control: socket.socket, start: Callable[[int, int, int], NoReturn]) -> None:
    """Fork a process whenever the connection brings its three connections, until it ends.

    `start` is what the process does, as `start_worker` takes its arguments.
    """
    with suppress(OSError):
        while (message := socket.recv_fds(control, 1, 3))[0]:
            if message[1]:
                told, pipe, output = message[1]
                with socket.socket(fileno=told) as connection:
                    supervised(control, connection, pipe, output, start)
                os.close(pipe)
                os.close(output)


def load_shared(*modules: str) -> None:
    """Import modules for all workers."""
    for name in modules:
        if name.startswith("attnbench."):
            import_own_package()
        importlib.import_module(name)
    # otherwise workers spend a third of their time collecting torch's objects
    gc.collect()
    gc.freeze()


def import_own_package() -> None:
    """Import the package of this file, even where the import path leads to another copy of it."""
    if "attnbench" not in sys.modules:
        sys.path.insert(0, str(Path(__file__).parents[2]))
        importlib.import_module("attnbench")
        del sys.path[0]


def supervised(
    control: socket.socket,
    told: socket.socket,
    pipe: int,
    output: int,
    start: Callable[[int, int, int], NoReturn],
) -> None:
    """Fork a worker, and a process that waits for it and tells of its birth and its end.

    With the worker ends whatever it left running. The worker runs `start` with `pipe`, on which it
    is asked, `output`, on which it prints, and the process that waits for it; `control` is closed
    in both, and `told` hears of birth and end.
    """
    server = os.getpid()
    try:
        if os.fork():
            return
        control.close()
        end_with(server)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        supervisor = os.getpid()
        if (pid := os.fork()) == 0:
            told.close()
            start(pipe, output, supervisor)
        os.close(pipe)
        os.close(output)
        tell(told, pid)
        status = os.waitpid(pid, 0)[1]
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        left = end_children()
        tell(told, pid, os.waitstatus_to_exitcode(status), left)
    except OSError as error:
        tell(told, -1, error.errno or 0)
    finally:
        if os.getpid() != server:
            os._exit(0)


def tell(told: socket.socket, pid: int, code: int = 0, left: int = 0) -> None:
    """Say that a process was born, or how it ended, unless nobody listens any more."""
    with suppress(OSError):
        told.sendall(STATUS.pack(pid, code, left))


def end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies; end if it has died already."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def start_worker(pipe: int, output: int, parent: int, worker: "Worker | None" = None) -> NoReturn:
    """In a new process: answer until the connection ends, then exit without running hooks.

    `pipe` and `output` are its connections, `parent` is the process that waits for it, and `worker`
    answers, if one has been loaded before.
    """
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with suppress(OSError):
            os.setpgid(0, 0)
        end_with(parent)  # on other systems it ends when its connection does
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        with suppress(OSError):  # where memory runs out, the kernel shall kill this process first
            Path("/proc/self/oom_score_adj").write_text("1000")
        empty = os.open(os.devnull, os.O_RDONLY)
        for target, source in enumerate((empty, output, output)):
            os.dup2(source, target)
        for descriptor in (empty, output):
            os.close(descriptor)
        serve(socket.socket(fileno=pipe), worker)
        sys.stdout.flush()
    except BaseException:
        os._exit(1)
    os._exit(0)  # no thread or hook of a mechanism may hold the process


class Worker(Protocol):
    """What answers in a measuring process; it may be of another version of this package.

    Questions and answers are plain data here; `records.messages` says what is in them.
    """

    conversation: "Conversation"

    def answer(self, do: str, **asked: Any) -> dict[str, Any]:
        """What a question gives; an exception becomes an outcome with its reason."""


class Conversation:
    """Questions on a connection and their answers, each a numbered line.

    A worker has it as `conversation`: one that must stay within a call, such as that of a test, can
    answer further questions from there.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.own = os.getpid()
        self.number = 0  # of the last question
        self.lines = connection.makefile("rb")

    def questions(self) -> Iterator[dict[str, Any]]:
        """Each question, once it is asked, until the other end is closed."""
        for line in self.lines:
            self.number, question = json.loads(line)
            yield question

    def reply(self, answer: dict[str, Any]) -> None:
        """Answer the last question. Raises `OSError` if nobody listens any more."""
        if os.getpid() != self.own:  # a mechanism has forked, and this is the child
            os._exit(0)
        try:
            text = json.dumps([self.number, answer])
        except (TypeError, ValueError) as error:
            failed = {"outcome": "failed", "reason": described(error)}
            text = json.dumps([self.number, failed])
        self.connection.sendall(text.encode() + b"\n")


def serve(connection: socket.socket, worker: "Worker | None" = None) -> None:
    """Answer until the other end is closed.

    Unless there is a `worker`, the first question says what this one measures.
    """
    conversation = Conversation(connection)
    if worker is not None:
        worker.conversation = conversation
    with suppress(OSError), conversation.lines:
        for question in conversation.questions():
            try:
                if worker is None:
                    worker = load(**question)
                    worker.conversation = conversation
                    answer = {"outcome": "ok"}
                else:
                    answer = worker.answer(**question)
            except BaseException as error:  # a mechanism may raise anything
                answer = {"outcome": "failed", "reason": described(error)}
            conversation.reply(answer)


def load(
    tree: str | None,
    caches: str,
    threads: int,
    module: str,
    places: Sequence[str] = ("", "src"),
    instead_of: str | None = None,
    sites: Sequence[str] = (),
    **about: Any,
) -> Worker:
    """What answers later questions: the module's `Worker`, on a `tree` if given.

    `places` are folders of the tree whose code is found first, relative to it; `instead_of` is the
    tree of the other side, whose place this one takes on the import path; `sites` are folders of
    packages that were installed for this side. Raises `ImportError`.
    """
    if torch := sys.modules.get("torch"):  # otherwise OMP_NUM_THREADS sets it
        torch.set_num_threads(threads)
    found = list[str]()
    if tree is not None:
        sys.pycache_prefix = caches  # a tree is read, never written
        if instead_of is not None and instead_of != tree:
            redirect(instead_of, tree)
        found = [os.path.join(tree, place).rstrip("/") for place in places]
        found = [place for place in found if Path(place).is_dir()]
        put_first(found, sites)
        os.chdir(tree)
    try:
        if not any(Path(place, "attnbench").is_dir() for place in found):
            import_own_package()
        kind = importlib.import_module(named_in(found, module)).Worker
        server = importlib.import_module(named_in(found, "attnbench.measuring.server"))
        theirs = getattr(server, "PROTOCOL", 1)
        if theirs != PROTOCOL:
            raise ImportError(f"it has protocol {theirs} of measuring processes, not {PROTOCOL}")
    except (ImportError, AttributeError) as error:
        raise ImportError(f"its attnbench does not fit this one: {error}") from error
    worker: Worker = kind(tree, **about)
    return worker


def named_in(places: Sequence[str], module: str) -> str:
    """The name of a module of `measuring` in these folders: `measure`, before there were wings."""
    packages = [Path(place, "attnbench") for place in places]
    has = {
        name: any((package / name / "server.py").is_file() for package in packages)
        for name in ("measure", "measuring")
    }
    if has["measure"] and not has["measuring"]:
        return module.replace("attnbench.measuring.", "attnbench.measure.")
    return module


def put_first(places: Sequence[str], sites: Sequence[str]) -> None:
    """Let imports look into these places first, then into these folders of packages.

    Processes that this one starts look there first as well.
    """
    before = list(sys.path)
    sys.path[:] = places
    for folder in sites:
        site.addsitedir(folder)
    # the folders of packages bring their editable installs
    added = [path for path in sys.path if path not in places]
    sys.path[:] = [*places, *added, *(path for path in before if path not in (*places, *added))]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*places, *added, *given]))


def redirect(replaced: str, tree: str) -> None:
    """Let what leads imports into the replaced tree lead into the same folder of this one.

    That is PYTHONPATH and editable installs: paths, and the finders of setuptools.
    """

    def moved(path: Any) -> Any:
        return in_place_of(path, replaced, tree) if isinstance(path, str) else path

    sys.path[:] = [moved(path) for path in sys.path]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(map(moved, given))
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):
            packages, namespaces = (getattr(module, n, {}) for n in ("MAPPING", "NAMESPACES"))
            packages.update({package: moved(path) for package, path in packages.items()})
            namespaces.update({n: list(map(moved, paths)) for n, paths in namespaces.items()})
    sys.path_importer_cache.clear()


def in_place_of(path: str, replaced: str, tree: str) -> str:
    """The path as it is in `tree`, if it lies in the replaced one and not among its packages.

    An environment inside a repository is one of both sides.
    """
    real = Path(os.path.realpath(path))
    top = Path(os.path.realpath(replaced))
    if not real.is_relative_to(top) or real.is_relative_to(os.path.realpath(tree)):
        return path
    if INSTALLED & set(real.parts) or real.is_relative_to(sysconfig.get_path("stdlib")):
        return path
    return str(Path(tree, real.relative_to(top)))


def module_files(watched: Collection[str]) -> list[str]:
    """Real paths of the files of loaded modules, without those that are nobody's source here."""
    program = sys.modules["__main__"]  # which `multiprocessing` gives a second name
    interpreters = {"sitecustomize", "usercustomize"}
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name not in interpreters and module is not program
    ]
    files = [getattr(module, "__file__", None) for module in modules]
    return outside_packages((str(file) for file in files if file), watched)


def mapped_libraries(watched: Collection[str]) -> list[str]:
    """Real paths of the libraries that are mapped into this process, with those of no module."""
    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
        files = {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
        return outside_packages((file for file in files if ".so" in file), watched)
    return []


def outside_packages(files: Iterable[str], watched: Collection[str]) -> list[str]:
    """Real paths of files, each once, that belong to no installed package; or are watched."""
    folders = {sysconfig.get_path("stdlib"), f"{sys.prefix}/lib", f"{sys.base_prefix}/lib"}
    libraries = tuple(f"{os.path.realpath(folder)}/" for folder in folders)
    kept = set[str]()
    for file in files:
        real = os.path.realpath(file)
        installed = INSTALLED & set(Path(real).parts) or real.startswith(libraries)
        if real in watched or not installed:
            kept.add(real)
    return sorted(kept)


def described(error: BaseException) -> str:
    """The class of an exception and the first line of its message.

    As `errors.one_line`, which cannot be imported here: this program loads nothing of the package
    before it is told which source tree is measured.
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def end_children() -> int:
    """Kill every descendant process; return the number killed.

    Orphans of killed processes become children of this one, which adopts them.
    """
    ended: set[int] = set()
    while left := set(children()) - ended:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        ended |= left
    return len(ended)


def children() -> Iterator[int]:
    """The process ids of this process's children."""
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, task.read_text().split())


def prctl(option: int, value: int) -> None:
    """Set an option of this process."""
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
    shutil.rmtree(os.environ["ATTNBENCH_FOLDER"], ignore_errors=True)
