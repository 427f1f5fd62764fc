"""`attnbench bytes`: what a model keeps of its context, by its configuration; loads no torch."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from attnbench.cli import console, options
from attnbench.cli.options import option


def bytes_(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="A config.json, or OWNER/MODEL of the hub.")
    ],
    lengths: str = option(
        "LIST", "Contexts: 32k..1m, 4096,100k, 1k..9k:+1k.", default="32k,128k,1m"
    ),
    memory: str | None = option("BYTES", "Find the longest context that fits: 80GiB."),
    json_: bool = options.as_json(),
) -> None:
    """Count the bytes that each kind of layer of a model keeps of its context."""
    from attnbench.kvbytes.configuration import weight_bytes
    from attnbench.kvbytes.context import ContextQuery, rows
    from attnbench.kvbytes.hub import fetched
    from attnbench.kvbytes.layers import model
    from attnbench.kvbytes.table import kept
    from attnbench.records import ITEM_BYTES
    from attnbench.workloads import axes

    named = re.fullmatch(r"[\w.-]+/[\w.-]+", str(config)) and config.suffix != ".json"
    if named and not config.exists():
        config = fetched(str(config))
    found = model(config)
    number_type = found.dtype if found.dtype in ITEM_BYTES else "bfloat16"
    query = ContextQuery(
        lengths=axes.lengths(lengths),
        item_bytes=ITEM_BYTES[number_type],
        memory=axes.memory(memory, "--memory") if memory is not None else None,
        weights=weight_bytes(config),
    )
    counted = rows(found.layers, query)
    if found.dtype not in ("", number_type):
        console.warn([f"number type {found.dtype!r} is counted as {number_type}"])
    if not found.checked:
        console.warn(
            [
                f"model type {found.type!r} was not compared with transformers; its bytes follow"
                " from its kinds of layers"
            ]
        )
    if json_:
        console.data(
            {"model_type": found.type, "dtype": number_type}
            | asdict(query)
            | {"rows": [row._asdict() for row in counted]}
        )
        return
    console.show(kept(counted, query, f"{found.type}, {number_type}"))
