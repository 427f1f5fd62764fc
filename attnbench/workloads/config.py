"""Options of a sweep in a TOML file: what `--config` reads, and the `sweep.toml` of a sweep."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from attnbench.errors import UsageError
from attnbench.records import Request
from attnbench.workloads.asked import Asked, flag, options, texts
from attnbench.workloads.requests import written

FILE = "sweep.toml"
LARGEST = 1 << 20  # bytes of such a file
MOST_DOTS = 100  # outside of text; tomllib's memory is quadratic in those of a key

# text and comments of TOML, the last one perhaps without its end
TEXT = re.compile(
    r'''"""(?:\\.|(?!""").)*+"{0,5}|'{3}(?:(?!'{3}).)*+'{0,5}'''
    r"""|"(?:\\.|[^"\\\n])*+"?|'[^'\n]*+'?|#[^\n]*+""",
    re.DOTALL,
)

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
        raise UsageError(f"--config {str(file)!r} is larger than {LARGEST >> 20} MiB")
    # a path of a mechanism may have bytes that are no text
    text = content.decode("utf-8-sig", "surrogateescape")
    if (dots := TEXT.sub("", text).count(".")) > MOST_DOTS:
        raise UsageError(
            f"--config {str(file)!r} has {dots:,} dots outside of text, and more than {MOST_DOTS}"
            " are not read; write options as name = value, without tables or dotted names"
        )
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--config {str(file)!r} is not TOML: {error}") from error
    try:
        return texts(values)
    except UsageError as error:
        raise UsageError(f"--config {str(file)!r}: {error}") from error


def content(asked: Asked, request: Request) -> bytes:
    """A file that asks for the same again; what the program chose stands in comments."""
    lines = [HEAD, *_lines(asked, written(request))]
    return "".join(lines).encode("utf-8", "surrogateescape")


def _lines(asked: Asked, chosen: Mapping[str, str | bool]) -> Iterator[str]:
    panel = None
    for name, option in options().items():
        value = getattr(asked, name)
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
