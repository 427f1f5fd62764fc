"""The program that forks measuring processes, and the loop that runs in each of them.

Run as a script, by its path. It imports torch where mechanisms are measured, computes nothing, and
forks a process whenever it is asked to on its standard input. A process that measures this package
has the modules already; one that measures another source tree puts that tree first on the import
path: where the tree has this package, its own measuring code answers. Questions and answers are
JSON; every question gets an answer.
"""

import gc
import importlib
import importlib.util
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
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    from attnbench.devices import System

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch loads libgomp

# of questions and answers; a change that another version would not understand takes the next number
PROTOCOL = 2

STATUS = struct.Struct("<iii")  # a process id, an exit code, a number of processes
# folders of installed packages
INSTALLED = frozenset({"site-packages", "dist-packages"})


def operating_system() -> "System":
    """What the operating system offers, from a file of this package, which is not loaded yet."""
    if __package__:
        from attnbench import devices

        return devices.SYSTEM
    file = Path(__file__).parents[1] / "devices" / "system.py"
    specification = importlib.util.spec_from_file_location("operating_system", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    system: System = module.SYSTEM
    return system


SYSTEM = operating_system()


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
    SYSTEM.adopt_orphans()
    control = socket.socket(fileno=os.dup(0))
    parent, modules = json.loads(control.recv(1 << 16))
    SYSTEM.end_with(parent)
    load_shared(*modules)
    SYSTEM.outlive_parent()  # from now on it ends with the connection, after its workers
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
                status, pipe, output = message[1]
                with socket.socket(fileno=status) as listener:
                    fork_supervised(control, listener, pipe, output, start)
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


def fork_supervised(
    control: socket.socket,
    listener: socket.socket,
    pipe: int,
    output: int,
    start: Callable[[int, int, int], NoReturn],
) -> None:
    """Fork a worker, and a process that waits for it and tells of its birth and its end.

    With the worker ends whatever it left running. The worker runs `start` with `pipe`, on which it
    is asked, `output`, on which it prints, and the process that waits for it; `control` is closed
    in both, and `listener` hears of birth and end.
    """
    server = os.getpid()
    try:
        if os.fork():
            return
        control.close()
        SYSTEM.adopt_orphans()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        supervisor = os.getpid()
        if (pid := os.fork()) == 0:
            listener.close()
            start(pipe, output, supervisor)
        SYSTEM.end_with(server, group=pid)  # it may take a thread, with which nothing is forked
        os.close(pipe)
        os.close(output)
        tell(listener, pid)
        wait_status = os.waitpid(pid, 0)[1]
        survivors = SYSTEM.end_family(pid)
        tell(listener, pid, os.waitstatus_to_exitcode(wait_status), survivors)
    except OSError as error:
        tell(listener, -1, error.errno or 0)
    finally:
        if os.getpid() != server:
            os._exit(0)


def tell(listener: socket.socket, pid: int, code: int = 0, survivors: int = 0) -> None:
    """Say that a process was born, or how it ended, unless nobody listens any more.

    listener:  the connection on which the parent hears it
    pid:       of the process; -1: it could not be started
    code:      its exit code, or the number of the system's error
    survivors: how many processes it left running
    """
    with suppress(OSError):
        listener.sendall(STATUS.pack(pid, code, survivors))


def start_worker(pipe: int, output: int, parent: int, worker: "Worker | None" = None) -> NoReturn:
    """In a new process: answer until the connection ends, then exit without running hooks.

    `pipe` and `output` are its connections, `parent` is the process that waits for it, and `worker`
    answers, if one has been loaded before.
    """
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with suppress(OSError):
            os.setpgid(0, 0)
        SYSTEM.end_with(parent)
        SYSTEM.adopt_orphans()
        SYSTEM.be_killed_first()
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

    def answer(self, do: str, **fields: Any) -> dict[str, Any]:
        """What a question gives; an exception becomes an outcome with its reason."""


class Conversation:
    """Questions on a connection and their answers, each a numbered line.

    A worker has it as `conversation`: one that must stay within a call, such as that of a test, can
    answer further questions from there.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.owner = os.getpid()
        self.number = 0  # of the last question
        self.lines = connection.makefile("rb")

    def questions(self) -> Iterator[dict[str, Any]]:
        """Each question, once it is asked, until the other end is closed."""
        for line in self.lines:
            self.number, question = json.loads(line)
            yield question

    def reply(self, answer: dict[str, Any]) -> None:
        """Answer the last question. Raises `OSError` if nobody listens any more."""
        if os.getpid() != self.owner:  # a mechanism has forked, and this is the child
            os._exit(0)
        try:
            text = json.dumps([self.number, answer])
        except (TypeError, ValueError) as error:
            failure = {"outcome": "failed", "reason": error_text(error)}
            text = json.dumps([self.number, failure])
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
                answer = {"outcome": "failed", "reason": error_text(error)}
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
    """What answers later questions: the module's `Worker`.

    Raises `ImportError`.

    tree:       the source tree to be measured; None: this package
    caches:     a folder for compiled files of the tree, which stays as it is
    threads:    of torch
    module:     that has the worker
    places:     folders of the tree whose code is found first, relative to it
    instead_of: the tree of the other side, whose place on the import path this one takes
    sites:      folders of packages that were installed for this side
    about:      arguments of the worker
    """
    if torch := sys.modules.get("torch"):  # otherwise OMP_NUM_THREADS sets it
        torch.set_num_threads(threads)
    folders = list[str]()
    if tree is not None:
        sys.pycache_prefix = caches  # a tree is read, never written
        if instead_of is not None and instead_of != tree:
            redirect(instead_of, tree)
        folders = [os.path.join(tree, place).rstrip("/") for place in places]
        folders = [place for place in folders if Path(place).is_dir()]
        put_first(folders, sites)
        os.chdir(tree)
    try:
        if not any(Path(place, "attnbench").is_dir() for place in folders):
            import_own_package()
        kind = importlib.import_module(module_name_in(folders, module)).Worker
        server = importlib.import_module(module_name_in(folders, "attnbench.measuring.server"))
        protocol = getattr(server, "PROTOCOL", 1)
        if protocol != PROTOCOL:
            raise ImportError(f"it has protocol {protocol} of measuring processes, not {PROTOCOL}")
    except (ImportError, AttributeError) as error:
        raise ImportError(f"its attnbench does not fit this one: {error}") from error
    worker: Worker = kind(tree, **about)
    return worker


def module_name_in(places: Sequence[str], module: str) -> str:
    """The name of a module of `measuring` in these folders: `measure`, before there were wings."""
    packages = [Path(place, "attnbench") for place in places]
    present = {
        name: any((package / name / "server.py").is_file() for package in packages)
        for name in ("measure", "measuring")
    }
    if present["measure"] and not present["measuring"]:
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
    earlier = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*places, *added, *earlier]))


def redirect(replaced: str, tree: str) -> None:
    """Let what leads imports into the replaced tree lead into the same folder of this one.

    That is PYTHONPATH and editable installs: paths, and the finders of setuptools.
    """

    def move(path: Any) -> Any:
        return in_place_of(path, replaced, tree) if isinstance(path, str) else path

    sys.path[:] = [move(path) for path in sys.path]
    earlier = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(map(move, earlier))
    for name, module in list(sys.modules.items()):
        if name.startswith("__editable__"):
            packages, namespaces = (getattr(module, n, {}) for n in ("MAPPING", "NAMESPACES"))
            packages.update({package: move(path) for package, path in packages.items()})
            namespaces.update({n: list(map(move, paths)) for n, paths in namespaces.items()})
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
    return outside_packages((file for file in SYSTEM.mapped_files() if ".so" in file), watched)


def outside_packages(files: Iterable[str], watched: Collection[str]) -> list[str]:
    """Real paths of files, each once, that belong to no installed package; or are watched."""
    folders = {sysconfig.get_path("stdlib"), f"{sys.prefix}/lib", f"{sys.base_prefix}/lib"}
    libraries = tuple(f"{os.path.realpath(folder)}/" for folder in folders)
    paths = set[str]()
    for file in files:
        real = os.path.realpath(file)
        installed = INSTALLED & set(Path(real).parts) or real.startswith(libraries)
        if real in watched or not installed:
            paths.add(real)
    return sorted(paths)


def error_text(error: BaseException) -> str:
    """The class of an exception and the first line of its message.

    As `errors.one_line`, which cannot be imported here: this program loads nothing of the package
    before it is told which source tree is measured.
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def end_children() -> int:
    """Kill every descendant process; return the number killed."""
    return SYSTEM.end_family()


if __name__ == "__main__":
    main()
    shutil.rmtree(os.environ["ATTNBENCH_FOLDER"], ignore_errors=True)
