"""The real command line in this process, up to the point where a process would be started."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from attnbench.commands.check.baseline import Baseline, Saved, dump
from attnbench.commands.verbs import VERBS, command
from attnbench.errors import CannotRun
from attnbench.measuring import reader
from attnbench.records import Level, Mode, Workload
from attnbench.records.messages import Verify, read_answer, written
from attnbench.records.storage.journal import FILE, Journal
from attnbench.records.storage.schema import Start
from attnbench.running import plan
from attnbench.running.pool import Pool
from tests import sweeps
from tests.commands.commands import here

CONFIGURATION = Path(__file__).parents[1] / "data" / "configurations" / "kimi-linear-48b.json"
STARTED = "nothing is measured in this test"
CODES = {0, 1, 2, 3, 130}

# what a terminal obeys, and what it shows as something else than what is there
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
COMMANDS = re.compile(f"{CONTROLS.pattern}|[\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
LONGEST = 12_000  # characters of a refusal, which may quote a long text


def verbs() -> dict[str, list[Any]]:
    """Each verb with its options and arguments, from the command line itself."""
    return {name: list(command(name).params) for name in VERBS}


def run(folder: Path, *arguments: str) -> Any:
    """How a command ends in a folder, and what it prints; no process is started."""
    with unmeasured():
        return here(*arguments, code=None, cwd=folder, GIT_CEILING_DIRECTORIES=str(folder.parent))


@contextmanager
def unmeasured() -> Iterator[None]:
    """No process is started: one that measures raises `CannotRun`, cards are read here."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise CannotRun(STARTED)

    def read(self: Pool, tree: Any = None, module: str = "", **about: Any) -> Any:
        return nullcontext(Reader()) if module == plan.READER else refuse()

    with (
        mock.patch.object(Pool, "__init__", return_value=None),
        mock.patch.object(Pool, "close"),
        mock.patch.object(Pool, "until", return_value=nullcontext()),
        mock.patch.object(Pool, "wait"),
        mock.patch.object(Pool, "process", read),
    ):
        yield


class Reader(reader.CardReader):
    """Reads cards in this process, and verifies none."""

    def __init__(self) -> None:
        super().__init__(None)

    def ask(self, question: Any, limit_s: float) -> Any:
        if isinstance(question, Verify):  # which computes, for seconds
            raise CannotRun(STARTED)
        sent = json.loads(json.dumps(written(question)))
        return read_answer(json.loads(json.dumps(self.answer(**sent))), question)


def furnish(folder: Path) -> None:
    """What arguments can name: sweeps, a baseline, a configuration, an empty folder, rubbish."""
    few: Any = {"lengths": (128, 512), "modes": (Mode.INFERENCE,), "rounds": 2, "samples": 3}
    for seed, name in enumerate(("one", "two")):
        write(folder / name, sweeps.sweep(("fastformer", "transformer"), seed=seed, **few))
    shutil.copytree(folder / "one", folder / "torn")
    with open(folder / "torn" / FILE, "ab") as file:
        file.write(b'{"schema":1,"kind":"run"')
    workload = Workload(batch=8, seq_len=128, level=Level.ATTENTION)
    counted = Saved(workload=workload, counts={"flops": 2.0})
    kept = Baseline(torch="2.13.0", cases={f"fastformer:eager/{workload}": counted})
    (folder / "kept.json").write_bytes(dump(kept))
    shutil.copy(CONFIGURATION, folder / "config.json")
    (folder / "empty").mkdir()
    (folder / "rubbish").write_bytes(bytes(range(256)))


def write(folder: Path, sweep: Any) -> None:
    """A sweep as the journal of a folder."""
    start = Start(sweep.request, sweep.sessions[0])
    with Journal(folder, start) as journal:
        journal.append(*sweep.cards, *sweep.plan, *sweep.runs)


def listing(folder: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of every file below the folder."""
    files = (path for path in folder.rglob("*") if not path.is_dir())
    return {path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in files}
