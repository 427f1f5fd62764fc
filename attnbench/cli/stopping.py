"""Lets Ctrl-C, TERM and HUP unwind work, which ends with one line and exit code 128 + number."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from attnbench.cli.signals import handle, leave
from attnbench.errors import Interrupted


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
