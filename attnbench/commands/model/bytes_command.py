"""`attnbench bytes`: a model's weights and caches, by its configuration; loads no torch."""

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from attnbench.commands import console, options
from attnbench.commands.model.configuration import fields, weight_bytes
from attnbench.commands.model.configured_layers import Model, model
from attnbench.commands.model.context import ContextQuery, rows
from attnbench.commands.model.hub import fetch
from attnbench.commands.model.plan import card_plan, plan_data, with_longest
from attnbench.commands.model.requests import MOST_CARDS
from attnbench.commands.model.sizing import weight_option
from attnbench.commands.model.table import context_table, requests_table, weights_table
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
    config = configuration_file(config)
    model_layers = model(config)
    dtype = number_type(model_layers)
    query = ContextQuery(
        lengths=axes.lengths(lengths),
        item_bytes=ITEM_BYTES[dtype],
        memory=axes.memory(memory, "--memory") if memory is not None else None,
    )
    on_cards = card_plan(fields(config), query, gpus, size, weight_bytes(config))
    query = replace(query, weights=on_cards.weights.total)
    context_rows = with_longest(on_cards, rows(model_layers.layers, query), query)
    warn_unchecked(model_layers)
    if json_:
        console.data(
            {"model_type": model_layers.type, "dtype": dtype}
            | asdict(query)
            | {"rows": [row._asdict() for row in context_rows]}
            | plan_data(on_cards)
        )
        return
    title = f"{model_layers.type}, {dtype}"
    console.show(context_table(context_rows, query, on_cards, title))
    if on_cards.counted:
        console.show(weights_table(on_cards, model_layers.type))
    if on_cards.requests:
        console.show(requests_table(on_cards, query, title))


def configuration_file(config: Path) -> Path:
    """The file of a configuration; of OWNER/MODEL, from the hub. Raises `UsageError`."""
    is_hub_name = re.fullmatch(r"[\w.-]+/[\w.-]+", str(config)) and config.suffix != ".json"
    return fetch(str(config)) if is_hub_name and not config.exists() else config


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
    counted_type = model.dtype if model.dtype in ITEM_BYTES else "bfloat16"
    if model.dtype not in ("", counted_type):
        console.warn([f"number type {model.dtype!r} is counted as {counted_type}"])
    return counted_type
