"""Heads of a mechanism's own, which need not fill the width of the model."""

from dataclasses import dataclass, fields

from attnbench.attention.contract import BaseConfig
from attnbench.records import Workload


@dataclass(frozen=True, kw_only=True)
class OwnHeads(BaseConfig):
    """Options of mechanisms whose heads need not fill D: `heads`: H; `head_width`: d; None: as in
    the workload, which has d = D / H."""

    heads: int | None = None
    head_width: int | None = None

    def __post_init__(self) -> None:
        self.require_at_least(1, "heads", "head_width")
        if self.heads is not None and self.head_width is None:
            raise ValueError("heads is given without head_width; give both")

    def sized(self, workload: Workload) -> Workload:
        if self.head_width is None:
            return workload
        sizes = {f.name: getattr(workload, f.name) for f in fields(Workload)}
        own = {"heads": self.heads or workload.heads, "own_width": self.head_width}
        return HeadsWorkload(**sizes | own)


@dataclass(frozen=True, kw_only=True)
class HeadsWorkload(Workload):
    """A workload of heads that need not fill D."""

    own_width: int

    @property
    def head_width(self) -> int:
        """d, whatever D is."""
        return self.own_width
