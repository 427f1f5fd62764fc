"""Every error a user can cause.

    AttnbenchError                      exit code
    ├── UsageError                      2   what was asked cannot be understood
    │   ├── UnknownMechanism            2   no mechanism, form, group or preset of that name
    │   └── UnknownOption               2   a mechanism has no such option, or not that value
    ├── CannotRun                       2   what was asked is clear but this machine cannot do it
    │   └── OverBudget                  2   the whole budget ended before a process answered
    ├── StoreError                      2   the folder or journal cannot be read or written
    │   ├── SweepExists                 2   the folder already holds a sweep
    │   ├── SweepBusy                   2   another process is writing the sweep
    │   └── DifferentSweep              2   `--resume` or `merge` with another request or machine
    ├── Incomplete                      4   shards were cancelled or lost; the others are merged
    └── Interrupted                     128 + signal: 130 Ctrl-C, 143 TERM, 129 HUP

A message is one line: what was requested, the limit, the way out.
"""

from pathlib import Path

LARGEST_FILE = 16 << 20  # bytes


class AttnbenchError(Exception):
    """The root of all errors; the text is shown to the user unchanged, without a traceback."""

    exit_code = 2


class UsageError(AttnbenchError):
    """What was asked cannot be understood."""


class UnknownMechanism(UsageError):
    """No mechanism, form, group or preset of that name."""


class UnknownOption(UsageError):
    """A mechanism has no such option, or the option does not accept that value."""


class CannotRun(AttnbenchError):
    """What was asked is clear, but this machine cannot do it."""


class NoProgram(CannotRun):
    """The program that forks has ended, or does not answer."""


class OverBudget(CannotRun):
    """The whole budget ended before a process answered; the text continues a sentence about it."""


class StoreError(AttnbenchError):
    """A sweep's folder or journal cannot be read or written."""


class SweepExists(StoreError):
    """The folder already holds a sweep."""

    def __init__(self, folder: Path) -> None:
        ways_out = "--resume to continue it, --out for another folder"
        super().__init__(f"{str(folder)!r} already holds a sweep; {ways_out}")


class SweepBusy(StoreError):
    """Another process is writing the sweep."""


class DifferentSweep(StoreError):
    """`--resume` or `merge` was given another request, machine or run than the sweep's."""


class Incomplete(AttnbenchError):
    """Shards were cancelled or lost; what the others measured is merged and reported."""

    exit_code = 4


class Interrupted(AttnbenchError):
    """A signal (Ctrl-C, TERM or HUP) ended the work; the text says what is kept."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number  # as a shell reports it


def clean(text: str) -> str:
    """The text on one line, with control, format and direction characters made visible."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else " " if c in "\t\n\r" else f"\\x{ord(c):02x}" for c in text
    )


def one_line(error: BaseException) -> str:
    """The class of an exception, and the first line of its message if it has one."""
    return ": ".join(filter(None, (type(error).__name__, first_line(error))))


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, without the name of its class."""
    return next(iter(str(error).strip().splitlines()), "")


def small_file(path: Path) -> bytes:
    """The bytes of a file that a user wrote or a model has.

    Raises `OSError`, and `UsageError` for one that is far larger than any such file.
    """
    with open(path, "rb") as file:
        found = file.read(LARGEST_FILE + 1)
    if len(found) > LARGEST_FILE:
        raise UsageError(f"{str(path)!r} is larger than {LARGEST_FILE >> 20} MiB; give another")
    return found
