"""The program `attnbench`: signals first, then the verbs; every end is an exit code and a line.

Importing this file loads next to nothing, so that a signal soon finds a handler.
"""

import os
import sys

from attnbench.cli import stopping
from attnbench.errors import AttnbenchError

DEBUG = "ATTNBENCH_DEBUG"
LONGEST = 2_000  # characters of an error: what was asked may be as long as a system lets it be
FAILED = AttnbenchError.exit_code  # never 1, by which `check` says that something is slower


def main() -> None:
    """Run the command line and leave with its exit code."""
    stopping.leave_on_signal("interrupted; nothing was measured")
    code = run()
    stopping.ignore_signals()
    sys.exit(code)


def run() -> int:
    """Run the command line in this process, show its error if any, and return the exit code."""
    try:
        return verb()
    except AttnbenchError as error:
        show(str(error))
        return error.exit_code
    except OSError as error:
        # what no room put into words: a full disk below standard output, or no more processes
        show(f"the system refused: {error}{traced(keep=False)}")
        from attnbench.cli import console

        console.abandon()
        return FAILED
    except Exception as error:
        show(misread(error) or f"unforeseen {named(error)}{traced()}")
        return FAILED


def verb() -> int:
    """Run the verb that the arguments name; its exit code. Any exception may come through."""
    from attnbench.cli import console

    console.forgive()
    from attnbench.cli.verbs import application

    try:
        return application()(standalone_mode=False) or 0
    except SystemExit as left:
        # Typer turns a broken pipe, whosever it was, into exit code 1
        if isinstance(left.__context__, OSError):
            raise left.__context__ from None
        raise


def misread(error: Exception) -> str:
    """What the parser says of the arguments it could not read; nothing of any other error."""
    said = getattr(error, "format_message", None)  # its class has moved between versions of Typer
    if said is None:
        return ""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "attnbench"
    return f"{said().rstrip('.')}; {path} --help lists what there is"


def show(text: str) -> None:
    """An error on one line, without its middle if it is long; nothing in it commands a terminal."""
    try:
        from attnbench.render.grid import clean

        line = clean(text)
    except Exception:  # this may be the very import that fails
        line = ascii(text)
    half = LONGEST // 2
    line = line if len(line) <= LONGEST else f"{line[:half]} … {line[-half:]}"
    print(f"attnbench: {line}", file=sys.stderr)


def named(error: Exception) -> str:
    """The class of an error and its text, if it has any."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def traced(keep: bool = True) -> str:
    """Print the traceback of the error being handled, if asked to; else say where it is kept."""
    import traceback

    if os.environ.get(DEBUG):
        traceback.print_exc()
        return ""
    if not keep:
        return ""
    import tempfile

    try:
        number, path = tempfile.mkstemp(prefix="attnbench-traceback-", suffix=".txt")
        with open(number, "w", errors="replace") as file:
            traceback.print_exc(file=file)
    except (OSError, MemoryError):
        return f"; {DEBUG}=1 shows the traceback"
    return f"; the traceback is in {path}"
