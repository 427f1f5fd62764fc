"""Where text goes: results to standard output, everything else to standard error."""

import errno
import io
import os
import sys
from contextlib import suppress
from math import isfinite
from select import select
from typing import TYPE_CHECKING, Any

from attnbench.errors import clean
from attnbench.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from attnbench.report import grid


class Stream(io.FileIO):
    """A stream that swallows text once its reader has gone; a log swallows any error.

    Where there is no room and it must not block, it waits all the same; a log drops the rest.
    """

    log = False

    def write(self, data: Any) -> int:
        try:
            while (written := super().write(data)) is None:
                if self.log:
                    return len(data)
                select((), (self,), ())
            return written
        except OSError as error:
            hung_up = error.errno == errno.EIO and self.isatty()
            if self.log or error.errno == errno.EPIPE or hung_up:
                return len(data)
            raise


def tolerate_closed_streams() -> None:
    """Keep closed readers, unencodable letters and full logs from changing the exit code."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # or the journal would be opened under this number
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue  # closed, or replaced by another program
        raw = Stream(stream.fileno(), "w", closefd=False)
        raw.log = name == "stderr"
        whole = io.TextIOWrapper(
            io.BufferedWriter(raw), stream.encoding, "replace", line_buffering=True
        )
        setattr(sys, name, whole)


def abandon() -> None:
    """Drop what standard output still buffers, so that the interpreter does not flush it again."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def begin(doing: str) -> None:
    """Print the first line of a slow verb, before any heavy library is loaded."""
    print(f"attnbench {__version__}: {doing} …", file=sys.stderr, flush=True)


def warn(lines: "Iterable[str]", of: str = "") -> None:
    """Print warnings, one per line, each after the name `of` what it concerns, if any."""
    for line in lines:
        err().print(f"warning: {of}: {line}" if of else f"warning: {line}")


def data(value: Any) -> None:
    """Print as JSON in ASCII, without control characters; null for NaN and infinities."""
    import json

    print(json.dumps(plain(value), indent=1))


def plain(value: Any) -> Any:
    """The value as JSON types; a frame becomes a list of rows."""
    if hasattr(value, "to_dict"):
        value = value.to_dict("records")
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def show(table: "grid.Table") -> None:
    """Print a table to standard output."""
    from attnbench.report import terminal

    console = out()
    console.print(terminal.table(table, console.width))


def out() -> "Console":
    """The console for results; 160 columns wide where there is no terminal."""
    return _console(stderr=False)


def err() -> "Console":
    """The console for warnings, progress and what the program chose."""
    return _console(stderr=True)


def _console(stderr: bool) -> "Console":
    from rich.console import Console

    class Plain(Console):
        """Prints text as it is, without control characters; on standard error in one line."""

        def render_str(self, text: str, **how: Any) -> Any:
            newline = r"\n" if stderr else "\n"  # on stderr it is part of a file name
            return super().render_str(newline.join(map(clean, text.split("\n"))), **how)

    console = Plain(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 160
    return console
