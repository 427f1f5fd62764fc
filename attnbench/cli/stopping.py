"""Ctrl-C and its kin end a verb in order, whatever it is in the middle of."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attnbench.errors import Interrupted

# a service that stops and a terminal that closes, beside the SIGINT of Ctrl-C
SIGNALS = tuple(
    number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)


@contextmanager
def stoppable(said: str) -> Iterator[None]:
    """Each of the signals unwinds the block. Raises `Interrupted`, which says what is left.

    One that is ignored, as nohup has it, stays so.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {said}") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt(*_: Any) -> None:
    """What Ctrl-C does by itself."""
    raise KeyboardInterrupt
