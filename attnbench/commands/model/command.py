"""`attnbench model`: measures one layer of each kind of a model, and adds up what they cost."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from attnbench.commands import console
from attnbench.commands import options as shared
from attnbench.commands.model.bytes_command import configuration_file, number_type, warn_unchecked
from attnbench.commands.model.configured_layers import model as read_model
from attnbench.commands.model.context import ContextQuery, Layer, rows
from attnbench.commands.model.mechanisms import WEIGHED, Measurable, measurable
from attnbench.commands.options import argument, with_sweep_options
from attnbench.commands.publishing import INTACT, analysed
from attnbench.commands.sweeping.carry_out import sweep_with
from attnbench.devices import find
from attnbench.errors import CannotRun, UsageError
from attnbench.records import ITEM_BYTES, HelpPanel, Request, Sweep, modes, units
from attnbench.records.selection import layers
from attnbench.records.storage import output
from attnbench.records.storage.journal import load
from attnbench.running.request.conflicts import Conflict, refuse
from attnbench.running.request.options import options, read
from attnbench.running.request.requests import request

if TYPE_CHECKING:
    from attnbench.commands.model.costs import LayerKind

USUAL = MappingProxyType(
    {"mode": "decode", "step": "1,512", "lengths": "1k,8k,128k,1m", "budget": "10m"}
)
CACHES = 32 << 20  # bytes, more than those of one core hold
OF_MODEL = frozenset({
    *("models", "level", "causal", "width", "heads", "batch", "tokens", "preset"),
    *("padding", "layers", "dropout"),
})  # fmt: skip
TAKEN = tuple(name for name in options() if name not in OF_MODEL)
SHOWN = MappingProxyType({**USUAL, "dtype": "the model's"})
TEXTS = MappingProxyType({
    "mode": "decode, inference or both: decode,inference.",
    "lengths": "Contexts, or lengths of sequences: 1k,8k or 1k..1m:x4.",
})  # fmt: skip


@with_sweep_options(only=TAKEN, defaults=SHOWN, texts=TEXTS, single=("dtype",))
def model(
    config: Annotated[Path, argument("CONFIG", "A config.json, or OWNER/MODEL of the hub.")],
    written: Mapping[str, Any],
    shard: str | None = shared.shard(),
    out: Path | None = shared.out(),
    resume: str | None = shared.resume(),
    trace: str | None = shared.trace(),
    dry_run: bool = shared.dry_run(),
    attention_only: bool = shared.switch(
        "--attention-only", "Leave feed-forwards out of the measurement.", HelpPanel.WHAT
    ),
    json_: bool = shared.as_json(HelpPanel.OUTPUT),
) -> None:
    """Measure each kind of layer of a model and its feed-forwards, and add up what they cost.

    A step of one token and one of 512, a chunk of a prefill, are measured at contexts of 1k, 8k,
    128k and 1m tokens, as far as a budget of 10m and the memory go, in the model's number type.
    """
    path = configuration_file(config)
    description = read_model(path)
    parts = measurable(path, feeds=not attention_only)
    chosen = mechanisms(str(config), parts)
    options = dict(written)
    refuse(conflicts(options), options)
    if resume:
        parts = resumed_layers(chosen, parts, resume, load(Path(resume)).request.models)
    else:
        options = {
            **read(
                {**default_options(options), "dtype": number_type(description)} | sizes_of(parts)
            ),
            **options,
        }
        console.begin("reading the sizes of layers")
        sweep_request = request({**options, "models": tuple(chosen)})
        layer_bytes = weight_bytes(sweep_request)
        if not options.get("on"):
            parts = parts.without(too_large(parts, layer_bytes, sweep_request.device))
        chosen = mechanisms(str(config), parts)
        options["models"] = stacks(chosen, layer_bytes)
    warn_unchecked(description)
    if description.checked and description.type not in WEIGHED:
        console.warn(
            [
                f"layers of model type {description.type!r} were compared by the bytes they keep,"
                " not by their weights; gates and norms of theirs may be left out"
            ]
        )
    show = partial(write_report, description.type, parts, json_)
    sweep_with(
        options,
        shard=shard,
        out=out,
        resume=resume,
        trace=trace,
        dry_run=dry_run,
        show=show,
        plan_as_json=json_,
    )


def default_options(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a sweep that nobody gave.

    No sizes of steps where none is measured; passes are causal, as steps always are.
    """
    options: dict[str, Any] = dict(USUAL)
    steps = [modes.find(mode).steps for mode in typed.get("mode", (USUAL["mode"],))]
    if not any(steps):
        del options["step"]
    if not all(steps):
        options["causal"] = True
    return options


def conflicts(options: Mapping[str, Any]) -> Iterator[Conflict]:
    """Modes and number types whose costs cannot be added up, among typed options by name."""
    trains = [mode for mode in options.get("mode", ()) if modes.find(mode).trains]
    yield Conflict(
        given=("mode",),
        with_=bool(trains),
        reason=f"{{}} {','.join(trains)}: a model's layers are measured in decode and inference",
    )
    types = options.get("dtype", ())
    yield Conflict(
        given=("dtype",),
        with_=len(types) > 1,
        reason=f"{{}} {','.join(types)}: give one; a model is measured in one at a time",
    )


def resumed_layers(
    chosen: Mapping[str, int], parts: Measurable, folder: str, models: Sequence[str]
) -> Measurable:
    """What of a model a sweep of these `models` measures, of feed-forwards those it began with.

    Raises `UsageError` if the sweep is of other layers.
    """
    sweep_mechanisms = [str((layers(name) or (name,))[0]) for name in models]
    feeds = {kind.mechanism for kind in parts.kinds if kind.feeds and kind.mechanism}
    left_out = dict.fromkeys(feeds - {*sweep_mechanisms}, "the sweep that is resumed leaves it out")
    if sweep_mechanisms != [name for name in chosen if name not in left_out]:
        raise UsageError(f"--resume {folder!r}: the sweep there is of another model")
    if left_out.keys() == feeds:
        kinds = [kind for kind in parts.kinds if not kind.feeds]
        return parts._replace(kinds=tuple(kinds))
    return parts.without(left_out)


def mechanisms(name: str, parts: Measurable) -> dict[str, int]:
    """Each mechanism of a model, and how many layers it has.

    Raises `CannotRun` if no kind of layer of it can be measured.
    """
    chosen: dict[str, int] = {}
    mixers = [kind for kind in parts.kinds if not kind.feeds]
    for kind in parts.kinds:
        if kind.mechanism:
            chosen[kind.mechanism] = chosen.get(kind.mechanism, 0) + kind.layers
    if not any(kind.mechanism for kind in mixers):
        reasons = [f"{kind.words}: {kind.reason}" for kind in mixers if kind.reason]
        why = "; ".join(reasons) or "none has attention"
        raise CannotRun(f"no layer of {name!r} can be measured: {why}; attnbench bytes reads it")
    return chosen


def weight_bytes(sweep_request: Request) -> dict[str, int]:
    """The bytes of the weights of one layer of each mechanism that is asked for."""
    from attnbench.running.plan import plan
    from attnbench.running.session import reading_server

    with reading_server() as server:
        cases = plan(sweep_request, server).cases
    numbers = {(one.case.mechanism, one.case.options): one.parameters for one in cases}
    item = ITEM_BYTES[sweep_request.dtype]
    return {
        name: item * number
        for name, number in zip(sweep_request.models, numbers.values(), strict=True)
    }


def too_large(parts: Measurable, layer_bytes: Mapping[str, int], device: str) -> dict[str, str]:
    """The feed-forwards whose weights do not fit into memory, each with what to do.

    Fewer experts would make a step of many tokens cheaper, so none are left out of a layer.
    """
    memory = find(device).memory_bytes()
    feeds = {kind.mechanism for kind in parts.kinds if kind.feeds and kind.mechanism}
    return {
        name: (
            f"the {units.size(layer_bytes[name])} of its weights do not fit into the"
            f" {units.size(memory)} available; measure it on a machine where they do"
        )
        for name in feeds
        if memory is not None and layer_bytes[name] > memory
    }


def stacks(chosen: Mapping[str, int], layer_bytes: Mapping[str, int]) -> tuple[str, ...]:
    """The mechanisms, each as a stack of several layers where the caches of a core would hold one.

    In its model a layer finds there what other layers left. So as many are measured in a row as
    have the weights of the whole model, or more than such caches hold.
    """
    model_bytes = sum(layers * layer_bytes[name] for name, layers in chosen.items())
    times = {name: ceil(min(model_bytes, CACHES) / layer_bytes[name]) for name in chosen}
    return tuple(f"stack({n}*{name})" if n > 1 else name for name, n in times.items())


def sizes_of(parts: Measurable) -> dict[str, Any]:
    """The options of the sweep that follow from a model, but for its mechanisms."""
    return {
        "level": "attention",
        "width": parts.width,
        "heads": parts.heads,
        "batch": 1,
    }


def write_report(type_: str, parts: Measurable, as_json: bool, folder: Path, sweep: Sweep) -> None:
    """Write the report of the sweep with the table and figure of the layers, and print these."""
    from attnbench.commands.model.costs import ModelCosts
    from attnbench.commands.model.figure import layer_figure
    from attnbench.commands.model.layer_table import layer_table, share_table
    from attnbench.report import delimited
    from attnbench.report.figures import saved
    from attnbench.report.page import report_files

    analysis = analysed(folder, sweep)
    sweep_request = analysis.sweep.request
    costs = ModelCosts(analysis, layer_kinds(parts, sweep_request.dtype, sweep_request.lengths))
    title = f"{type_}, {sweep_request.dtype}"
    tables = {"layers.csv": layer_table(costs, title)}
    if shares := share_table(costs, title):
        tables["shares.csv"] = shares
    layer_files = {name: delimited.table(table) for name, table in tables.items()}
    if costs.summed_steps:
        layer_files["layers.png"] = saved(layer_figure(costs), "png")
    output.fill(folder, report_files(analysis) | layer_files, then=INTACT)
    if as_json:
        numbers = {"kinds": [*costs.records()], "sum": [*costs.sums()]}
        numbers["attention_share"] = [*costs.shares()]
        console.data({"model_type": type_, "dtype": sweep_request.dtype} | numbers)
        return
    for table in tables.values():
        console.show(table)
    console.err().print(
        f"in {folder}: {' and '.join(sorted(layer_files))} with the layers, report.html with what"
        " was measured"
    )


def layer_kinds(parts: Measurable, dtype: str, lengths: tuple[int, ...]) -> "list[LayerKind]":
    """The kinds of layers with the bytes that `attnbench bytes` says of them."""
    from attnbench.commands.model.costs import LayerKind

    query = ContextQuery(lengths=lengths, item_bytes=ITEM_BYTES[dtype])
    kinds = []
    for kind in parts.kinds:
        bytes_row = rows([Layer(kind.words, kind.parts, None)] * kind.layers, query)[0]
        at = dict(zip(lengths, bytes_row.at, strict=True))
        facts = (kind.words, kind.layers, kind.mechanism, kind.reason)
        kinds.append(LayerKind(*facts, per_token=bytes_row.per_token, kept=at, feeds=kind.feeds))
    return kinds
