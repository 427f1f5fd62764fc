"""`attnbench bytes`: what a model keeps of its context, by its configuration; loads no torch."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from attnbench.commands import console, options
from attnbench.commands.model.configuration import weight_bytes
from attnbench.commands.model.configured_layers import Model, model
from attnbench.commands.model.context import ContextQuery, rows
from attnbench.commands.model.hub import fetched
from attnbench.commands.model.table import kept
from attnbench.commands.options import argument, option
from attnbench.records import ITEM_BYTES
from attnbench.running.request import axes


def bytes_(
    config: Annotated[Path, argument("CONFIG", "A config.json, or OWNER/MODEL of the hub.")],
    lengths: str = option(
        "LIST", "Contexts: 32k..1m, 4096,100k, 1k..9k:+1k.", default="32k,128k,1m"
    ),
    memory: str | None = option("BYTES", "Find the longest context that fits: 80GiB."),
    json_: bool = options.as_json(),
) -> None:
    """Count the bytes that each kind of layer of a model keeps of its context."""
    config = located(config)
    found = model(config)
    dtype = number_type(found)
    query = ContextQuery(
        lengths=axes.lengths(lengths),
        item_bytes=ITEM_BYTES[dtype],
        memory=axes.memory(memory, "--memory") if memory is not None else None,
        weights=weight_bytes(config),
    )
    counted = rows(found.layers, query)
    warn_unchecked(found)
    if json_:
        console.data(
            {"model_type": found.type, "dtype": dtype}
            | asdict(query)
            | {"rows": [row._asdict() for row in counted]}
        )
        return
    console.show(kept(counted, query, f"{found.type}, {dtype}"))


def located(config: Path) -> Path:
    """The file of a configuration; of OWNER/MODEL, from the hub. Raises `UsageError`."""
    named = re.fullmatch(r"[\w.-]+/[\w.-]+", str(config)) and config.suffix != ".json"
    return fetched(str(config)) if named and not config.exists() else config


def warn_unchecked(model: Model) -> None:
    """Warn if nobody compared models of this type with transformers."""
    if not model.checked:
        console.warn(
            [
                f"model type {model.type!r} was not compared with transformers; its bytes follow"
                " from its kinds of layers"
            ]
        )


def number_type(model: Model) -> str:
    """The number type of a model, or bfloat16 with a warning that it says another one."""
    known = model.dtype if model.dtype in ITEM_BYTES else "bfloat16"
    if model.dtype not in ("", known):
        console.warn([f"number type {model.dtype!r} is counted as {known}"])
    return known
