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

from attnbench.devices import AUTO, choose, find
from attnbench.devices.cgroups import cores
from attnbench.devices.protocol import Device
from attnbench.errors import UsageError, small_file
from attnbench.mechanisms import catalogue
from attnbench.records import LEAST_ROUNDS, SIZES, Level, Request, Settings, Sizes, modes
from attnbench.records.selection import layers
from attnbench.running.request.conflicts import Conflict, refuse
from attnbench.running.request.options import flag, options, read

FILE = "sweep.toml"
HEAD = "# Repeats the sweep: attnbench sweep --config sweep.toml --out FOLDER\n"
PRECISION = 0.02  # smaller differences seldom matter, and few machines show them


def request(
    user_options: Mapping[str, Any], *, divided: bool = False, elsewhere: bool = False
) -> Request:
    """The request of the given options, with what the program chooses for those left out.

    A `divided` sweep gets no budget of its own; the device of one measured `elsewhere` need not be
    here, and must be named. Raises `UsageError`, `CannotRun`.
    """
    device = (find if elsewhere else choose)(user_options.get("device", AUTO))
    defaults = {name: option.default for name, option in options().items()}
    choices_made = choices({**defaults, **user_options}, user_options, device, divided)
    values = {**defaults, **choices_made, **user_options}
    values["device"] = device.name
    refuse_useless(user_options, values, device)
    quick = values["quick"]
    bounded = values["quick"] or values["budget"] is not None
    settings = Settings(
        **fields_of_record(Settings, values),
        **device.sampling(quick, bounded),
        clock=device.host_clock(values["threads"]),
    )
    return with_sizes(values, Request(**fields_of_record(Request, values), settings=settings))


def resumed_request(
    stored: Request, user_options: Mapping[str, Any], *, elsewhere: bool = False
) -> Request:
    """The stored request with the options of this time and today's memory; does not compare them.

    The device of one measured `elsewhere` need not be here. Raises `UsageError`, `CannotRun`.
    """
    if user_options.get("device") == AUTO:
        user_options = {**user_options, "device": stored.device}
    sizes = {name: dict.fromkeys(getattr(size, name) for size in stored.sizes) for name in SIZES}
    device = (find if elsewhere else choose)(stored.device)
    memory_bytes = device.sampling(False, False).get("memory_limit_bytes")
    settings = replace(
        stored.settings, **fields_of_record(Settings, user_options), memory_limit_bytes=memory_bytes
    )
    new_request = replace(stored, **fields_of_record(Request, user_options), settings=settings)
    return with_sizes({**sizes, **user_options}, new_request)


def with_sizes(values: Mapping[str, Any], base: Request) -> Request:
    """The request with every combination of the sizes among the values."""
    lists = (values[name] or (None,) for name in SIZES)
    sizes = [Sizes(**dict(zip(SIZES, combination, strict=True))) for combination in product(*lists)]
    return replace(base, **vars(sizes[0]), variants=tuple(sizes) if len(sizes) > 1 else ())


def choices(
    values: Mapping[str, Any], user_options: Mapping[str, Any], device: Device, divided: bool
) -> dict[str, Any]:
    """What the program chooses, by the `values` of the options that have one.

    values:       of all options that have one, by name
    user_options: those among them that the user wrote
    device:       where the sweep is measured
    divided:      whether machines share the sweep, which then has no budget of its own
    """
    column = catalogue.preset(values["preset"])
    only = (modes.find(mode).only_level for mode in values["mode"])
    level = user_options.get("level", Level(next(filter(None, only), Level.MODEL)))
    width = user_options.get("width", (column.width,))
    budget_s = user_options.get("budget", None if divided else device.budget_s)
    steps = any(modes.find(mode).steps for mode in values["mode"])
    # a classifier repeats whole stacks
    repeated_models = values["models"] if level is Level.MODEL else ()
    stacks = [
        layers(selection.name) for part in repeated_models for selection in catalogue.expand(part)
    ]
    # more than three rounds fit into some budgets, and precision ends them
    endless = budget_s is None and "precision" not in user_options
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


def refuse_useless(
    user_options: Mapping[str, Any], values: Mapping[str, Any], device: Device
) -> None:
    """Raises `UsageError` if an option has no effect together with the others."""
    facts = {mode: modes.find(mode) for mode in values["mode"]}
    for mode, about in facts.items():
        if values["level"] != (about.only_level or values["level"]):
            raise UsageError(
                f"--mode {mode} has no level {values['level']}: {about.only_level_reason};"
                " leave out --level"
            )
    refuse(options_without_effect(values, facts, device), user_options)


def options_without_effect(
    values: Mapping[str, Any], facts: Mapping[str, modes.ModeFacts], device: Device
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
    only_steps = all(about.steps for about in facts.values())
    yield Conflict(
        given=("tokens",),
        with_=only_steps,
        reason="{} has no effect with --mode decode, which has one sequence, or --batch",
    )
    yield Conflict(
        given=("causal",),
        with_=only_steps and values["causal"],
        reason="{} has no effect with --mode decode, which is always causal",
    )
    yield Conflict(
        given=("dropout",),
        with_=not any(about.trains for about in facts.values()),
        reason="{} has no effect without --mode training",
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


def fields_of_record(record: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of those options that are fields of the record."""
    matching = (option for option in options().values() if option.record is record)
    return {option.field: values[option.name] for option in matching if option.name in values}


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


def to_toml(user_options: Mapping[str, Any]) -> bytes:
    """A TOML file that repeats the sweep with these options."""
    lines = [HEAD]
    for name, value in user_options.items():
        # TOML's escapes are those of JSON, and DEL
        text = json.dumps("none" if value is None else value, ensure_ascii=False)
        lines.append(f"{flag(name).removeprefix('--')} = {text}\n".replace("\x7f", "\\u007f"))
    return "".join(lines).encode("utf-8", "surrogateescape")
