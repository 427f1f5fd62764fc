"""`attnbench merge`: the journals of a sweep's shards as one; loads no torch."""

from pathlib import Path
from typing import Annotated

import typer

from attnbench.cli import console
from attnbench.cli.options import option


def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Folders of the shards.")],
    out: Path = option("FOLDER", "Folder of the whole sweep.", default=...),
) -> None:
    """Join the shards of one sweep; each keeps its own journal.

    Merges the shards that exist, and names those that are missing, here and in every report. The
    exit code is 0 even if some are missing.
    """
    from attnbench.store.merging import merge
    from attnbench.units import few, many

    sweep = merge(folders, out)
    console.warn(sweep.warnings)
    held = many(len(sweep.runs), "run")
    if sweep.shards:
        held = f"{len(sweep.shards)} of {many(sweep.shards[0].of, 'shard')}, {held}"
    if missing := few(sweep.missing):
        text = f"incomplete: {held}; missing {missing}"
    else:
        text = f"{held}, {'complete' if sweep.finished else 'not finished'}"
    console.err().print(f"{text}; attnbench report '{out}' shows the sweep")
