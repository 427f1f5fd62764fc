"""A server for each round, so that rounds differ in where memory lies as fresh processes do."""

from collections.abc import Collection
from contextlib import AbstractContextManager

from attnbench.run.processes import ServerHandle


class Layouts(AbstractContextManager["Layouts"]):
    """Servers for rounds, each with another memory layout; a context manager.

    Where a server's memory lies favours one code over another by 3 to 5 % (standard deviation of a
    ratio) as long as the server lives, so a server for each round makes that a part of how rounds
    differ. While one serves, the next starts on the cores `starts_on`, if there are any, as long as
    layouts stay below `most`.
    """

    def __init__(self, first: ServerHandle, most: int = 0, starts_on: Collection[int] = ()) -> None:
        self.first, self.most, self.starts_on = first, most, starts_on
        self.others: dict[int, ServerHandle] = {}  # by layout

    def __exit__(self, *error: object) -> None:
        for server in self.others.values():
            server.close()

    def server(self, layout: int) -> ServerHandle:
        """The server with this layout; those of earlier calls end, except the first."""
        coming = layout + 1
        ahead = {coming} if self.starts_on and coming < self.most else set[int]()
        for ended in self.others.keys() - ahead - {layout}:
            self.others.pop(ended).close()
        if layout != self.first.layout and layout not in self.others:
            self.others[layout] = self.first.with_layout(layout)
        for new in ahead - self.others.keys():
            self.others[new] = self.first.with_layout(new, self.starts_on)
        return self.others.get(layout, self.first)
