"""The command line: runs a verb, and reports every error as one line and an exit code."""

import sys
import traceback

from attnbench.commands import completing, console
from attnbench.commands.verbs import application
from attnbench.errors import AttnbenchError, clean, one_line

LONGEST = 2_000  # characters of an error message, which may quote arguments of any length
FAILED = AttnbenchError.exit_code  # never 1, by which `check` reports that something is slower


def run() -> int:
    """Run the command line in this process, print its error if any, and return the exit code.

    An error that nobody foresaw is a bug: its traceback comes before the line.
    """
    try:
        return verb()
    except AttnbenchError as error:
        show(str(error))
        return error.exit_code
    except (OSError, MemoryError) as error:
        # no other module explains these: standard output on a full disk, too many processes
        show(f"the system refused: {one_line(error)}")
        console.abandon()
        return FAILED
    except Exception as error:
        message = parser_message(error)
        if not message:
            for line in traceback.format_exc().splitlines():
                print(clean(line), file=sys.stderr)
            message = "; ".join((f"unexpected {one_line(error)}", *getattr(error, "__notes__", ())))
        show(message)
        return FAILED


def verb() -> int:
    """Run the verb that the arguments name and return its exit code. Raises any exception."""
    console.tolerate_closed_streams()
    try:
        return completing.complete(parsed) if completing.asks_for_bash() else parsed()
    except SystemExit as exit_:
        # Typer turns every broken pipe into exit code 1
        if isinstance(exit_.__context__, OSError):
            raise exit_.__context__ from None
        if isinstance(exit_.code, int):  # Typer ends so after completions
            return exit_.code
        raise


def parsed() -> int:
    """Read the arguments and run the verb that they name."""
    return application().main(prog_name="attnbench", standalone_mode=False) or 0


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
    line = clean(text)
    half = LONGEST // 2
    line = line if len(line) <= LONGEST else f"{line[:half]} … {line[-half:]}"
    print(f"attnbench: {line}", file=sys.stderr)
