"""Ctrl-C, TERM and HUP end the program with one line and the exit code 128 + number.

Where nothing has to be put in order the process leaves at once; a `stoppable` block is unwound.
Loaded before anything else, so that a signal finds a handler: this file imports next to nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager, suppress

from attnbench.errors import Interrupted

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all else here

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
    """From now on, each of the signals ends the process at once with this line."""
    handle(lambda number, frame: leave(number, message))


def ignore_signals() -> None:
    """The work is done: the exit code is no longer a signal's to decide."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def stoppable(left: Callable[[], str]) -> Iterator[None]:
    """Each of the signals unwinds the block, once; a second one cannot disturb the first's work.

    `left` is asked after the block has ended what is kept and how to go on. Raises `Interrupted`.
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
    """Give the signals a handler, and return those before; one ignored, as by nohup, stays so."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    heeded = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    for number in heeded:
        signal.signal(number, handler)
    return heeded


def leave(number: int, message: str) -> NoReturn:
    """Say why and end the process, wherever it is."""
    with suppress(OSError):  # the terminal may be gone
        os.write(2, f"attnbench: {message}\n".encode(errors="replace"))
    os._exit(128 + number)
