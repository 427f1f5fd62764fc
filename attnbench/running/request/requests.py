"""From the given options of a sweep to its `Request`, where the program chooses what is left out.

Options are also read from a TOML file, and a sweep's are written into one.
"""

import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from attnbench.devices.cgroups import cores
from attnbench.devices.finding import AUTO, choose, find
from attnbench.devices.protocol import Device
from attnbench.errors import UsageError, small_file
from attnbench.mechanisms.catalogue.presets import expand, preset
from attnbench.records import LEAST_ROUNDS, SIZES, Level, Request, Settings, Sizes
from attnbench.records.modes import ModeFacts
from attnbench.records.modes import find as find_mode
from attnbench.records.selection import layers
from attnbench.running.request.conflicts import Conflict, refuse
from attnbench.running.request.options import flag, options, read

FILE = "sweep.toml"
HEAD = "# Repeats the sweep: attnbench sweep --config sweep.toml --out FOLDER\n"
PRECISION = 0.02  # smaller differences seldom matter, and few machines show them


def request(given: Mapping[str, Any], *, divided: bool = False, elsewhere: bool = False) -> Request:
    """The request of the given options, with what the program chooses for those left out.

    A `divided` sweep gets no budget of its own; the device of one measured `elsewhere` need not be
    here, and must be named. Raises `UsageError`, `CannotRun`.
    """
    device = (find if elsewhere else choose)(given.get("device", AUTO))
    usual = {name: option.default for name, option in options().items()}
    values = {**usual, **chosen({**usual, **given}, given, device, divided), **given}
    values["device"] = device.name
    refuse_useless(given, values, device)
    quick = values["quick"]
    bounded = values["quick"] or values["budget"] is not None
    settings = Settings(
        **of_record(Settings, values),
        **device.sampling(quick, bounded),
        clock=device.host_clock(values["threads"]),
    )
    return with_sizes(values, Request(**of_record(Request, values), settings=settings))


def resumed(stored: Request, given: Mapping[str, Any]) -> Request:
    """The stored request with the options of this time and today's memory; does not compare them.

    Raises `UsageError`, `CannotRun`.
    """
    given = {**given, "device": stored.device} if given.get("device") == AUTO else given
    sizes = {name: dict.fromkeys(getattr(one, name) for one in stored.sizes) for name in SIZES}
    memory_bytes = choose(stored.device).sampling(False, False).get("memory_limit_bytes")
    settings = replace(
        stored.settings, **of_record(Settings, given), memory_limit_bytes=memory_bytes
    )
    asked = replace(stored, **of_record(Request, given), settings=settings)
    return with_sizes({**sizes, **given}, asked)


def with_sizes(values: Mapping[str, Any], asked: Request) -> Request:
    """The request with every combination of the sizes among the values."""
    lists = (values[name] or (None,) for name in SIZES)
    sizes = [Sizes(**dict(zip(SIZES, one, strict=True))) for one in product(*lists)]
    return replace(asked, **vars(sizes[0]), variants=tuple(sizes) if len(sizes) > 1 else ())


def chosen(
    values: Mapping[str, Any], given: Mapping[str, Any], device: Device, divided: bool
) -> dict[str, Any]:
    """What the program chooses, by the `values` of the options that have one."""
    column = preset(values["preset"])
    only = (find_mode(mode).only_level for mode in values["mode"])
    level = given.get("level", Level(next(filter(None, only), Level.MODEL)))
    width = given.get("width", (column.width,))
    budget_s = given.get("budget", None if divided else device.budget_s)
    steps = any(find_mode(mode).steps for mode in values["mode"])
    # a classifier repeats whole stacks
    repeated = values["models"] if level is Level.MODEL else ()
    stacks = [layers(one.name) for part in repeated for one in expand(part)]
    # more than three rounds fit into some budgets, and precision ends them
    endless = budget_s is None and "precision" not in given
    return {
        "level": level,
        "width": width,
        "heads": (column.heads,),
        "tokens": column.batch_tokens or device.usual_tokens(max(width)),
        "dtype": (column.dtype,),
        "layers": math.lcm(column.layers, *(len(stack) for stack in stacks if stack)),
        "threads": device.threads or cores(),
        "budget": budget_s,
        "cold": device.flushes_cache and steps,
        "precision": PRECISION,
        "rounds": 1 if values["quick"] else 3 if endless else 12,
    }


def refuse_useless(given: Mapping[str, Any], values: Mapping[str, Any], device: Device) -> None:
    """Raises `UsageError` if an option has no effect together with the others."""
    facts = {mode: find_mode(mode) for mode in values["mode"]}
    for mode, about in facts.items():
        if values["level"] != (about.only_level or values["level"]):
            raise UsageError(
                f"--mode {mode} has no level {values['level']}: {about.only_level_reason};"
                " leave out --level"
            )
    refuse(without_effect(values, facts, device), given)


def without_effect(
    values: Mapping[str, Any], facts: Mapping[str, ModeFacts], device: Device
) -> Iterator[Conflict]:
    """What an option that was given has no effect with.

    values: of all options by name, with what the program chose.
    facts: of the modes that are measured, by name.
    """
    no_steps = not any(about.steps for about in facts.values())
    level = values["level"]
    of_decode = "{} has no effect without --mode decode: "
    yield Conflict(given=("fill",), with_=no_steps, reason=of_decode + "only steps have a state")
    yield Conflict(
        given=("step",), with_=no_steps, reason=of_decode + "a pass takes whole sequences"
    )
    yield Conflict(
        given=("layers", "dropout"),
        with_=level is not Level.MODEL,
        reason=f"{{}} has no effect at level {level}; it is for --level model",
    )
    yield Conflict(
        given=("tokens",),
        with_=("batch",),
        reason="{} has no effect with --batch, which fixes the batch",
    )
    of_gpu = {
        "cold": device.flushes_cache,
        "energy": device.counts_energy,
        "cuda_graphs": device.captures,
    }
    for name, possible in of_gpu.items():
        if values[name] and not possible:
            yield Conflict(
                given=(name,),
                with_=True,
                reason=f"{{}} needs a GPU that can do it; it has no effect on {device.title()}",
            )
    yield Conflict(
        given=("precision",),
        with_=values["rounds"] < LEAST_ROUNDS,
        reason=f"{{}} ends a block after {LEAST_ROUNDS} rounds; leave out --quick, or raise"
        " --rounds",
    )


def of_record(record: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of those options that are fields of the record."""
    mine = (option for option in options().values() if option.record is record)
    return {option.field: values[option.name] for option in mine if option.name in values}


def from_toml(file: Path) -> dict[str, Any]:
    """The typed values of the options in the file; its keys are their names.

    Raises `UsageError` that names the file, and the key at fault.
    """
    try:
        # the path of a mechanism may have bytes that are not UTF-8
        return read(tomllib.loads(small_file(file).decode("utf-8-sig", "surrogateescape")))
    except (OSError, ValueError, RecursionError, UsageError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read --config {str(file)!r}: {reason}") from error


def to_toml(given: Mapping[str, Any]) -> bytes:
    """A file that repeats the sweep, with the options that are `given`."""
    lines = [HEAD]
    for name, value in given.items():
        # TOML's escapes are those of JSON, and DEL
        text = json.dumps("none" if value is None else value, ensure_ascii=False)
        lines.append(f"{flag(name).removeprefix('--')} = {text}\n".replace("\x7f", "\\u007f"))
    return "".join(lines).encode("utf-8", "surrogateescape")
