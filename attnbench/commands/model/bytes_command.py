"""`attnbench bytes`: a model's weights and caches, by its configuration; loads no torch."""

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from attnbench.commands import console, options
from attnbench.commands.model.configuration import fields, weight_bytes
from attnbench.commands.model.configured_layers import Model, model
from attnbench.commands.model.context import ContextQuery, rows
from attnbench.commands.model.hub import fetched
from attnbench.commands.model.plan import card_plan, plan_data, with_longest
from attnbench.commands.model.requests import MOST_CARDS
from attnbench.commands.model.sizing import weight_option
from attnbench.commands.model.table import kept, requests_table, weights_table
from attnbench.commands.options import argument, option
from attnbench.errors import UsageError
from attnbench.records import ITEM_BYTES
from attnbench.running.request import axes


def bytes_(
    config: Annotated[Path, argument("CONFIG", "A config.json, or OWNER/MODEL of the hub.")],
    lengths: str = option(
        "LIST", "Contexts: 32k..1m, 4096,100k, 1k..9k:+1k.", default="32k,128k,1m"
    ),
    memory: str | None = option(
        "BYTES",
        "Memory of each card, such as 80GiB: find the longest context and the requests that fit.",
    ),
    gpus: int = option("N", "Cards that share the model by tensor parallelism.", default=1),
    weights: str | None = option(
        "SIZE",
        "Bits of each weight (8, 4.25) or bytes of all (60GiB), in place of what files say.",
    ),
    json_: bool = options.as_json(),
) -> None:
    """Count a model's weights, what its layers keep of their context, and requests that fit."""
    if not 1 <= gpus <= MOST_CARDS:
        raise UsageError(f"--gpus {gpus} is not a number of cards from 1 to {MOST_CARDS:,}")
    size = weight_option(weights)
    config = located(config)
    found = model(config)
    dtype = number_type(found)
    query = ContextQuery(
        lengths=axes.lengths(lengths),
        item_bytes=ITEM_BYTES[dtype],
        memory=axes.memory(memory, "--memory") if memory is not None else None,
    )
    on_cards = card_plan(fields(config), query, gpus, size, weight_bytes(config))
    query = replace(query, weights=on_cards.weights.total)
    counted = with_longest(on_cards, rows(found.layers, query), query)
    warn_unchecked(found)
    if json_:
        console.data(
            {"model_type": found.type, "dtype": dtype}
            | asdict(query)
            | {"rows": [row._asdict() for row in counted]}
            | plan_data(on_cards)
        )
        return
    title = f"{found.type}, {dtype}"
    console.show(kept(counted, query, on_cards, title))
    if on_cards.counted:
        console.show(weights_table(on_cards, found.type))
    if on_cards.requests:
        console.show(requests_table(on_cards, query, title))


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
