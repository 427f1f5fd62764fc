"""`attnbench model`: measures one layer of each kind of a model, and adds up what they cost."""

from collections.abc import Iterator, Mapping
from functools import partial
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from attnbench.commands import console
from attnbench.commands import options as shared
from attnbench.commands.model.bytes_command import located, number_type, warn_unchecked
from attnbench.commands.model.configured_layers import model as read_model
from attnbench.commands.model.context import ContextQuery, Layer, rows
from attnbench.commands.model.mechanisms import WEIGHED, Measurable, measurable
from attnbench.commands.options import argument, with_sweep_options
from attnbench.commands.publishing import INTACT, analysed
from attnbench.commands.sweeping.carry_out import sweep_with
from attnbench.errors import CannotRun, UsageError
from attnbench.records import ITEM_BYTES, HelpPanel, Sweep, modes
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
    json_: bool = shared.as_json(HelpPanel.OUTPUT),
) -> None:
    """Measure one layer of each kind of a model at its sizes, and add up what they cost.

    A step of one token and one of 512, a chunk of a prefill, are measured at contexts of 1k, 8k,
    128k and 1m tokens, as far as a budget of 10m and the memory go, in the model's number type.
    """
    path = located(config)
    about = read_model(path)
    found = measurable(path)
    chosen = mechanisms(str(config), found)
    given = dict(written)
    refuse(conflicts(given), given)
    if resume:
        refuse_another(chosen, Path(resume))
    else:
        given = {**read({**usual(given), "dtype": number_type(about)} | sizes(found)), **given}
        console.begin("reading the sizes of layers")
        given["models"] = in_a_row(chosen, given)
    warn_unchecked(about)
    if about.checked and about.type not in WEIGHED:
        console.warn(
            [
                f"layers of model type {about.type!r} were compared by the bytes they keep, not by"
                " their weights; gates and norms of theirs may be left out"
            ]
        )
    show = partial(shown, about.type, found, json_)
    sweep_with(
        given,
        shard=shard,
        out=out,
        resume=resume,
        trace=trace,
        dry_run=dry_run,
        show=show,
        plan_as_json=json_,
    )


def usual(given: Mapping[str, Any]) -> dict[str, str]:
    """The options of a sweep that nobody gave; no sizes of steps where none is measured."""
    options = dict(USUAL)
    chosen = given.get("mode", (USUAL["mode"],))
    if not any(modes.find(mode).steps for mode in chosen):
        del options["step"]
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


def refuse_another(chosen: Mapping[str, int], folder: Path) -> None:
    """Raises `UsageError` if the sweep in a folder is of other layers."""
    single = [(layers(name) or (name,))[0] for name in load(folder).request.models]
    if [*map(str, single)] != [*chosen]:
        raise UsageError(f"--resume {str(folder)!r}: the sweep there is of another model")


def mechanisms(name: str, found: Measurable) -> dict[str, int]:
    """Each mechanism of a model, and how many layers it has.

    Raises `CannotRun` if no kind of layer of it can be measured.
    """
    chosen: dict[str, int] = {}
    for kind in found.kinds:
        if kind.mechanism:
            chosen[kind.mechanism] = chosen.get(kind.mechanism, 0) + kind.layers
    if not chosen:
        reasons = [f"{kind.words}: {kind.reason}" for kind in found.kinds if kind.reason]
        why = "; ".join(reasons) or "none has attention"
        raise CannotRun(f"no layer of {name!r} can be measured: {why}; attnbench bytes reads it")
    return chosen


def in_a_row(chosen: Mapping[str, int], given: Mapping[str, Any]) -> tuple[str, ...]:
    """The mechanisms, each as a stack of several layers where the caches of a core would hold one.

    In its model a layer finds there what other layers left. So as many are measured in a row as
    have the weights of the whole model, or more than such caches hold.
    """
    from attnbench.running.plan import plan
    from attnbench.running.session import reading_server

    asked = request({**given, "models": tuple(chosen)})
    with reading_server() as server:
        cases = plan(asked, server).cases
    numbers = {(one.case.mechanism, one.case.options): one.parameters for one in cases}
    weights = [ITEM_BYTES[asked.dtype] * number for number in numbers.values()]
    whole = sum(n * own for n, own in zip(chosen.values(), weights, strict=True))
    times = [ceil(min(whole, CACHES) / own) for own in weights]
    return tuple(
        f"stack({n}*{name})" if n > 1 else name for name, n in zip(chosen, times, strict=True)
    )


def sizes(found: Measurable) -> dict[str, Any]:
    """The options of the sweep that follow from a model, but for its mechanisms."""
    return {
        "level": "attention",
        "width": found.width,
        "heads": found.heads,
        "batch": 1,
        "causal": True,
    }


def shown(type_: str, found: Measurable, as_json: bool, folder: Path, sweep: Sweep) -> None:
    """Write the report of the sweep with the table and figure of the layers, and print these."""
    from attnbench.commands.model.costs import ModelCosts
    from attnbench.commands.model.figure import layer_figure
    from attnbench.commands.model.layer_table import layer_table
    from attnbench.report import delimited
    from attnbench.report.figures import saved
    from attnbench.report.page import report_files

    analysis = analysed(folder, sweep)
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
        f"in {folder}: {' and '.join(sorted(own))} with the layers, report.html with what was"
        " measured"
    )


def layer_kinds(found: Measurable, dtype: str, lengths: tuple[int, ...]) -> "list[LayerKind]":
    """The kinds of layers with the bytes that `attnbench bytes` says of them."""
    from attnbench.commands.model.costs import LayerKind

    query = ContextQuery(lengths=lengths, item_bytes=ITEM_BYTES[dtype])
    kinds = []
    for kind in found.kinds:
        kept = rows([Layer(kind.words, kind.parts, None)] * kind.layers, query)[0]
        at = dict(zip(lengths, kept.at, strict=True))
        own = (kind.words, kind.layers, kind.mechanism, kind.reason)
        kinds.append(LayerKind(*own, per_token=kept.per_token, kept=at))
    return kinds
