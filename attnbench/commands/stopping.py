"""What Ctrl-C, TERM and HUP do: they end with one line and exit code 128 + number.

Outside of `stoppable` the process leaves at once; inside it, the work is unwound first.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from attnbench.errors import Interrupted

Handler = Callable[[int, FrameType | None], Any]

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))


def leave_on_signal(message: str) -> None:
    """From now on, each of the signals prints this line and ends the process at once."""
    handle(lambda number, frame: leave(number, message))


def ignore_signals() -> None:
    """The work is done: from now on no signal changes the exit code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def handle(handler: Handler) -> dict[int, Any]:
    """Set a handler for the signals and return the old ones; ignored signals (nohup) stay so."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handled = {number: old for number, old in before.items() if old != signal.SIG_IGN}
    for number in handled:
        signal.signal(number, handler)
    return handled


def leave(number: int, message: str) -> NoReturn:
    """Print the message and end the process, wherever it is."""
    try:
        os.write(2, f"attnbench: {message}\n".encode(errors="replace"))
    finally:  # also if the terminal is gone
        os._exit(128 + number)


@contextmanager
def stoppable(left: Callable[[], str]) -> Iterator[None]:
    """The first signal unwinds the block; later ones are ignored while it cleans up.

    `left` is called after the block and says what is kept and how to go on. Raises `Interrupted`.
    """
    received: list[int] = []

    def unwind(number: int, frame: FrameType | None) -> None:
        if not received:
            received.append(number)
            raise KeyboardInterrupt

    def lost(error: Any) -> None:
        # raised inside a destructor, where Python would print it and go on
        if isinstance(error.exc_value, KeyboardInterrupt) and received:
            leave(received[0], f"interrupted; {left()}")
        hook(error)

    hook = sys.unraisablehook
    sys.unraisablehook = lost
    before = handle(unwind)
    try:
        yield
    except KeyboardInterrupt:
        number = received[0] if received else signal.SIGINT
        raise Interrupted(f"interrupted; {left()}", number) from None
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
