"""Resolves the options of a sweep to a fully specified `Request`."""

import math
from dataclasses import asdict, fields, replace
from itertools import product
from typing import Any

from attnbench.devices.cgroups import cores
from attnbench.devices.finding import AUTO, choose, find, kinds
from attnbench.devices.protocol import Device
from attnbench.errors import UsageError
from attnbench.modes import find as find_mode
from attnbench.records import LEAST_ROUNDS, Level, Request, Settings, Shell, Sizes
from attnbench.records.selection import layers
from attnbench.units import many
from attnbench.workloads.options import Options, flag, option_specs
from attnbench.workloads.presets import expand, preset

PRECISION = 0.02  # smaller differences seldom matter, and few machines show them
OF_MODEL = ("layers", "dropout", "share_layers", "reversible")  # options of level `model` alone


def request(options: Options, *, divided: bool = False, elsewhere: bool = False) -> Request:
    """The request of these options, with what the program chooses for those left out.

    A `divided` sweep gets no budget of its own; the device of one measured `elsewhere` need not be
    here, and must be named. Raises `UsageError`, `CannotRun`.
    """
    device = chosen_device(options, elsewhere)
    refuse_useless(options, device)
    options = resolve_defaults(options, device, divided)
    refuse_uneven(options)
    values = {name: options.value(name) for name in option_specs()}
    refuse_early_end(options.precision, values["rounds"])
    sizes = crossed(values)
    unused = {  # where the batch is fixed, the level is not `model`, or rounds are few
        "tokens": device.usual_tokens(max(values["width"])),
        "layers": preset(options.preset).layers,
        "dropout": Shell().dropout,
        "precision": PRECISION,
    }
    values |= {name: value for name, value in unused.items() if values[name] is None}
    return Request(
        **record_fields(Request, values | asdict(sizes[0])),
        variants=sizes if len(sizes) > 1 else (),
        modes=values["mode"],
        budget_s=values["budget"],
        case_timeout_s=values["case_timeout"],
        settings=settings(values, device),
        options=options.measurement_options(),
    )


def chosen_device(options: Options, elsewhere: bool) -> Device:
    """The device, which is here unless the sweep is measured `elsewhere`. Raises as `request`."""
    name = options.value("device")
    if elsewhere and name == AUTO:
        devices = " or ".join(f"--device {kind}" for kind in kinds())
        raise UsageError(
            f"--on with --device auto: the nodes may have other devices than this machine; write"
            f" {devices}"
        )
    return find(name) if elsewhere else choose(name)


def refuse_useless(options: Options, device: Device) -> None:
    """Raises `UsageError` if an option has no effect together with the others."""
    level = options.value("level") or usual_level(options)
    for mode in options.value("mode"):
        facts = find_mode(mode)
        if level != (facts.only_level or level):
            raise UsageError(
                f"--mode {mode} has no level {level}: {facts.only_level_reason}; leave out --level"
            )
    if options.fill is not None and not any(find_mode(m).steps for m in options.value("mode")):
        raise UsageError("--fill has no effect without --mode decode: only steps have a state")
    for name in OF_MODEL:
        if getattr(options, name) is not None and level is not Level.MODEL:
            raise UsageError(
                f"{flag(name)} has no effect at level {level}; it is for --level model"
            )
    if options.batch is not None and options.tokens is not None:
        raise UsageError("--batch fixes the batch, so --tokens has no effect; give one of them")
    if options.cold and not device.flushes_cache:
        raise UsageError(f"--cold flushes a GPU's cache; it has no effect on {device.title()}")
    if options.energy and not device.counts_energy:
        raise UsageError(f"--energy needs a GPU; nothing counts that of {device.title()}")
    if options.cuda_graphs and not device.captures:
        raise UsageError(f"--cuda-graphs needs a GPU; it has no effect on {device.title()}")


def usual_level(options: Options) -> Level:
    """The level of a sweep that names none: that of a mode with only one, else `model`."""
    levels = (find_mode(mode).only_level for mode in options.value("mode"))
    return Level(next(filter(None, levels), Level.MODEL))


def refuse_early_end(precision: str | None, rounds: int) -> None:
    """Raises `UsageError` if a precision is asked for in too few rounds to end any block."""
    if precision is not None and rounds < LEAST_ROUNDS:
        raise UsageError(
            f"--precision has no effect in {many(rounds, 'round')}: it ends a block after"
            f" {LEAST_ROUNDS} or more; leave out --quick, or raise --rounds"
        )


def resolve_defaults(options: Options, device: Device, divided: bool) -> Options:
    """The options, with texts for all that the program chooses, where they have an effect."""
    column = preset(options.preset)
    budget_s = None if divided else device.budget_s
    chosen = {
        "level": str(usual_level(options)),
        "width": str(column.width),
        "heads": str(column.heads),
        "threads": str(device.threads or cores()),
        "budget": "none" if budget_s is None else f"{budget_s:g}s",
    }
    options = replace(options, device=device.name).with_chosen(chosen)
    if options.batch is None:
        chosen["tokens"] = str(device.usual_tokens(max(options.value("width"))))
    if options.level == Level.MODEL:
        whole = math.lcm(column.layers, *periods(options).values())
        chosen |= {"layers": str(whole), "dropout": str(Shell().dropout)}
    # more than three rounds fit into some budgets, and precision ends them
    endless = options.value("budget") is None and options.precision is None
    chosen["rounds"] = "1" if options.quick else "3" if endless else "12"
    options = options.with_chosen(chosen)
    enough = options.value("rounds") >= LEAST_ROUNDS
    return options.with_chosen({"precision": f"{PRECISION:.0%}"} if enough else {})


def periods(options: Options) -> dict[str, int]:
    """The number of layers of each stack, by its name."""
    chosen = (one.name for part in options.value("models") for one in expand(part))
    return {name: len(own) for name in chosen if (own := layers(name))}


def refuse_uneven(options: Options) -> None:
    """Raises `UsageError` if a classifier would have to cut the layers of a stack."""
    count = options.value("layers")
    for name, period in periods(options).items() if options.level == Level.MODEL else ():
        if count % period:
            raise UsageError(
                f"--layers {count} is not a multiple of the {many(period, 'layer')} of {name},"
                f" which the model repeats; write --layers {math.lcm(count, period)}"
            )


def crossed(values: dict[str, Any]) -> tuple[Sizes, ...]:
    """Every combination of widths, heads, number types and batches."""
    lists = (values["width"], values["heads"], values["dtype"], values["batch"] or (None,))
    return tuple(Sizes(width=w, heads=h, dtype=t, batch=b) for w, h, t, b in product(*lists))


def settings(values: dict[str, Any], device: Device) -> Settings:
    """How to measure: short runs under a budget, long ones without."""
    quick = values["quick"]
    sampling = device.sampling(quick, bounded=quick or values["budget"] is not None)
    clock = device.host_clock(values["threads"])
    return Settings(**record_fields(Settings, values), clock=clock, **sampling)


def record_fields(record: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values of those options that are fields of the record."""
    return {field.name: values[field.name] for field in fields(record) if field.name in values}
