"""Ctrl-C, TERM and HUP end the program with one line and the exit code 128 + number.

Where nothing needs cleaning up the process exits at once; a `stoppable` block is unwound.
This file is loaded first and imports next to nothing, so that signals are handled early.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress

from attnbench.errors import Interrupted

TYPE_CHECKING = False  # typing has it too, but takes longer to import than all else here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any, NoReturn

    Handler = Callable[[int, FrameType | None], Any]

SIGNALS = tuple(
    number
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if (number := getattr(signal, name, None)) is not None
)


def leave_on_signal(message: str) -> None:
    """From now on, each of the signals prints this line and ends the process at once."""
    handle(lambda number, frame: leave(number, message))


def ignore_signals() -> None:
    """The work is done: from now on no signal changes the exit code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


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

    hook, sys.unraisablehook = sys.unraisablehook, lost
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


def handle(handler: Handler) -> dict[int, Any]:
    """Set a handler for the signals and return the old ones; ignored signals (nohup) stay so."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handled = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    for number in handled:
        signal.signal(number, handler)
    return handled


def leave(number: int, message: str) -> NoReturn:
    """Print the message and end the process, wherever it is."""
    with suppress(OSError):  # the terminal may be gone
        os.write(2, f"attnbench: {message}\n".encode(errors="replace"))
    os._exit(128 + number)
