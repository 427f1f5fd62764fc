"""`attnbench model`: measures one layer of each kind of a model, and adds up what they cost."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnbench import modes
from attnbench.cli import console, sweep
from attnbench.cli.bytes import located, number_type, warn_unchecked
from attnbench.cli.options import as_json, parsed
from attnbench.cli.stored import INTACT, analysed
from attnbench.errors import CannotRun, UsageError
from attnbench.workloads.options import flag, options, read

if TYPE_CHECKING:
    from attnbench.analysis.layers import LayerKind
    from attnbench.kvbytes.mechanisms import Measurable

USUAL = MappingProxyType({"mode": "decode,inference", "lengths": "1k,8k,128k,1m", "budget": "10m"})
OF_MODEL = ("models", "level", "width", "heads", "batch", "tokens", "preset", "padding", "layers")


def model(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="A config.json, or OWNER/MODEL of the hub.")
    ],
    further: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OPTIONS OF SWEEP]",
            help="--lengths, --mode, --dtype, --budget, --out and others; not --models and sizes.",
        ),
    ] = None,
    json_: bool = as_json(),
) -> None:
    """Measure one layer of each kind of a model at its sizes, and add up what they cost.

    A step is measured after contexts of 1k, 8k, 128k and 1m tokens, and a prefill of as many, as
    far as a budget of 10m and the memory go, in the model's number type.
    """
    from attnbench.kvbytes import layers
    from attnbench.kvbytes.mechanisms import measurable

    asked = parsed(sweep.sweep, further or ())
    if useless := [flag(name) for name in OF_MODEL if name in asked]:
        raise UsageError(f"{useless[0]} has no effect here: the model's file says it")
    path = located(config)
    about, found = layers.model(path), measurable(path)
    usual = {} if "resume" in asked else {**USUAL, "dtype": number_type(about)}
    given = usual | sizes(str(config), found) | {n: asked.pop(n) for n in options() if n in asked}
    typed = read(given)
    refuse_useless(typed)
    warn_unchecked(about)
    show = partial(shown, about.type, found, json_)
    asked |= {name: Path(asked[name]) for name in ("config", "out") if name in asked}
    sweep.run(typed, **asked, show=show)


def refuse_useless(given: Mapping[str, Any]) -> None:
    """Raises `UsageError` at modes and number types whose costs cannot be added up."""
    if wrong := [mode for mode in given.get("mode", ()) if modes.find(mode).trains]:
        raise UsageError(
            f"--mode {wrong[0]}: a model's layers are measured in decode and inference"
        )
    if len(types := given.get("dtype", ())) > 1:
        raise UsageError(
            f"--dtype {','.join(types)}: give one; a model is measured in one at a time"
        )


def sizes(name: str, found: "Measurable") -> dict[str, Any]:
    """The options of the sweep that follow from a model.

    Raises `CannotRun` if no kind of layer of it can be measured.
    """
    chosen = dict.fromkeys(kind.mechanism for kind in found.kinds if kind.mechanism)
    if not chosen:
        reasons = [f"{kind.words}: {kind.reason}" for kind in found.kinds if kind.reason]
        why = "; ".join(reasons) or "none has attention"
        raise CannotRun(f"no layer of {name!r} can be measured: {why}; attnbench bytes reads it")
    return {
        "models": ",".join(chosen),
        "level": "attention",
        "width": found.width,
        "heads": found.heads,
        "batch": 1,
        "causal": True,
    }


def shown(type_: str, found: "Measurable", as_json: bool, folder: Path) -> None:
    """Write the report of the sweep with the table and figure of the layers, and print these."""
    from attnbench.analysis.layers import ModelCosts
    from attnbench.render import delimited
    from attnbench.render.figures import saved
    from attnbench.render.layers import layer_table
    from attnbench.render.page import report_files
    from attnbench.render.panels import layer_figure
    from attnbench.store import output

    analysis = analysed(folder)
    asked = analysis.sweep.request
    costs = ModelCosts(analysis, layer_kinds(found, asked.dtype, asked.lengths))
    table = layer_table(costs, f"{type_}, {asked.dtype}")
    own = {"layers.csv": delimited.table(table)}
    if costs.steps:
        own["layers.png"] = saved(layer_figure(costs), "png")
    output.fill(folder, report_files(analysis) | own, then=INTACT)
    if as_json:
        numbers = {"kinds": [*costs.records()], "sum": [*costs.sums()]}
        console.data({"model_type": type_, "dtype": asked.dtype} | numbers)
        return
    console.show(table)
    console.err().print(
        f"layers.png and layers.csv have it in {folder}; report.html has what was measured"
    )


def layer_kinds(found: "Measurable", dtype: str, lengths: tuple[int, ...]) -> "list[LayerKind]":
    """The kinds of layers with the bytes that `attnbench bytes` says of them."""
    from attnbench.analysis.layers import LayerKind
    from attnbench.kvbytes.context import ContextQuery, Layer, rows
    from attnbench.records import ITEM_BYTES

    query, kinds = ContextQuery(lengths=lengths, item_bytes=ITEM_BYTES[dtype]), []
    for words, layers, parts, mechanism, reason in found.kinds:
        kept = rows([Layer(words, parts, None)] * layers, query)[0]
        at = dict(zip(lengths, kept.at, strict=True))
        kinds.append(LayerKind(words, layers, mechanism, reason, kept.per_token, at))
    return kinds
