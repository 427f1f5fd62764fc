"""Handlers of Ctrl-C, TERM and HUP, set before anything else is loaded.

Python itself has loaded all that this file imports, so that a signal in the first milliseconds
ends the program as a later one does.
"""

import _signal  # what `signal` wraps in enumerations, which take longer to load than all else here
import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any, NoReturn

    Handler = Callable[[int, FrameType | None], Any]

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
SIGNALS = tuple(int(getattr(_signal, name)) for name in NAMES if hasattr(_signal, name))


def leave_on_signal(message: str) -> None:
    """From now on, each of the signals prints this line and ends the process at once."""
    handle(lambda number, frame: leave(number, message))


def ignore_signals() -> None:
    """The work is done: from now on no signal changes the exit code."""
    for number in SIGNALS:
        _signal.signal(number, _signal.SIG_IGN)


def handle(handler: "Handler") -> "dict[int, Any]":
    """Set a handler for the signals and return the old ones; ignored signals (nohup) stay so."""
    before = {number: _signal.getsignal(number) for number in SIGNALS}
    handled = {number: old for number, old in before.items() if old != _signal.SIG_IGN}
    for number in handled:
        _signal.signal(number, handler)
    return handled


def leave(number: int, message: str) -> "NoReturn":
    """Print the message and end the process, wherever it is."""
    try:
        os.write(2, f"attnbench: {message}\n".encode(errors="replace"))
    finally:  # also if the terminal is gone
        os._exit(128 + number)
