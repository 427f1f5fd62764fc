"""The command line: runs a verb, and reports every error as one line and an exit code."""

import os
import sys

from attnbench.errors import DEBUG, AttnbenchError

LONGEST = 2_000  # characters of an error message, which may quote arguments of any length
FAILED = AttnbenchError.exit_code  # never 1, by which `check` reports that something is slower


def run() -> int:
    """Run the command line in this process, print its error if any, and return the exit code."""
    try:
        return verb()
    except AttnbenchError as error:
        show(str(error))
        return error.exit_code
    except OSError as error:
        # no other module explains these: standard output on a full disk, too many processes
        show(f"operating system error: {error}{traced(keep=False)}")
        from attnbench.cli import console

        console.abandon()
        return FAILED
    except Exception as error:
        named = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        told = "; ".join((f"unexpected {named}", *getattr(error, "__notes__", ())))
        show(parser_message(error) or f"{told}{traced()}")
        return FAILED


def verb() -> int:
    """Run the verb that the arguments name and return its exit code. Raises any exception."""
    from attnbench.cli import console

    console.tolerate_closed_streams()
    from attnbench.cli.verbs import application

    try:
        return application()(prog_name="attnbench", standalone_mode=False) or 0
    except SystemExit as exit_:
        # Typer turns every broken pipe into exit code 1
        if isinstance(exit_.__context__, OSError):
            raise exit_.__context__ from None
        raise


def parser_message(error: Exception) -> str:
    """The parser's message about arguments that it could not read; empty for other errors."""
    message = getattr(error, "format_message", None)  # the class moved between versions of Typer
    if message is None:
        return ""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "attnbench"
    return f"{message().rstrip('.')}; see {path} --help"


def show(text: str) -> None:
    """Print an error on one line without control characters, shortened in the middle."""
    try:
        from attnbench.render.grid import clean

        line = clean(text)
    except Exception:  # this may be the very import that fails
        line = ascii(text)
    half = LONGEST // 2
    line = line if len(line) <= LONGEST else f"{line[:half]} … {line[-half:]}"
    print(f"attnbench: {line}", file=sys.stderr)


def traced(keep: bool = True) -> str:
    """Print the current traceback in debug mode; otherwise `keep` it and return where it is."""
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
