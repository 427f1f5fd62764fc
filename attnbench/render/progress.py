"""A line that says what is running now, how far it is, and how long it will still take."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from attnbench.render.grid import clean

REFRESH_PER_S = 2  # the machine is being measured: the line must cost nothing


class ProgressLine:
    """A live line on a terminal; elsewhere one line for each block, so that a log can be read."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.last = ""
        self.live = Live(console=console, refresh_per_second=REFRESH_PER_S, transient=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.console.is_terminal:
            self.live.__exit__(kind, error, trace)

    def show(self, block: str, running: str, done: int, left_s: float) -> None:
        """Say what runs now; the time left is a prediction and stands first."""
        left = f"≈ {left_s:.0f} s left" if left_s >= 1 else "almost done"
        text = clean(f"{left} · {block} · {done} visits done")
        if self.console.is_terminal:
            line = Text(clean(f"{text} · {running}"), style="cyan", no_wrap=True)
            line.truncate(self.console.width, overflow="ellipsis")
            self.live.update(line)
        elif block != self.last:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)
        self.last = block
