"""Options of a sweep in a TOML file: what `--config` reads, and the `sweep.toml` of a sweep."""

import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from attnbench.errors import UsageError
from attnbench.records import Request
from attnbench.workloads.options import Options, as_text, flag, option_specs, texts, words
from attnbench.workloads.requests import request as requested

FILE = "sweep.toml"
LARGEST = 1 << 14  # bytes of such a file; tomllib's memory is quadratic in the length of a key
HEAD = "# Repeats the sweep: attnbench sweep --config sweep.toml --out FOLDER\n"


def read(file: Path) -> Mapping[str, str | bool]:
    """The options in the file as the command line has them; its keys are their names.

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
        return texts(values)
    except UsageError as error:
        raise UsageError(f"--config {str(file)!r}: {error}") from error


def content(options: Options, request: Request) -> bytes:
    """A file that repeats the sweep; what the program chose is in comments."""
    return "".join([HEAD, *_lines(options, request.options)]).encode("utf-8", "surrogateescape")


def command(request: Request) -> str:
    """The command that repeats the sweep, without defaults: `attnbench sweep --budget 15m`."""
    own = _given(request)
    start = {name: own[name] for name in ("mode", "preset", "device", "quick")}
    usual: dict[str, str | bool | None] = dict.fromkeys(own)
    with suppress(UsageError):  # a preset or device that this version does not know
        usual |= _given(requested(Options.of(start), elsewhere=True))
    usual |= {"mode": ",".join(Options().value("mode")), "preset": Options.preset, "quick": False}
    differing = (words(n, own[n]) for n in own if own[n] not in (None, usual[n]))
    return shlex.join(["attnbench", "sweep", *chain.from_iterable(differing)])


def _given(request: Request) -> dict[str, str | bool | None]:
    """The text of every option that would give this request."""
    values: dict[str, Any] = {
        name: getattr(request, name, getattr(request.settings, name, request.options.get(name)))
        for name, option in option_specs().items()
        if option.affects_measurement
    }
    for name in ("width", "heads", "dtype", "batch"):
        values[name] = [*dict.fromkeys(getattr(one, name) for one in request.sizes)]
    lengths = request.lengths
    if len(lengths) > 2 and all(b == 2 * a for a, b in pairwise(lengths)):
        values["lengths"] = f"{lengths[0]}..{lengths[-1]}:x2"
    values |= {"mode": list(request.modes), "tokens": request.batch_tokens}
    times = {"budget": request.budget_s, "case_timeout": request.case_timeout_s}
    values |= {name: _time(seconds) for name, seconds in times.items()}
    if request.precision is not None:
        values["precision"] = f"{100 * request.precision:.9g}%"
    known = {name: value for name, value in values.items() if value not in (None, [None])}
    return dict.fromkeys(values) | {name: as_text(name, value) for name, value in known.items()}


def _time(seconds: float | None) -> str:
    """`15m`."""
    if seconds is None:
        return "none"
    return f"{seconds / 60:.9g}m" if seconds % 60 == 0 else f"{seconds:.9g}s"


def _lines(options: Options, chosen: Mapping[str, str | bool]) -> Iterator[str]:
    panel = None
    for name, option in option_specs().items():
        value = getattr(options, name)
        shown = chosen.get(name) if value is None else value
        if shown is None or shown == "":
            continue
        if option.panel is not panel:
            panel = option.panel
            yield f"\n# {panel}\n"
        comment = "# chosen: " if value is None else ""
        yield f"{comment}{flag(name).removeprefix('--')} = {_toml(shown)}\n"


def _toml(value: str | bool) -> str:
    """The value in TOML, whose escapes are those of JSON, and DEL."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and str(int(value)) == value:
        return value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
