"""From the given options of a sweep to its `Request`, where the program chooses what is left out.

Options are also read from a TOML file, and a sweep's are written into one, and as a command.
"""

import json
import math
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain, product
from pathlib import Path
from typing import Any

from attnbench.devices.cgroups import cores
from attnbench.devices.finding import AUTO, choose, find, kinds
from attnbench.devices.protocol import Device
from attnbench.errors import UsageError
from attnbench.modes import find as find_mode
from attnbench.records import LEAST_ROUNDS, Level, Request, Settings, Shell, Sizes
from attnbench.records.selection import layers
from attnbench.units import many
from attnbench.workloads.options import CROSSED, OF_MODEL, flag, of_request, options, read
from attnbench.workloads.presets import expand, preset

FILE = "sweep.toml"
LARGEST = 1 << 14  # bytes of such a file; tomllib's memory is quadratic in the length of a key
HEAD = "# Repeats the sweep: attnbench sweep --config sweep.toml --out FOLDER\n"
PRECISION = 0.02  # smaller differences seldom matter, and few machines show them


def request(given: Mapping[str, Any], *, divided: bool = False, elsewhere: bool = False) -> Request:
    """The request of the given options, with what the program chooses for those left out.

    A `divided` sweep gets no budget of its own; the device of one measured `elsewhere` need not be
    here, and must be named. Raises `UsageError`, `CannotRun`.
    """
    device = chosen_device(given.get("device", AUTO), elsewhere)
    usual = {name: option.default for name, option in options().items() if not option.chosen}
    asked = {**usual, **given, "device": device.name}
    values = chosen(asked, device, divided) | asked
    refuse_useless(given, values["mode"], values["level"], device)
    refuse_uneven(values["layers"], periods(values))
    refuse_early_end("precision" in given, values["rounds"])
    sizes = [
        Sizes(**dict(zip(CROSSED, one, strict=True)))
        for one in product(*(values.get(name) or (None,) for name in CROSSED))
    ]
    values |= {name: getattr(sizes[0], name) for name in CROSSED}
    return Request(
        **of_record(Request, values),
        variants=tuple(sizes) if len(sizes) > 1 else (),
        settings=settings(values, device),
    )


def chosen(values: Mapping[str, Any], device: Device, divided: bool) -> dict[str, Any]:
    """What the program chooses, where `values` does not say it."""
    column = preset(values["preset"])
    level = values.get("level", usual_level(values["mode"]))
    budget_s = values.get("budget", None if divided else device.budget_s)
    # more than three rounds fit into some budgets, and precision ends them
    endless = budget_s is None and "precision" not in values
    return {
        "level": level,
        "width": (column.width,),
        "heads": (column.heads,),
        "tokens": device.usual_tokens(max(values.get("width", (column.width,)))),
        "layers": math.lcm(column.layers, *periods({**values, "level": level}).values()),
        "dropout": Shell().dropout,
        "threads": device.threads or cores(),
        "budget": budget_s,
        "precision": PRECISION,
        "rounds": 1 if values["quick"] else 3 if endless else 12,
    }


def chosen_device(name: str, elsewhere: bool) -> Device:
    """The device, which is here unless the sweep is measured `elsewhere`. Raises as `request`."""
    if elsewhere and name == AUTO:
        devices = " or ".join(f"--device {kind}" for kind in kinds())
        raise UsageError(
            f"--on with --device auto: the nodes may have other devices than this machine; write"
            f" {devices}"
        )
    return find(name) if elsewhere else choose(name)


def refuse_useless(
    given: Mapping[str, Any], modes: Sequence[str], level: Level, device: Device
) -> None:
    """Raises `UsageError` if an option has no effect together with the others."""
    for mode in modes:
        facts = find_mode(mode)
        if level != (facts.only_level or level):
            raise UsageError(
                f"--mode {mode} has no level {level}: {facts.only_level_reason}; leave out --level"
            )
    if "fill" in given and not any(find_mode(mode).steps for mode in modes):
        raise UsageError("--fill has no effect without --mode decode: only steps have a state")
    for name in OF_MODEL:
        if name in given and level is not Level.MODEL:
            raise UsageError(
                f"{flag(name)} has no effect at level {level}; it is for --level model"
            )
    if "batch" in given and "tokens" in given:
        raise UsageError("--batch fixes the batch, so --tokens has no effect; give one of them")
    rules = (
        ("cold", device.flushes_cache, "flushes a GPU's cache; it has no effect on"),
        ("energy", device.counts_energy, "needs a GPU; nothing counts that of"),
        ("cuda_graphs", device.captures, "needs a GPU; it has no effect on"),
    )
    for name, works, reason in rules:
        if given.get(name) and not works:
            raise UsageError(f"{flag(name)} {reason} {device.title()}")


def usual_level(modes: Sequence[str]) -> Level:
    """The level of a sweep that names none: that of a mode with only one, else `model`."""
    levels = (find_mode(mode).only_level for mode in modes)
    return Level(next(filter(None, levels), Level.MODEL))


def refuse_early_end(asked: bool, rounds: int) -> None:
    """Raises `UsageError` if a precision is `asked` for in too few rounds to end any block."""
    if asked and rounds < LEAST_ROUNDS:
        raise UsageError(
            f"--precision has no effect in {many(rounds, 'round')}: it ends a block after"
            f" {LEAST_ROUNDS} or more; leave out --quick, or raise --rounds"
        )


def periods(values: Mapping[str, Any]) -> dict[str, int]:
    """The number of layers of each stack that a classifier repeats, by its name."""
    if values["level"] is not Level.MODEL:
        return {}
    selections = (one.name for part in values["models"] for one in expand(part))
    return {name: len(own) for name in selections if (own := layers(name))}


def refuse_uneven(count: int, periods: Mapping[str, int]) -> None:
    """Raises `UsageError` if a classifier would have to cut the layers of a stack."""
    for name, period in periods.items():
        if count % period:
            raise UsageError(
                f"--layers {count} is not a multiple of the {many(period, 'layer')} of {name},"
                f" which the model repeats; write --layers {math.lcm(count, period)}"
            )


def settings(values: Mapping[str, Any], device: Device) -> Settings:
    """How to measure: short runs under a budget, long ones without."""
    quick = values["quick"]
    sampling = device.sampling(quick, bounded=quick or values["budget"] is not None)
    clock = device.host_clock(values["threads"])
    return Settings(**of_record(Settings, values), clock=clock, **sampling)


def of_record(record: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of those options that are fields of the record."""
    mine = (option for option in options().values() if option.record is record)
    return {option.field: values[option.name] for option in mine if option.name in values}


def from_toml(file: Path) -> dict[str, Any]:
    """The typed values of the options in the file; its keys are their names.

    Raises `UsageError` that names the file, and the key at fault.
    """
    try:
        with open(file, "rb") as opened:
            content = opened.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read --config {str(file)!r}: {reason.lower()}") from error
    if len(content) > LARGEST:
        raise UsageError(f"--config {str(file)!r} is larger than {LARGEST >> 10} KiB")
    # the path of a mechanism may have bytes that are not UTF-8
    text = content.decode("utf-8-sig", "surrogateescape")
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--config {str(file)!r} is not TOML: {error}") from error
    try:
        return read(values)
    except UsageError as error:
        raise UsageError(f"--config {str(file)!r}: {error}") from error


def to_toml(given: Mapping[str, Any]) -> bytes:
    """A file that repeats the sweep, with the options that are `given` and the usual ones."""
    lines = [HEAD]
    for name, option in options().items():
        if name in given or option.default not in (None, ""):
            value = _toml(option.text(given.get(name, option.default)))
            lines.append(f"{flag(name).removeprefix('--')} = {value}\n")
    return "".join(lines).encode("utf-8", "surrogateescape")


def _toml(value: str | bool) -> str:
    """The value in TOML, whose escapes are those of JSON, and DEL."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and str(int(value)) == value:
        return value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def command(asked: Request) -> str:
    """The command that repeats the sweep, without defaults: `attnbench sweep --budget 15m`."""
    needed = of_request(asked)
    with suppress(UsageError):  # a preset, device or mechanism that this version does not know
        same = of_request(request(needed, elsewhere=True))
        for name in [name for name in needed if name != "device"]:
            rest = {other: value for other, value in needed.items() if other != name}
            with suppress(UsageError):
                if of_request(request(rest, elsewhere=True)) == same:
                    needed = rest
    known = options()
    written = (known[name].words(value) for name, value in needed.items() if name != "device")
    return shlex.join(["attnbench", "sweep", *chain.from_iterable(written)])
