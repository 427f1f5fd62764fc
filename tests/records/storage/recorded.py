"""The recorded sweep, its lines, and how the tests of this room open a journal."""

from dataclasses import asdict, replace
from pathlib import Path

from attnbench.records import Origin, Request, canonical
from attnbench.records.storage.journal import FILE, Journal, load
from attnbench.records.storage.schema import JournalLine, Start, seal, unseal

RECORDED = Path(__file__).parents[2] / "data" / "small"
CROSSED = RECORDED.with_name("crossed")  # of two widths and two number types
OPTIONS = RECORDED.with_name("options")  # raced, by CPU time
SWEEP = load(RECORDED)
DATA = (RECORDED / FILE).read_bytes()
LINES = DATA.splitlines(keepends=True)


# the head, a session, two cards, a case with two runs and the end: enough to damage at random
SMALL = b"".join([*LINES[:5], *LINES[16:18], LINES[-1]])
SMALL_LINES = SMALL.splitlines(keepends=True)


def opened(folder, request: Request = SWEEP.request) -> Journal:
    return Journal(folder, Start(request, SWEEP.sessions[0]))


def entries(folder) -> list[JournalLine]:
    """Every line of a journal."""
    return [unseal(line) for line in (folder / FILE).read_bytes().splitlines()]


def rewrite(folder, change):
    """The folder, after `change` was called with kind and data of each line of its journal."""
    lines = entries(folder)
    for entry in lines:
        change(entry.kind, entry.data)
    (folder / FILE).write_bytes(b"".join(map(seal, lines)))
    return folder


def rows(runs) -> list[str]:
    """What runs hold, but for the session that stored them."""
    return [canonical(asdict(replace(run, origin=Origin()))) for run in runs]
