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
    """Join the shards of one sweep; each keeps its own journal."""
    from attnbench.store.merging import merge
    from attnbench.units import many

    sweep = merge(folders, out)
    console.warn(sweep.warnings)
    of = f" of {sweep.shards[0].of}" if sweep.shards else ""
    state = "complete" if sweep.finished else "not finished"
    console.err().print(
        f"{many(len(sweep.shards), 'shard')}{of}, {many(len(sweep.runs), 'run')}, {state};"
        f" attnbench report '{out}' shows the sweep"
    )
