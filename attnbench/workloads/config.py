"""Options of a sweep in a TOML file: what `--config` reads, and the `sweep.toml` of a sweep."""

import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from attnbench.errors import UsageError
from attnbench.records import Request
from attnbench.workloads import options
from attnbench.workloads.requests import request as requested

FILE = "sweep.toml"
LARGEST = 1 << 14  # bytes of such a file; tomllib's memory is quadratic in the length of a key
HEAD = "# Repeats the sweep: attnbench sweep --config sweep.toml --out FOLDER\n"


def read(file: Path) -> dict[str, Any]:
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
        return options.read(values)
    except UsageError as error:
        raise UsageError(f"--config {str(file)!r}: {error}") from error


def content(given: Mapping[str, Any], request: Request) -> bytes:
    """A file that repeats the sweep; what the program chose is in comments."""
    return "".join([HEAD, *_lines(given, request)]).encode("utf-8", "surrogateescape")


def command(request: Request) -> str:
    """The command that repeats the sweep, without defaults: `attnbench sweep --budget 15m`."""
    needed = options.of_request(request)
    with suppress(UsageError):  # a preset, device or mechanism that this version does not know
        same = options.of_request(requested(needed, elsewhere=True))
        for name in [name for name in needed if name != "device"]:
            rest = {other: value for other, value in needed.items() if other != name}
            with suppress(UsageError):
                if options.of_request(requested(rest, elsewhere=True)) == same:
                    needed = rest
    known = options.options()
    written = (known[name].words(value) for name, value in needed.items() if name != "device")
    return shlex.join(["attnbench", "sweep", *chain.from_iterable(written)])


def _lines(given: Mapping[str, Any], request: Request) -> Iterator[str]:
    panel, effective = None, options.of_request(request)
    for name, option in options.options().items():
        if name in given or option.default not in (None, ""):
            value, comment = given.get(name, option.default), ""
        elif name in effective and option.chosen:
            value, comment = effective[name], "# chosen: "
        else:
            continue
        if option.panel is not panel:
            panel = option.panel
            yield f"\n# {panel}\n"
        key = options.flag(name).removeprefix("--")
        yield f"{comment}{key} = {_toml(option.text(value))}\n"


def _toml(value: str | bool) -> str:
    """The value in TOML, whose escapes are those of JSON, and DEL."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and str(int(value)) == value:
        return value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
