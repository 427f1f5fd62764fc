"""axial_attention: the package's attention along one axis, on both axes of the grid.

The package sums both axes, or chains them without residuals; `combine=chained` adds the residuals.
"""

from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from attnbench.mechanisms import axial
from attnbench.peers import Packed, Shared
from attnbench.records import Workload


class Axial(Shared, axial.Axial):
    package = "axial_attention"
    module = "axial_attention"

    def layer(self, config: Any, workload: Workload) -> nn.Module:
        theirs = self.library.AxialAttention(workload.width, 2, workload.heads, dim_index=-1)
        for axis, own in zip(theirs.axial_attentions, (self.column, self.row), strict=True):
            axis.fn.to_q, axis.fn.to_kv = own.query, Packed(own.key, own.value)
            axis.fn.to_out = own.output
        return theirs

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        theirs: Any = self.theirs
        x = x.unflatten(1, self.config.grid(x.shape[1]))  # [B, h, w, D]
        if self.config.combine == "sum":
            return theirs(x).flatten(1, 2)
        column, row = theirs.axial_attentions
        r = row(x)
        return (r + column(x + r)).flatten(1, 2)

    @staticmethod
    def refuses(config: Any, w: Workload) -> str | None:
        rows, columns = config.grid(w.seq_len)
        if rows * columns != w.seq_len:
            return f"N = {w.seq_len} does not fill a grid of {rows} × {columns}"
        return None


FORMS = MappingProxyType({"axial": Axial})
