"""`attnbench merge`: joins the shards of one sweep."""

from pathlib import Path
from typing import Annotated

from attnbench.commands import console
from attnbench.commands.options import argument, option
from attnbench.records import storage, units


def merge(
    folders: Annotated[list[Path], argument("FOLDER", "Folders of the shards.")],
    out: Path = option("FOLDER", "Folder of the whole sweep.", default=...),
) -> None:
    """Join the shards of one sweep; each keeps its own journal.

    Merges the shards that exist, and names those that are missing, here and in every report. The
    exit code is 0 even if some are missing.
    """
    sweep = storage.merge(folders, out)
    console.warn(sweep.warnings)
    contents = units.many(len(sweep.runs), "run")
    if sweep.shards:
        contents = f"{len(sweep.shards)} of {units.many(sweep.shards[0].of, 'shard')}, {contents}"
    if missing := units.few(sweep.missing):
        text = f"incomplete: {contents}; missing {missing}"
    else:
        text = f"{contents}, {'complete' if sweep.finished else 'not finished'}"
    console.err().print(f"{text}; attnbench report '{out}' shows the sweep")
